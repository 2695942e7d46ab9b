"""A client of HTTP/1.1 that sends the bytes it is given, and reads responses strictly (RFC 9112)."""

import dataclasses
import re
import socket
import time

# How long a server may be silent before an attack takes that for its final word.
PATIENCE_SECONDS = 10


@dataclasses.dataclass
class Response:
    status: int
    fields: list
    body: bytes = b""
    # Whether the body ended as its framing says.
    whole: bool = False

    def field(self, name):
        """The first value of a field."""
        return next((value for key, value in self.fields if key.lower() == name), None)

    @property
    def text(self):
        return self.body.decode("latin-1")

    def __contains__(self, text):
        """Whether a text stands anywhere in the response."""
        return text in self.text or any(text in value or text in name for name, value in self.fields)


class Malformed(Exception):
    """The response is not HTTP/1.1."""


class Connection:
    """A connection that never waits for ever."""

    def __init__(self, address, *, source=None, tls=None, name="localhost", timeout=PATIENCE_SECONDS, receive_bytes=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source:
            self.socket.bind((source, 0))
        try:
            self.socket.connect(address)
            if tls:
                self.socket = tls.wrap_socket(self.socket, server_hostname=name)
        except BaseException:
            self.socket.close()
            raise
        self.buffer = b""
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Whether the server still took it."""
        try:
            self.socket.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
            return True
        except OSError:
            return False

    def receive(self):
        """Reads once; false at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        self.buffer += data
        self.ended = not data
        return bool(data)

    def read(self, method="GET", interim=False):
        """The next response, or none if the connection ended before it began. Interim ones are passed over."""
        while True:
            while b"\r\n\r\n" not in self.buffer:
                if not self.receive():
                    if self.buffer.strip():
                        raise Malformed(f"the end within a head: {self.buffer[:80]!r}")
                    return None
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            response = parse_head(head)
            if response.status >= 200 or response.status == 101 or interim:
                break
        self._read_body(response, method)
        return response

    def read_all(self, quiet=0.7):
        """All that comes until the server closes, or says nothing for so long."""
        before, give_up = self.socket.gettimeout(), time.monotonic() + PATIENCE_SECONDS
        self.socket.settimeout(quiet)
        try:
            while time.monotonic() < give_up and self.receive():
                pass
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(before)
        data, self.buffer = self.buffer, b""
        return data

    def _read_body(self, response, method):
        length = response.field("content-length")
        if method == "HEAD" or response.status in (101, 204, 304):
            response.whole = True
        elif (response.field("transfer-encoding") or "").lower() == "chunked":
            response.whole = self._read_chunks(response)
        elif length is not None:
            if not re.fullmatch("[0-9]+", length):
                raise Malformed(f"Content-Length: {length!r}")
            response.body = self._take(int(length))
            response.whole = len(response.body) == int(length)
        else:
            while self.receive():
                pass
            response.body, self.buffer, response.whole = self.buffer, b"", True

    def _take(self, length):
        while len(self.buffer) < length and self.receive():
            pass
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data

    def _line(self):
        while b"\r\n" not in self.buffer:
            if not self.receive():
                return None
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _read_chunks(self, response):
        while (line := self._line()) is not None:
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise Malformed(f"chunk {line!r}") from None
            if size == 0:
                while line := self._line():
                    pass
                return line is not None
            data = self._take(size)
            response.body += data
            if len(data) < size or self._line() != b"":
                return False
        return False


def parse_head(head):
    status, *lines = head.decode("latin-1").split("\r\n")
    if not re.fullmatch(r"HTTP/1\.[01] [1-9][0-9][0-9]( .*)?", status, re.S):
        raise Malformed(f"status line {status[:80]!r}")
    fields = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise Malformed(f"field line {line[:80]!r}")
        fields.append((name, value.strip()))
    return Response(int(status[9:12]), fields)


def statuses(data):
    """The status codes in all that a server sent, wherever a status line seems to begin."""
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]", data)]


def request(path, fields="", method="GET", host="localhost", body=b""):
    """A request as every client would send it; `fields` are lines with their ends."""
    if isinstance(body, str):
        body = body.encode()
    length = f"Content-Length: {len(body)}\r\n" if body or method in ("POST", "PUT") else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length}{fields}\r\n".encode("latin-1") + body
