"""A client of HTTP/3 with aioquic: `http3.py PORT CA WHAT...`. Each WHAT is a function of this file without its `check_`;
the program succeeds only if all of them pass. With `WHAT@2` it speaks version 2 of QUIC (RFC 9369)."""

import asyncio
import contextlib
import os
import sys

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamReset
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, Pong, TextMessage
from wsproto.extensions import PerMessageDeflate

PORT, AUTHORITY = int(sys.argv[1]), sys.argv[2]
VERSION_1, VERSION_2 = 1, 0x6B3343CF
# One of those that force a negotiation (RFC 9000 section 15).
UNKNOWN_VERSION = 0x1A2A3A4A
# The settings of connections that have no others.
versions = {}


class Client(QuicConnectionProtocol):
    def __init__(self, connection):
        super().__init__(connection)
        self.http = H3Connection(connection)
        self.responses, self.waiting, self.websockets = {}, {}, {}
        self.complete = asyncio.get_running_loop().create_future()
        self.terminated = None

    def quic_event_received(self, event):
        match event:
            case HandshakeCompleted():
                self.complete.set_result(event)
            case ConnectionTerminated():
                self.terminated = event
                for future in [self.complete, *self.waiting.values()]:
                    if not future.done():
                        future.set_exception(ConnectionError(f"{event.error_code:x} {event.reason_phrase}"))
            case StreamReset():
                self.waiting[event.stream_id].set_exception(ConnectionError(f"reset with {event.error_code:x}"))
        for event in self.http.handle_event(event):
            if websocket := self.websockets.get(event.stream_id):
                websocket.handle(event)
                continue
            headers, body = self.responses[event.stream_id]
            match event:
                case HeadersReceived():
                    headers.update(event.headers)
                case DataReceived():
                    body.extend(event.data)
            if event.stream_ended:
                self.waiting[event.stream_id].set_result((headers[b":status"], headers, bytes(body)))

    def request(self, path, method=b"GET", body=None, fields=()):
        """Sends a request; a future of the status, the fields and the body of its response."""
        stream = self._quic.get_next_available_stream_id()
        self.responses[stream] = ({}, bytearray())
        self.waiting[stream] = asyncio.get_running_loop().create_future()
        self.http.send_headers(stream, head(method, path, fields), end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return self.waiting[stream]

    async def get(self, path):
        status, _, body = await self.request(path)
        assert status == b"200", status
        return body


def head(method, path, fields):
    return [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost:%d" % PORT),
            (b":path", path.encode()), *fields]


class WebSocket:
    """A WebSocket over a stream (RFC 9220), with wsproto."""

    def __init__(self, client, path, extensions=()):
        self.client, self.stream = client, client._quic.get_next_available_stream_id()
        self.extensions, self.parts = list(extensions), []
        # Its response, then the events of wsproto, messages as a whole, then None.
        self.received = asyncio.Queue()
        self.connection = None
        client.websockets[self.stream] = self
        fields = [(b":protocol", b"websocket"), (b"sec-websocket-version", b"13"), (b"sec-websocket-protocol", b"echo")]
        fields += [(b"sec-websocket-extensions", b"%s; %s" % (extension.name.encode(), extension.offer().encode()))
                   for extension in self.extensions]
        # Pseudo-header fields come first.
        client.http.send_headers(self.stream, sorted(head(b"CONNECT", path, fields), key=lambda field: field[0][:1] != b":"))
        client.transmit()

    def handle(self, event):
        match event:
            case HeadersReceived():
                headers = dict(event.headers)
                accepted = headers.get(b"sec-websocket-extensions", b"").decode()
                self.extensions = [extension for extension in self.extensions if accepted.startswith(extension.name)]
                for extension in self.extensions:
                    extension.finalize(accepted)
                self.connection = Connection(ConnectionType.CLIENT, extensions=self.extensions)
                self.received.put_nowait(headers)
            case DataReceived() if event.data:
                self.connection.receive_data(event.data)
                for event_of_websocket in self.connection.events():
                    self.handle_event(event_of_websocket)
        if event.stream_ended:
            self.received.put_nowait(None)

    def handle_event(self, event):
        if isinstance(event, Message):
            self.parts.append(event.data)
            if not event.message_finished:
                return
            event, self.parts = self.parts[0][:0].join(self.parts), []
        self.received.put_nowait(event)

    def send(self, event):
        self.client.http.send_data(self.stream, self.connection.send(event), end_stream=False)
        self.client.transmit()

    def end(self):
        self.client.http.send_data(self.stream, b"", end_stream=True)
        self.client.transmit()

    async def opened(self):
        headers = await self.received.get()
        assert headers[b":status"] == b"200", headers
        assert headers[b"sec-websocket-protocol"] == b"echo", headers


@contextlib.asynccontextmanager
async def connection(waits=True, tickets=None, tokens=None, **settings):
    settings = versions | settings
    if key_log := os.environ.get("SSLKEYLOGFILE"):
        settings["secrets_log_file"] = open(key_log, "a", buffering=1)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost",
                                      max_data=1 << 24, max_stream_data=1 << 23, idle_timeout=120, **settings)
    configuration.load_verify_locations(AUTHORITY)
    quic = QuicConnection(configuration=configuration,
                          session_ticket_handler=tickets.append if tickets is not None else None,
                          token_handler=tokens.append if tokens is not None else None)
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_datagram_endpoint(lambda: Client(quic), local_addr=("127.0.0.1", 0))
    client.connect(("127.0.0.1", PORT))
    if waits:
        await client.complete
    yield client
    client.close()
    await client.wait_closed()
    transport.close()


def content(length):
    """The content of the large files: lines of eight bytes with their numbers."""
    return b"".join(b"%07d\n" % number for number in range(length // 8))


async def check_handshake():
    async with connection() as client:
        assert (await client.complete).alpn_protocol == "h3"
        assert await client.get("/small.txt") == b"small\n"
        status, _, _ = await client.request("/none")
        assert status == b"404", status


async def check_retry():
    tokens = []
    async with connection(tokens=tokens) as client:
        assert client._quic._retry_source_connection_id is not None, "no Retry packet"
        assert await client.get("/small.txt") == b"small\n"
    # The token of that connection proves the address (RFC 9000 section 8.1.3).
    assert tokens, "no token"
    async with connection(token=tokens[0]) as client:
        assert client._quic._retry_source_connection_id is None, "a Retry packet in spite of the token"
        assert await client.get("/small.txt") == b"small\n"


async def ticket():
    tickets = []
    async with connection(tickets=tickets) as client:
        await client.get("/small.txt")
        while not tickets:
            await client.ping()
    return tickets[-1]


async def check_resumption():
    async with connection(session_ticket=await ticket()) as client:
        assert (await client.complete).session_resumed
        assert await client.get("/small.txt") == b"small\n"


async def check_early_data():
    async with connection(waits=False, session_ticket=await ticket()) as client:
        early = [client.request(path) for path in ("/small.txt", "/request")]
        post = client.request("/echo", b"POST", b"body")
        # Until it has the responses, the server does not know whether the handshake will be complete.
        with muted(client):
            assert (await early[0])[::2] == (b"200", b"small\n")
            status, _, body = await early[1]
            # RFC 8470 section 5.1.
            assert status == b"200" and b"\nearly-data: 1\n" in body.lower(), body
            # Too Early (section 5.2).
            assert (await post)[0] == b"425"
        assert (await client.complete).early_data_accepted
        status, _, body = await client.request("/request")
        assert status == b"200" and b"early-data" not in body.lower(), body
        assert (await client.request("/echo", b"POST", b"body"))[2] == b"body"


@contextlib.contextmanager
def muted(client):
    """Loses what the client sends."""
    transport, client._transport = client._transport, Muted()
    yield
    client._transport = transport


class Muted(asyncio.DatagramTransport):
    def sendto(self, data, address=None):
        pass


async def check_key_update():
    async with connection() as client:
        for _ in range(3):
            client.request_key_update()
            assert await client.get("/large-1.bin") == content(1 << 20)


async def check_migration():
    async with connection() as client:
        download = client.request("/large-10.bin")
        for _ in range(2):
            await client.ping()
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(lambda: Forwarder(client), local_addr=("127.0.0.1", 0))
            client._transport = transport
            client.change_connection_id()
            await client.ping()
        assert (await download)[2] == content(10 << 20)
        assert await client.get("/small.txt") == b"small\n"


class Forwarder(asyncio.DatagramProtocol):
    """Passes what comes at another port to the client."""

    def __init__(self, client):
        self.client = client

    def datagram_received(self, data, address):
        self.client.datagram_received(data, address)


async def check_compatible_version_negotiation():
    # The first packet has one version, and the server takes the other one, which the client prefers (RFC 9368).
    for begins, prefers in ((VERSION_1, VERSION_2), (VERSION_2, VERSION_1)):
        async with connection(original_version=begins, supported_versions=[prefers, begins]) as client:
            assert client._quic._version == prefers, client._quic._version
            assert client._quic._version_negotiated_compatible
            assert client._quic._remote_version_information.chosen_version == prefers
            assert await client.get("/small.txt") == b"small\n"
            assert await client.get("/large-1.bin") == content(1 << 20)
    # The client supports both, and prefers the one that it begins with.
    for begins, other in ((VERSION_1, VERSION_2), (VERSION_2, VERSION_1)):
        async with connection(original_version=begins, supported_versions=[begins, other]) as client:
            assert client._quic._version == begins, client._quic._version
            assert await client.get("/small.txt") == b"small\n"


async def check_version_negotiation():
    for version in (VERSION_1, VERSION_2):
        async with connection(supported_versions=[UNKNOWN_VERSION, version]) as client:
            assert client._quic._version == version
            assert client._quic._version_negotiated_incompatible
            assert await client.get("/small.txt") == b"small\n"


async def check_download():
    async with connection() as client:
        # More than the windows; clients that need less time for it take 100 MiB.
        assert await client.get("/large-25.bin") == content(25 << 20)


async def check_upload():
    body = content(20 << 20)
    length = (b"content-length", b"%d" % len(body))
    async with connection() as client:
        for fields in ([length], []):
            status, _, echoed = await client.request("/echo", b"POST", body, fields)
            assert (status, echoed == body) == (b"200", True), status


async def check_parallel():
    async with connection() as client:
        pending = set()
        for index in range(200):
            # The server allows a hundred at a time.
            if len(pending) == 100:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            pending.add(asyncio.ensure_future(parallel(client, index)))
        await asyncio.gather(*pending)


async def parallel(client, index):
    # Most are short: what is tested is how many there are.
    size = 1 + index * (500 if index % 10 == 9 else 10)
    body = content(8 * size)
    status, _, echoed = await client.request("/echo", b"POST", body)
    assert (status, echoed == body) == (b"200", True), (index, status)


async def check_websocket():
    async with connection() as client:
        while client.http.received_settings is None:
            await client.ping()
        assert client.http.received_settings[Setting.ENABLE_CONNECT_PROTOCOL] == 1
        await asyncio.gather(*(echoes(client, extensions) for extensions in ([], [PerMessageDeflate()])))
        # The client closes first.
        websocket = WebSocket(client, "/chat")
        await websocket.opened()
        websocket.send(CloseConnection(code=4001, reason="no more"))
        closed = await websocket.received.get()
        assert closed.code == 4001, closed
        assert await websocket.received.get() is None
        websocket.end()
        # The connection serves others.
        await echoes(client, [])


async def echoes(client, extensions):
    """Messages of all sizes come back in order; the server closes, and ends the stream."""
    websocket = WebSocket(client, "/chat", extensions)
    await websocket.opened()
    assert websocket.extensions == extensions
    messages = ["", "hello", b"\0\xff" * 40, "\u00df" * 70_000, os.urandom(3_000_000)]
    for message in messages:
        websocket.send((TextMessage if isinstance(message, str) else BytesMessage)(data=message))
    for message in messages:
        assert await websocket.received.get() == message
    websocket.send(Ping(payload=b"ping"))
    assert await websocket.received.get() == Pong(payload=b"ping")
    websocket.send(TextMessage(data="bye"))
    closed = await websocket.received.get()
    assert (closed.code, closed.reason) == (4000, "as asked"), closed
    websocket.send(closed.response())
    websocket.end()
    assert await websocket.received.get() is None


async def main():
    for name in sys.argv[3:]:
        what, _, version = name.partition("@")
        versions.clear()
        if version == "2":
            versions["supported_versions"] = [VERSION_2]
        await asyncio.wait_for(globals()[f"check_{what}"](), 240)
        print(name, flush=True)


asyncio.run(main())
