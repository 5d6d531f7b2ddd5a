"""What paramiko can do with a sandbox. Says `done` when all of it worked."""

import hashlib
import io
import os
import socket
import sys
import threading

import paramiko

HOST, PORT, USER, KEY, HOST_KEY = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
PATIENCE_S = 60


def connected():
    client = paramiko.SSHClient()
    name, kind, key = f"[{HOST}]:{PORT}", *HOST_KEY.split()
    client.get_host_keys().add(name, kind, paramiko.Ed25519Key(data=paramiko.py3compat.decodebytes(key.encode())))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(
        HOST,
        PORT,
        USER,
        pkey=paramiko.Ed25519Key.from_private_key_file(KEY),
        look_for_keys=False,
        allow_agent=False,
        timeout=PATIENCE_S,
        banner_timeout=PATIENCE_S,
        auth_timeout=PATIENCE_S,
    )
    return client


def commands(client):
    stdin, stdout, stderr = client.exec_command("cat; echo err >&2; exit 7", timeout=PATIENCE_S)
    stdin.write("in")
    stdin.channel.shutdown_write()
    assert (stdout.read(), stderr.read()) == (b"in", b"err\n")
    assert stdout.channel.recv_exit_status() == 7
    _, stdout, _ = client.exec_command("echo $LANG", environment={"LANG": "xy"}, timeout=PATIENCE_S)
    assert stdout.read() == b"xy\n"


def terminals(client):
    channel = client.get_transport().open_session(timeout=PATIENCE_S)
    channel.settimeout(PATIENCE_S)
    channel.get_pty("vt100", width=101, height=31)
    channel.exec_command("stty size; read line; stty size")
    said = channel.makefile()
    assert said.readline().split() == ["31", "101"]
    channel.resize_pty(width=77, height=22)
    channel.sendall(b"\n")
    rest = said.read().split()
    assert rest[-2:] == [b"22", b"77"], rest
    assert channel.recv_exit_status() == 0


def many_channels(client):
    transport = client.get_transport()
    channels = [transport.open_session(timeout=PATIENCE_S) for _ in range(100)]
    for number, channel in enumerate(channels):
        channel.settimeout(PATIENCE_S)
        channel.exec_command(f"read line; echo {number} $line")
    for channel in channels:
        channel.sendall(b"go\n")
    for number, channel in enumerate(channels):
        assert channel.makefile().read() == f"{number} go\n".encode()


def files(client):
    sftp = client.open_sftp()
    sftp.get_channel().settimeout(PATIENCE_S)
    bytes_ = os.urandom(5 << 20)
    sftp.putfo(io.BytesIO(bytes_), "put here", confirm=True)
    sftp.rename("put here", "renamed")
    # Named as its manual has it: what it leads to, then the link.
    sftp.symlink("renamed", "link")
    assert sftp.readlink("link") == "renamed"
    assert sftp.stat("link").st_size == len(bytes_) and sftp.lstat("link").st_size == len("renamed")
    got = io.BytesIO()
    sftp.getfo("link", got)
    assert hashlib.sha256(got.getvalue()).digest() == hashlib.sha256(bytes_).digest()
    sftp.mkdir("directory", 0o700)
    assert sorted(sftp.listdir()) == ["directory", "link", "renamed"]
    sftp.chmod("renamed", 0o600)
    sftp.truncate("renamed", 3)
    sftp.utime("renamed", (1, 2))
    told = sftp.stat("renamed")
    assert (told.st_mode & 0o777, told.st_size, told.st_mtime) == (0o600, 3, 2)
    with sftp.open("renamed", "a") as file:
        file.write("more")
    with sftp.open("renamed") as file:
        file.seek(3)
        assert file.read() == b"more"
    try:
        sftp.stat("nothing")
        raise AssertionError("there is nothing")
    except FileNotFoundError:
        pass
    for name in ("link", "renamed"):
        sftp.remove(name)
    sftp.rmdir("directory")
    assert sftp.listdir() == []
    sftp.close()


def echoing():
    """A port whose one visitor is told what it said."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo():
        stream, _ = listener.accept()
        with stream, listener:
            while said := stream.recv(4096):
                stream.sendall(said.upper())

    threading.Thread(target=echo, daemon=True).start()
    return listener.getsockname()[1]


def exactly(stream, length):
    got = b""
    while len(got) < length:
        piece = stream.recv(length - len(got))
        assert piece, got
        got += piece
    return got


def forwards(client):
    transport = client.get_transport()
    channel = transport.open_channel("direct-tcpip", ("localhost", echoing()), ("127.0.0.1", 1), timeout=PATIENCE_S)
    channel.settimeout(PATIENCE_S)
    channel.sendall(b"local")
    assert exactly(channel, 5) == b"LOCAL"
    channel.close()
    port = transport.request_port_forward("127.0.0.1", 0)
    visitor = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    channel = transport.accept(PATIENCE_S)
    channel.settimeout(PATIENCE_S)
    visitor.sendall(b"remote")
    assert exactly(channel, 6) == b"remote"
    channel.sendall(b"back")
    assert exactly(visitor, 4) == b"back"
    channel.close()
    assert visitor.recv(1) == b""
    transport.cancel_port_forward("127.0.0.1", port)
    # It is let go of once the sidecar has heard of it.
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        except ConnectionResetError:
            pass
        except ConnectionRefusedError:
            break


def agents(client):
    """Programs inside ask the agent that this process reaches."""
    transport = client.get_transport()
    channel = transport.open_session(timeout=PATIENCE_S)
    channel.settimeout(PATIENCE_S)
    forwarding = paramiko.agent.AgentRequestHandler(channel)
    channel.exec_command("ssh-add -l")
    said = channel.makefile().read().decode()
    assert "(ED25519)" in said, said
    forwarding.close()


def main():
    client = connected()
    for task in (files, commands, terminals, many_channels, forwards, agents):
        task(client)
    client.get_transport().renegotiate_keys()
    commands(client)
    client.close()
    print("done")


main()
