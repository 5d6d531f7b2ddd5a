// An IPFS node without network that answers the RPC on a port of its own and ends with its standard input.

// The node's packages want what the oldest supported Node.js does not have.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new Promise((yes, no) => { resolve = yes; reject = no })
  return { promise, resolve, reject }
}

const { create } = await import('ipfs-core')
const { HttpApi } = await import('ipfs-http-server')

const node = await create({
  repo: process.argv[2],
  silent: true,
  offline: true,
  preload: { enabled: false },
  config: {
    Addresses: { Swarm: [], API: '/ip4/127.0.0.1/tcp/0', Gateway: '', RPC: '' },
    Bootstrap: [],
    Discovery: { MDNS: { Enabled: false }, webRTCStar: { Enabled: false } }
  }
})
const api = new HttpApi(node)
await api.start()
console.log(api._apiServers[0].info.port)

process.stdin.on('end', () => process.exit(0)).resume()
