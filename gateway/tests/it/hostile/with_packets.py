"""What a client may say that minds no rules: packets as the attack wants them. Says `done` when the gateway kept them.

Paramiko exchanges keys and encrypts; everything else is said and heard here.
"""

import json
import queue
import socket
import sys
import time

import paramiko
from paramiko.common import asbytes
from paramiko.message import Message

HOST, PORT, USER, KEY, OTHER_KEY, LIMITS, ATTACK = sys.argv[1], int(sys.argv[2]), *sys.argv[3:8]
LIMITS = json.loads(LIMITS)
PATIENCE_S = 60

DISCONNECT, IGNORE, SERVICE_REQUEST, SERVICE_ACCEPT, KEXINIT = 1, 2, 5, 6, 20
USERAUTH_REQUEST, USERAUTH_FAILURE, USERAUTH_SUCCESS, USERAUTH_PK_OK = 50, 51, 52, 60
GLOBAL_REQUEST, REQUEST_SUCCESS, REQUEST_FAILURE = 80, 81, 82
OPEN, OPEN_CONFIRMATION, OPEN_FAILURE, WINDOW_ADJUST, DATA, EXTENDED_DATA = 90, 91, 92, 93, 94, 95
EOF, CLOSE, REQUEST, CHANNEL_SUCCESS, CHANNEL_FAILURE = 96, 97, 98, 99, 100


class Ended(Exception):
    """The gateway has ended the connection."""


class Connection:
    """A connection whose keys are exchanged."""

    def __init__(self):
        self.heard = queue.Queue()
        self.transport = paramiko.Transport(socket.create_connection((HOST, PORT), PATIENCE_S))
        read = self.transport.packetizer.read_message

        def tapped():
            try:
                kind, message = read()
            except BaseException:
                self.heard.put(None)
                raise
            if KEXINIT <= kind < USERAUTH_REQUEST:
                return kind, message
            self.heard.put((kind, message.asbytes()))
            return IGNORE, message

        self.transport.packetizer.read_message = tapped
        self.transport.banner_timeout = self.transport.handshake_timeout = PATIENCE_S
        self.transport.start_client(timeout=PATIENCE_S)

    def say(self, kind, *fields):
        message = Message()
        message.add_byte(bytes([kind]))
        for field in fields:
            if isinstance(field, bool):
                message.add_boolean(field)
            elif isinstance(field, int):
                message.add_int(field)
            elif isinstance(field, Raw):
                message.add_bytes(field)
            else:
                message.add_string(field)
        try:
            self.transport._send_message(message)
        except (EOFError, OSError, AttributeError) as error:
            raise Ended from error

    def hear(self, *kinds):
        """The next message of these kinds."""
        until = time.monotonic() + PATIENCE_S
        while True:
            message = self.heard.get(timeout=max(0, until - time.monotonic()))
            if message is None or message[0] == DISCONNECT:
                # Whoever listens again hears it again.
                self.heard.put(None)
                raise Ended(message)
            if message[0] in kinds:
                return message[0], Message(message[1])

    def is_ended(self):
        """Waits until the gateway has ended the connection."""
        try:
            self.hear()
        except Ended:
            return True

    def service(self):
        self.say(SERVICE_REQUEST, "ssh-userauth")
        self.hear(SERVICE_ACCEPT)

    def offer(self, user, key):
        self.say(USERAUTH_REQUEST, user, "ssh-connection", "publickey", False, key.get_name(), key.asbytes())
        return self.hear(USERAUTH_FAILURE, USERAUTH_PK_OK)[0]

    def sign(self, user, key, *, session=None, signer=None, signed_user=None, signed_key=None):
        """Logs in, with a signature over something else where that is said."""
        session, signer = self.transport.session_id if session is None else session, signer or key
        signed = Message()
        signed.add_string(session)
        signed.add_byte(bytes([USERAUTH_REQUEST]))
        for field in (signed_user or user, "ssh-connection", "publickey"):
            signed.add_string(field)
        signed.add_boolean(True)
        signed.add_string(key.get_name())
        signed.add_string((signed_key or key).asbytes())
        signature = asbytes(signer.sign_ssh_data(signed.asbytes(), key.get_name()))
        fields = ("ssh-connection", "publickey", True, key.get_name(), key.asbytes(), signature)
        self.say(USERAUTH_REQUEST, user, *fields)
        return self.hear(USERAUTH_FAILURE, USERAUTH_SUCCESS)[0]

    def open(self, number, kind="session", *fields):
        self.say(OPEN, kind, number, 1 << 30, 32_768, *fields)

    def channel(self, number):
        """Opens a session and tells what the gateway calls it."""
        self.open(number)
        while True:
            # russh refuses channels of a kind that it does not know twice.
            kind, message = self.hear(OPEN_CONFIRMATION, OPEN_FAILURE)
            if message.get_int() == number:
                return message.get_int() if kind == OPEN_CONFIRMATION else None

    def request(self, channel, name, *fields):
        self.say(REQUEST, channel, name, True, *fields)
        return self.hear(CHANNEL_SUCCESS, CHANNEL_FAILURE)[0] == CHANNEL_SUCCESS

    def still_works(self, number=90_000):
        channel = self.channel(number)
        assert self.request(channel, "exec", "echo works")
        _, message = self.hear(DATA)
        assert message.get_int() == number and message.get_string() == b"works\n"


class Raw(bytes):
    """Bytes without their length before them."""


def key():
    return paramiko.Ed25519Key.from_private_key_file(KEY)


def other_key():
    return paramiko.Ed25519Key.from_private_key_file(OTHER_KEY)


def arriving():
    connection = Connection()
    connection.service()
    return connection


def inside():
    connection = arriving()
    assert connection.sign(USER, key()) == USERAUTH_SUCCESS
    return connection


def tries(attempt):
    """As many tries as there are fail, and the next ends the connection; one before the last may be right."""
    connection = arriving()
    for _ in range(LIMITS["tries"] - 1):
        assert attempt(connection) == USERAUTH_FAILURE
    assert connection.sign(USER, key()) == USERAUTH_SUCCESS
    connection.still_works()
    connection = arriving()
    for _ in range(LIMITS["tries"]):
        assert attempt(connection) == USERAUTH_FAILURE
    try:
        raise AssertionError(f"there is another try: {connection.sign(USER, key())}")
    except Ended:
        pass


def passwords():
    methods = [
        ("password", False, "secret"),
        ("password", True, "old", "new"),
        ("keyboard-interactive", "", ""),
        ("hostbased", "ssh-ed25519", key().asbytes(), "host", "user", "signature"),
        ("none",),
        ("gssapi-with-mic", 1, "\x06\x09"),
    ]

    def attempt(connection):
        methods.append(methods.pop(0))
        connection.say(USERAUTH_REQUEST, USER, "ssh-connection", *methods[0])
        kind, message = connection.hear(USERAUTH_FAILURE, USERAUTH_SUCCESS)
        assert message.get_text() == "publickey" and not message.get_boolean()
        return kind

    tries(attempt)


def many_keys():
    tries(lambda connection: connection.offer(USER, other_key()))


def answers_nobody_asked_for():
    connection = arriving()
    for _ in range(1_000):
        # The answer of somebody who was asked for a password.
        connection.say(61, 1, "secret")
    assert connection.is_ended()


def confused_keys():
    mine, other = key(), other_key()
    session = Connection().transport.session_id
    for confusion in (
        lambda connection: connection.sign(USER, other),
        lambda connection: connection.sign(USER, mine, signer=other),
        lambda connection: connection.sign(USER, other, signer=mine),
        lambda connection: connection.sign(USER, other, signer=mine, signed_key=mine),
        lambda connection: connection.sign(USER, mine, session=session),
        lambda connection: connection.sign(USER, mine, session=b""),
        lambda connection: connection.sign(USER, mine, signed_user="sbx-9-9-9"),
        lambda connection: connection.sign("sbx-9-9-9", mine),
        lambda connection: connection.sign("sbx-9-9-9", mine, signed_user=USER),
    ):
        connection = arriving()
        assert connection.offer(USER, mine) == USERAUTH_PK_OK
        try:
            assert confusion(connection) == USERAUTH_FAILURE
        except Ended:
            pass


def services():
    connection = Connection()
    for _ in range(5_000):
        connection.say(SERVICE_REQUEST, "ssh-connection")
    connection.service()
    for _ in range(5_000):
        connection.say(SERVICE_REQUEST, "ssh-userauth")
    assert connection.sign(USER, key()) == USERAUTH_SUCCESS
    connection.still_works()


def channels_of_strangers():
    for prepare in (Connection, arriving):
        connection = prepare()
        for number in range(1_000):
            connection.open(number)
            connection.say(REQUEST, number, "exec", True, "touch entered")
            connection.say(DATA, number, "bytes")
            connection.say(GLOBAL_REQUEST, "tcpip-forward", True, "localhost", 0)
        connection.transport.close()


def keys_exchanged_for_ever():
    connection = inside()
    # Keys are exchanged by one who says what it can do, and again, and never goes on.
    try:
        for _ in range(100_000):
            connection.say(KEXINIT, Raw(b"c" * 16), *[""] * 10, False, 0)
    except Ended:
        return
    assert connection.is_ended()


def more_than_the_window():
    connection = inside()
    channel = connection.channel(0)
    assert connection.request(channel, "exec", "exec sleep 20")
    piece = b"x" * 32_000
    try:
        for _ in range(200 * (1 << 20) // len(piece)):
            connection.say(DATA, channel, piece)
    except Ended:
        return
    assert connection.is_ended()


def many_channels():
    connection = inside()
    channels = [connection.channel(number) for number in range(LIMITS["channels"])]
    assert None not in channels
    assert connection.channel(70_000) is None
    for kind, fields in (("direct-tcpip", ("localhost", 1, "", 0)), ("direct-streamlocal@openssh.com", ("/x", "", 0))):
        connection.open(70_001, kind, *fields)
        assert connection.hear(OPEN_CONFIRMATION, OPEN_FAILURE)[0] == OPEN_FAILURE
    connection.say(CLOSE, channels[0])
    connection.hear(CLOSE)
    connection.still_works()


def channels_opened_and_closed():
    connection = inside()
    for number in range(1_000):
        connection.say(CLOSE, connection.channel(number))
        connection.hear(CLOSE)
    connection.still_works()


def odd_channels():
    connection = inside()
    for kind, fields in (
        ("", ()),
        ("x" * 30_000, ()),
        ("x11", ("127.0.0.1", 1)),
        ("forwarded-tcpip", ("localhost", 1, "", 0)),
        ("auth-agent@openssh.com", ()),
        ("direct-tcpip", ("localhost", 1 << 20, "", 0)),
        ("direct-tcpip", ("not.allowed.example", 80, "", 0)),
        ("direct-tcpip", ("x" * 30_000, 80, "", 0)),
        ("direct-streamlocal@openssh.com", ("../" * 9_000, "", 0)),
        ("direct-streamlocal@openssh.com", ("a\0b", "", 0)),
    ):
        connection.open(7, kind, *fields)
        assert connection.hear(OPEN_CONFIRMATION, OPEN_FAILURE)[0] == OPEN_FAILURE, (kind[:40], fields)
    connection.still_works()


def variables():
    connection = inside()
    channel = connection.channel(0)
    largest = "x" * (LIMITS["env_bytes"] - len("LC_0"))
    assert not connection.request(channel, "env", "LC_0", largest + "x")
    assert connection.request(channel, "env", "LC_0", largest)
    for number in range(1, LIMITS["env"]):
        assert connection.request(channel, "env", f"LC_{number}", "x")
    for number in range(2_000):
        assert not connection.request(channel, "env", f"LC_Z{number}", largest)
    for name in ("LD_PRELOAD", "PATH", "", "LC_A=B", "LC_\n"):
        assert not connection.request(channel, "env", name, "x")
    assert connection.request(channel, "exec", "env | grep -c ^LC_; cat")
    assert connection.hear(DATA)[1].get_remainder().endswith(f"{LIMITS['env']}\n".encode())
    assert not connection.request(channel, "env", "LC_0", "late")


def global_requests():
    connection = inside()
    for _ in range(20_000):
        connection.say(GLOBAL_REQUEST, "nothing@example.org", True, "x" * 1_000)
    for _ in range(20_000):
        connection.hear(REQUEST_FAILURE)
    connection.still_works()


def listeners():
    connection = inside()

    def listen():
        connection.say(GLOBAL_REQUEST, "tcpip-forward", True, "localhost", 0)
        kind, message = connection.hear(REQUEST_SUCCESS, REQUEST_FAILURE)
        return message.get_int() if kind == REQUEST_SUCCESS else None

    ports = [listen() for _ in range(LIMITS["listeners"])]
    assert None not in ports and len(set(ports)) == len(ports)
    assert listen() is None
    connection.say(GLOBAL_REQUEST, "streamlocal-forward@openssh.com", True, "socket")
    assert connection.hear(REQUEST_SUCCESS, REQUEST_FAILURE)[0] == REQUEST_FAILURE
    connection.say(GLOBAL_REQUEST, "cancel-tcpip-forward", True, "localhost", ports[0])
    connection.hear(REQUEST_SUCCESS)
    assert listen() is not None
    connection.say(GLOBAL_REQUEST, "cancel-tcpip-forward", True, "localhost", 1)
    connection.hear(REQUEST_FAILURE)
    connection.still_works()


def terminals():
    most = (1 << 32) - 1
    connection = inside()
    for number, (term, sizes, modes) in enumerate([
        ("xterm", (most, most, most, most), b""),
        ("xterm", (0, 0, 0, 0), b"\0"),
        ("xterm", (80, 24, 0, 0), bytes([3, 255, 255, 255, 255, 128, 255, 255, 255, 255, 0])),
        ("xterm", (80, 24, 0, 0), b"".join(bytes([code, 255, 255, 255, 255]) for code in range(1, 129)) + b"\0"),
        ("", (80, 24, 0, 0), b"\0"),
    ]):
        channel = connection.channel(number)
        assert connection.request(channel, "pty-req", term, *sizes, modes), number
        assert connection.request(channel, "exec", "echo at $(tty | cut -c1-5)"), number
        said = b""
        while not said.endswith(b"\n"):
            message = connection.hear(DATA)[1]
            message.get_int()
            said += message.get_string()
        assert said.strip().lower() == b"at /dev/", said
        for size in ((most,) * 4, (0,) * 4):
            connection.say(REQUEST, channel, "window-change", False, *size)
    for number, term in enumerate(["x" * 30_000, "../../x", "a\nb", "\x1b[2J"]):
        # Run or refused, but not without an end.
        channel = connection.channel(100 + number)
        if connection.request(channel, "pty-req", term, 80, 24, 0, 0, b"\0"):
            connection.request(channel, "exec", "true")
            connection.hear(CLOSE)
    connection.still_works()


def terminals_cut_short():
    for modes in (bytes([3, 0, 0]), bytes([0, 3]), bytes([53, 0, 0, 0, 0]) * 5_000 + b"\0"):
        connection = inside()
        connection.say(REQUEST, connection.channel(0), "pty-req", True, "xterm", 80, 24, 0, 0, modes)
        # Whatever it makes of it, it does not go on with a request that was cut.
        try:
            connection.hear(CHANNEL_FAILURE)
        except Ended:
            pass


def requests():
    connection = inside()
    channel = connection.channel(0)
    for name, fields in (
        ("subsystem", ("nothing",)),
        ("subsystem", ("",)),
        ("x11-req", (False, "MIT-MAGIC-COOKIE-1", "00", 0)),
        ("nothing@example.org", ("x" * 30_000,)),
    ):
        assert not connection.request(channel, name, *fields), name
    for _ in range(2_000):
        connection.say(REQUEST, channel, "signal", False, "KILL")
        connection.say(REQUEST, channel, "window-change", False, 1, 2, 3, 4)
    # The channel is as good as before, once.
    assert connection.request(channel, "exec", "cat; echo ended")
    for again in ("exec", "subsystem"):
        assert not connection.request(channel, again, "sftp")
    assert not connection.request(channel, "shell")
    connection.say(EOF, channel)
    assert connection.hear(DATA)[1].get_remainder().endswith(b"ended\n")
    connection.still_works()


def channels_that_are_not_there():
    for kind, fields in (
        (DATA, ("bytes",)),
        (EXTENDED_DATA, (1, "bytes")),
        (EOF, ()),
        (CLOSE, ()),
        (WINDOW_ADJUST, (1 << 31,)),
        (REQUEST, ("exec", True, "touch entered")),
        (OPEN_CONFIRMATION, (1, 1 << 31, 32_768)),
        (OPEN_FAILURE, (1, "no", "")),
        (CHANNEL_SUCCESS, ()),
    ):
        connection = inside()
        for channel in (77, (1 << 32) - 1):
            try:
                connection.say(kind, channel, *fields)
            except Ended:
                pass
        ends(connection)
        connection = inside()
        channel = connection.channel(0)
        connection.say(CLOSE, channel)
        try:
            connection.say(kind, channel, *fields)
        except Ended:
            pass
        ends(connection)


def ends(connection):
    """It goes on, or has ended: not without an answer."""
    try:
        connection.still_works()
    except Ended:
        pass
    connection.transport.close()


def windows_beyond_all_bounds():
    connection = inside()
    channel = connection.channel(0)
    assert connection.request(channel, "exec", "cat")
    for _ in range(100):
        connection.say(WINDOW_ADJUST, channel, (1 << 32) - 1)
    ends(connection)


def a_second_stream():
    connection = inside()
    channel = connection.channel(0)
    assert connection.request(channel, "exec", "cat")
    connection.say(EXTENDED_DATA, channel, 1, "bytes")
    assert connection.is_ended()


def leaving_in_the_midst():
    """Says goodbye, and stays: the gateway is to leave."""
    connection = inside()
    for number in range(20):
        channel = connection.channel(number)
        assert connection.request(channel, "exec", "yes")
    connection.say(GLOBAL_REQUEST, "tcpip-forward", True, "localhost", 0)
    connection.hear(REQUEST_SUCCESS)
    connection.channel(50)
    connection.say(DISCONNECT, 11, "", "")
    assert connection.is_ended()
    print("left", flush=True)
    # Until the other side has seen what it wants to.
    sys.stdin.read()


def unknown_messages():
    connection = inside()
    for kind in (0, 8, 9, 19, 49, 53, 70, 79, 101, 127, 192, 255):
        try:
            connection.say(kind, Raw(b"\xff" * 100))
        except Ended:
            break
    ends(connection)


globals()[ATTACK]()
print("done")
