"""What asyncssh can do with a sandbox. Says `done` when all of it worked."""

import asyncio
import os
import sys
import tempfile

import asyncssh

HOST, PORT, USER, KEY, HOST_KEY = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
PATIENCE_S = 60


async def commands(connection):
    ended = await connection.run("cat; echo err >&2; exit 7", input="in")
    assert (ended.stdout, ended.stderr, ended.exit_status) == ("in", "err\n", 7)
    ended = await connection.run("echo $LC_ALL", env={"LC_ALL": "xy"})
    assert ended.stdout == "xy\n"


async def signals(connection):
    process = await connection.create_process("trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    assert await process.stdout.readline() == "ready\n"
    process.send_signal("USR1")
    assert await process.stdout.readline() == "caught\n"
    assert (await process.wait()).exit_status == 5
    process = await connection.create_process("echo ready; exec sleep 1000")
    assert await process.stdout.readline() == "ready\n"
    process.kill()
    ended = await process.wait()
    assert ended.exit_signal[0] == "KILL", ended.exit_signal


async def terminals(connection):
    process = await connection.create_process("stty size; read line; stty size", term_type="xterm", term_size=(101, 31))
    assert (await process.stdout.readline()).split() == ["31", "101"]
    process.change_terminal_size(77, 22)
    process.stdin.write("\n")
    ended = await process.wait()
    assert ended.stdout.split()[-2:] == ["22", "77"], ended.stdout


async def many_channels(connection):
    async def one(number):
        ended = await connection.run("cat", input=f"{number}" * 10_000)
        assert ended.stdout == f"{number}" * 10_000, ended

    await asyncio.gather(*(one(number) for number in range(100)))


async def files(connection):
    with tempfile.TemporaryDirectory() as here:
        os.makedirs(f"{here}/tree/deep")
        bytes_ = os.urandom(5 << 20)
        for name in ("deep/two words", "top"):
            with open(f"{here}/tree/{name}", "wb") as file:
                file.write(bytes_)
        async with connection.start_sftp_client() as sftp:
            await sftp.put(f"{here}/tree", "tree", recurse=True, preserve=True)
            await sftp.rename("tree/top", "tree/renamed")
            await sftp.symlink("renamed", "tree/link")
            assert await sftp.readlink("tree/link") == "renamed"
            assert (await sftp.realpath("tree/link")).endswith("/tree/renamed")
            assert await sftp.getsize("tree/link") == len(bytes_)
            await sftp.posix_rename("tree/renamed", "tree/deep/two words")
            await sftp.get("tree/deep/two words", f"{here}/back")
            with open(f"{here}/back", "rb") as file:
                assert file.read() == bytes_
            assert (await sftp.statvfs(".")).bsize > 0
            await sftp.rmtree("tree")
            assert not await sftp.exists("tree")
        await asyncssh.scp(f"{here}/back", (connection, "copied"))
        await asyncssh.scp((connection, "copied"), f"{here}/again")
        with open(f"{here}/again", "rb") as file:
            assert file.read() == bytes_


async def forwards(connection):
    async def shout(reader, writer):
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    async def ask(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"HELLO"
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for listener in (
        await connection.forward_local_port("127.0.0.1", 0, "localhost", port),
        await connection.forward_remote_port("localhost", 0, "127.0.0.1", port),
    ):
        await asyncio.gather(*(ask(listener.get_port()) for _ in range(10)))
        listener.close()
        await listener.wait_closed()
    server.close()


async def agents(connection):
    ended = await connection.run("ssh-add -l")
    assert "(ED25519)" in ended.stdout, ended


async def main():
    known = f"[{HOST}]:{PORT} {HOST_KEY}\n".encode()
    async with asyncssh.connect(
        HOST,
        PORT,
        username=USER,
        client_keys=[KEY],
        known_hosts=known,
        agent_path=os.environ["SSH_AUTH_SOCK"],
        agent_forwarding=True,
        config=None,
        login_timeout=PATIENCE_S,
        connect_timeout=PATIENCE_S,
    ) as connection:
        for task in (commands, signals, terminals, many_channels, files, forwards, agents):
            await asyncio.wait_for(task(connection), PATIENCE_S)
    print("done")


asyncio.run(main())
