"""The origin behind the servers: it reads strictly, remembers every request, and responds with what it received.

What it reads is also the oracle: a request that could be read in two ways must never reach it.
"""

import dataclasses
import hashlib
import json
import re
import socket
import threading

MOST_HEAD_BYTES = 1 << 20


@dataclasses.dataclass
class Request:
    method: str
    target: str
    fields: list
    head: bytes
    body: bytes = b""

    def field(self, name):
        """All values of a field, joined as RFC 9110 section 5.3 has it."""
        values = [value for key, value in self.fields if key.lower() == name]
        return ", ".join(values) if values else None

    def __contains__(self, text):
        return text.encode() in self.head + self.body


class Ambiguous(Exception):
    """Two origins could read this request differently."""


class Origin:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests = []
        # Why, and the bytes: what no origin should be sent.
        self.ambiguous = []
        # What came over a connection after its upgrade, by the target of the request.
        self.tunnelled = {}
        self.scripts = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def script(self, path, response):
        """Has the origin respond to a path with these bytes, or with what a function of the request and the socket
        returns: bytes, or none if it is to close."""
        self.scripts[path] = response

    def seen(self, text):
        """The requests that a text stands in."""
        with self.lock:
            return [request for request in self.requests if text in request]

    def complaints(self, text):
        """Why requests that a text stands in are ambiguous."""
        with self.lock:
            return [why for why, data in self.ambiguous if text.encode() in data]

    def forget(self):
        """Forgets what was received, so that long runs stay small."""
        with self.lock:
            self.requests.clear()
            self.ambiguous.clear()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.settimeout(60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(connection)
        with connection:
            try:
                while request := reader.request():
                    with self.lock:
                        self.requests.append(request)
                    response = self._respond(request, connection, reader)
                    if response is None:
                        return
                    connection.sendall(response)
            except Ambiguous as why:
                with self.lock:
                    self.ambiguous.append((str(why), reader.taken))
            except OSError:
                pass

    def _respond(self, request, connection, reader):
        script = self.scripts.get(request.target.partition("?")[0])
        if isinstance(script, bytes):
            return script
        if script:
            return script(request, connection)
        if request.field("upgrade"):
            return self._tunnel(request, connection, reader)
        return respond(request)

    def _tunnel(self, request, connection, reader):
        """Accepts whatever protocol is named, as careless origins do."""
        protocol = request.field("upgrade").partition(",")[0]
        key = (request.field("sec-websocket-key") or "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        connection.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
            f"Sec-WebSocket-Accept: {accept_of(key)}\r\n\r\n".encode())
        data = reader.buffer
        while data:
            self._note_tunnelled(request.target, data)
            data = connection.recv(1 << 16)
        while data := connection.recv(1 << 16):
            self._note_tunnelled(request.target, data)

    def _note_tunnelled(self, target, data):
        with self.lock:
            self.tunnelled[target] = self.tunnelled.get(target, b"") + data


def accept_of(key):
    import base64
    return base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()


def respond(request, fields="", status="200 OK", body=None):
    """A response that says all of the request."""
    if body is None:
        body = json.dumps({
            "method": request.method, "target": request.target, "fields": request.fields,
            "length": len(request.body), "sha256": hashlib.sha256(request.body).hexdigest(),
            "body": request.body[:2000].decode("latin-1"),
        }).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode("latin-1")
    return head if request.method == "HEAD" else head + body


def cacheable(fields=""):
    """A script: says all of the request, and that everybody may see it for ten minutes."""
    return lambda request, _: respond(request, f"Cache-Control: max-age=600\r\n{fields}")


class Reader:
    """Requests from a connection, or [`Ambiguous`]."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""
        # The bytes of the request that is being read.
        self.taken = b""

    def request(self):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > MOST_HEAD_BYTES:
                return None
            data = self.connection.recv(1 << 16)
            if not data:
                if self.buffer:
                    self.taken = self.buffer
                    raise Ambiguous("the connection ended within a head")
                return None
            self.buffer += data
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        self.taken = head
        request = parse(head)
        request.body = self._body(request)
        return request

    def _body(self, request):
        if request.field("transfer-encoding") is not None:
            return self._chunks()
        length = int(request.field("content-length") or 0)
        return self._take(length)

    def _take(self, length):
        while len(self.buffer) < length:
            data = self.connection.recv(1 << 16)
            if not data:
                raise OSError("the body broke off")
            self.buffer += data
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        self.taken += data[:4096]
        return data

    def _line(self):
        while b"\r\n" not in self.buffer:
            data = self.connection.recv(1 << 16)
            if not data:
                raise OSError("the body broke off")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        self.taken += line
        return line

    def _chunks(self):
        body = bytearray()
        while True:
            line = self._line()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", line):
                raise Ambiguous(f"chunk {line!r}")
            if int(line, 16) == 0:
                while line := self._line():
                    if line.partition(b":")[0].lower() in (b"content-length", b"transfer-encoding", b"host"):
                        raise Ambiguous(f"trailer {line!r}")
                return bytes(body)
            body += self._take(int(line, 16))
            if self._line():
                raise Ambiguous("a chunk longer than it says")


TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def parse(head):
    """A head, read as strictly as anybody could."""
    if re.search(rb"\r(?!\n)|(?<!\r)\n|\0", head):
        raise Ambiguous("CR, LF or NUL within a head")
    line, *lines = head.split(b"\r\n")
    if not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]", line):
        raise Ambiguous(f"request line {line[:80]!r}")
    fields = []
    for text in lines:
        name, colon, value = text.partition(b":")
        if not colon or not TOKEN.fullmatch(name):
            raise Ambiguous(f"field line {text[:80]!r}")
        fields.append((name.decode("latin-1"), value.strip(b" \t").decode("latin-1")))
    method, target, _ = line.decode("latin-1").split(" ")
    request = Request(method, target, fields, head)
    lengths = [value for name, value in fields if name.lower() == "content-length"]
    codings = [value for name, value in fields if name.lower() == "transfer-encoding"]
    hosts = [value for name, value in fields if name.lower() == "host"]
    if lengths and codings:
        raise Ambiguous("Content-Length with Transfer-Encoding")
    if len(lengths) > 1 or lengths and not re.fullmatch("[0-9]{1,18}", lengths[0]):
        raise Ambiguous(f"Content-Length: {lengths}")
    if codings and codings != ["chunked"]:
        raise Ambiguous(f"Transfer-Encoding: {codings}")
    if len(hosts) > 1:
        raise Ambiguous(f"Host: {hosts}")
    return request
