"""An HTTP/2 client that writes any frames (RFC 9113), with field lines as HPACK literals (RFC 7541)."""

import dataclasses
import select
import ssl
import struct
import time

from .http1 import PATIENCE_SECONDS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 2, 3, 4
CANCEL = 8
MOST_WINDOW = 0x7FFF_FFFF
FRAME_BYTES = 16384


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def window_update(stream, amount):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", amount))


def reset(stream, code=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def priority(stream, parent, weight):
    return frame(PRIORITY, 0, stream, struct.pack(">IB", parent, weight))


def integer(value, bits, first):
    """RFC 7541 section 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    data, value = bytearray([first | most]), value - most
    while value >= 128:
        data.append(value % 128 + 128)
        value //= 128
    return bytes(data + bytes([value]))


def _string(text):
    data = text if isinstance(text, bytes) else text.encode("latin-1")
    return integer(len(data), 7, 0) + data


def literal(name, value, first=0):
    """A literal field line; with `first` 0x40 it is indexed, as entry 62."""
    return bytes([first]) + _string(name) + _string(value)


def block(fields):
    return b"".join(literal(name, value) for name, value in fields)


def request_fields(path, method="GET", fields=(), authority="localhost", scheme="https"):
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path), *fields]


def headers(stream, fields, end=True):
    data = fields if isinstance(fields, bytes) else block(fields)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, data)


# The codes of digits (RFC 7541 appendix B), the only ones that a status needs.
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4",
          "011011": "5", "011100": "6", "011101": "7", "011110": "8", "011111": "9"}
STATUSES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}


def status_of(data):
    """The status in a field block, where it stands first. The table is of size 0, so nothing is indexed beyond the static one."""
    while data and data[0] & 0xE0 == 0x20:  # The size of the table is announced.
        skip = 1
        if data[0] & 0x1F == 0x1F:
            while data[skip] & 0x80:
                skip += 1
            skip += 1
        data = data[skip:]
    if not data:
        return None
    if data[0] & 0x80:
        return STATUSES.get(data[0] & 0x7F)
    index = data[0] & (0x3F if data[0] & 0x40 else 0x0F)
    if index not in STATUSES or len(data) < 2:
        return None
    value = data[2:2 + (data[1] & 0x7F)]
    if not data[1] & 0x80:
        return int(value)
    bits, digits, code = "".join(f"{byte:08b}" for byte in value), "", ""
    for bit in bits:
        code += bit
        if code in DIGITS:
            digits, code = digits + DIGITS[code], ""
    return int(digits[:3])


@dataclasses.dataclass
class Stream:
    status: int | None = None
    # Statuses before the final one.
    interim: list = dataclasses.field(default_factory=list)
    body: bytearray = dataclasses.field(default_factory=bytearray)
    body_bytes: int = 0
    ended: bool = False
    reset: int | None = None
    # What was granted beyond the first window, less what was sent.
    granted: int = 0

    @property
    def text(self):
        return self.body.decode("latin-1")

    def __contains__(self, text):
        return text in self.text


class Peer:
    """One connection. Acknowledges what it must and keeps the server's windows open, unless its arguments say otherwise."""

    def __init__(self, connection, pairs=(), *, acknowledges=True, opens_windows=True, keeps_bodies=True):
        self.socket = connection.socket
        self.socket.setblocking(False)
        self.acknowledges, self.opens_windows, self.keeps_bodies = acknowledges, opens_windows, keeps_bodies
        self.outgoing, self.incoming = bytearray(), bytearray()
        self.streams = {}
        self.goaway = None
        self.closed = False
        self.settled = self.last_settled = 0
        # What the server takes: on the connection, and on each new stream.
        self.window, self.stream_window = 65535, 65535
        self.next_stream = 1
        self.blocked_since = None
        self.send(PREFACE + settings((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), *pairs))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @property
    def ended(self):
        return self.closed or self.goaway is not None

    def send(self, data):
        self.outgoing += data
        self.pump(0)

    def pump(self, seconds):
        """Writes and reads what is possible, waiting so long for something to happen."""
        if self.closed:
            return
        pending = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
        writable = [self.socket] if self.outgoing else []
        try:
            select.select([self.socket], writable, [], 0 if pending else seconds)
        except (OSError, ValueError):
            self.closed = True
            return
        self._read()
        self._write()

    def _write(self):
        while self.outgoing and not self.closed:
            try:
                sent = self.socket.send(self.outgoing[:1 << 16])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                self.blocked_since = self.blocked_since or time.monotonic()
                return
            except OSError:
                # What the server said before it closed may still be there.
                self.outgoing.clear()
                self._read()
                self.closed = True
                return
            self.blocked_since = None
            del self.outgoing[:sent]

    def _read(self):
        while not self.closed:
            try:
                data = self.socket.recv(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
            self.incoming += data
        at = 0
        while len(self.incoming) - at >= 9:
            length = int.from_bytes(self.incoming[at:at + 3], "big")
            if len(self.incoming) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self.incoming, at + 3)
            self._take(kind, flags, stream & MOST_WINDOW, bytes(self.incoming[at + 9:at + 9 + length]))
            at += 9 + length
        del self.incoming[:at]

    def _take(self, kind, flags, number, payload):
        stream = self.streams.setdefault(number, Stream()) if number else None
        if kind == SETTINGS and not flags & ACK:
            for key, value in struct.iter_unpack(">HI", payload):
                if key == INITIAL_WINDOW_SIZE:
                    self.stream_window = value
            if self.acknowledges:
                self.outgoing += frame(SETTINGS, ACK, 0)
        elif kind == WINDOW_UPDATE:
            amount = struct.unpack(">I", payload)[0]
            if stream:
                stream.granted += amount
            else:
                self.window += amount
        elif kind in (PING, SETTINGS) and flags & ACK:
            if payload.startswith(b"sett"):
                self.last_settled = struct.unpack_from(">I", payload, 4)[0]
        elif kind == PING and self.acknowledges:
            self.outgoing += frame(PING, ACK, 0, payload)
        elif kind == GOAWAY:
            code = struct.unpack_from(">I", payload, 4)[0]
            # A graceful end is none.
            self.goaway = code if code or self.goaway else self.goaway
        elif kind == RST_STREAM:
            stream.reset = struct.unpack(">I", payload)[0]
            stream.ended = True
        elif kind == HEADERS:
            status = status_of(payload[5:] if flags & 0x20 else payload)
            if stream.status is None and status and status < 200:
                stream.interim.append(status)
            else:
                stream.status = stream.status or status
            stream.ended = stream.ended or bool(flags & END_STREAM)
        elif kind == DATA:
            if self.keeps_bodies:
                stream.body += payload
            stream.body_bytes += len(payload)
            stream.ended = stream.ended or bool(flags & END_STREAM)
            if payload and self.opens_windows:
                self.outgoing += window_update(0, len(payload)) + window_update(number, len(payload))

    def wait(self, condition, seconds=PATIENCE_SECONDS):
        """Whether a condition came true before the connection or the time ended."""
        give_up = time.monotonic() + seconds
        while not condition():
            if self.closed or time.monotonic() > give_up:
                return condition()
            self.pump(0.05)
        return True

    def open(self, fields, end=True, alone=True):
        """Opens a stream with a head; its number. A head that is not sent alone leaves with what is sent next."""
        number = self.next_stream
        self.next_stream += 2
        self.streams[number] = Stream()
        self.outgoing += headers(number, fields, end)
        if alone:
            self.pump(0)
        return number

    def respond(self, number, seconds=PATIENCE_SECONDS):
        """What a stream came to."""
        stream = self.streams[number]
        self.wait(lambda: stream.ended or self.ended, seconds)
        return stream

    def fetch(self, path, fields=(), method="GET", body=None, authority="localhost"):
        # A response may begin before a body that is sent later: with the head, its first bytes are seen first.
        number = self.open(request_fields(path, method, fields, authority), end=body is None, alone=body is None)
        if body is not None:
            self.send_body(number, body)
        return self.respond(number)

    def send_body(self, number, body, end=True):
        """Sends as the windows of the server allow; whether it took everything."""
        stream, at = self.streams[number], 0
        while True:
            room = min(FRAME_BYTES, self.window, self.stream_window + stream.granted)
            if at < len(body) and room <= 0:
                if not self.wait(lambda: stream.ended or min(self.window, self.stream_window + stream.granted) > 0):
                    return False
                if stream.ended or self.ended:
                    return False
                continue
            piece = body[at:at + max(room, 0)]
            at += len(piece)
            self.window -= len(piece)
            stream.granted -= len(piece)
            last = at == len(body)
            self.send(frame(DATA, END_STREAM if end and last else 0, number, piece))
            if last:
                return True

    def settle(self):
        """Waits until the server has taken everything that was sent so far, or ended the connection."""
        # The acknowledgement of settings, or of an earlier PING, may come in between.
        self.settled += 1
        expected = self.settled
        self.send(frame(PING, 0, 0, b"sett" + struct.pack(">I", expected)))
        return self.wait(lambda: self.last_settled == expected or self.ended)

    def flood(self, turns, make, seconds=20):
        """Sends `make(turn)` again and again; the number of turns until the server ended it, or none if it never did.

        A server that takes nothing any more has stopped the flood, too."""
        give_up = time.monotonic() + seconds
        for turn in range(turns):
            self.send(make(turn))
            while len(self.outgoing) > 1 << 18 and not self.ended:
                self.pump(0.05)
                if self.blocked_since and time.monotonic() - self.blocked_since > 3:
                    return turn
                if time.monotonic() > give_up:
                    return None
            if self.ended:
                return turn
            if time.monotonic() > give_up:
                return None
        self.settle()
        return turns if self.ended else None


def client_context(protocols):
    """TLS of a client that believes every certificate: they were made for this run."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    return context
