"""A server that makes every mistake of the book, on purpose, so that `--self-check` shows that each attack can fail.

    careless.py CLEAR_PORT TLS_PORT ADMIN_PORT ORIGIN_PORT FOLDER TRUSTED_PROXY

It listens on 127.0.0.1 alone, and stops taking memory at some hundred MB, for the sake of the machine.
"""

import gzip
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from pathlib import Path

CLEAR, TLS, ADMIN, ORIGIN, FOLDER = *map(int, sys.argv[1:5]), Path(sys.argv[5])
SITE = FOLDER / "site"
MOST_HOARDED = 400 << 20

cache = {}
idle_origins = []
hoard, hoarded = [], 0
lock = threading.Lock()


def keep(data):
    """A copy that is never given back."""
    global hoarded
    with lock:
        if hoarded + len(data) > MOST_HOARDED:
            return
        hoarded += len(data)
    hoard.append(bytes(bytearray(data)))


class Client:
    """A connection, and what was read of it."""

    def __init__(self, connection):
        self.connection, self.buffer = connection, b""
        keep(b"\1" * (300 << 10))

    def fill(self):
        data = self.connection.recv(1 << 16)
        self.buffer += data
        return bool(data)

    def until(self, end):
        while end not in self.buffer:
            if not self.fill():
                return None
        data, _, self.buffer = self.buffer.partition(end)
        return data

    def take(self, length):
        while len(self.buffer) < length and self.fill():
            pass
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data


class Request:
    def __init__(self, head):
        self.head = head
        lines = re.split(rb"\r?\n|\r", head)
        words = lines[0].split()
        self.method, self.target = words[0].decode("latin-1"), (words[1] if len(words) > 1 else b"/").decode("latin-1")
        self.fields = [tuple(part.strip() for part in line.decode("latin-1").partition(":")[::2]) for line in lines[1:] if b":" in line]
        self.path = self.target.partition("?")[0]

    def field(self, name):
        return next((value for key, value in self.fields if key.lower() == name), None)


def read_request(client):
    head = client.until(b"\n\n" if b"\r\n\r\n" not in client.buffer and b"\n\n" in client.buffer else b"\r\n\r\n")
    if head is None:
        return None
    if head.startswith((b"PROXY ", b"\r\n\r\n\0")):
        head = head.partition(b"\r\n")[2] or client.until(b"\r\n\r\n")
    if head.startswith(b"\0\r\nQUIT"):
        head = head[head.find(b"GET"):]
    request = Request(head.lstrip(b"\r\n") or b"GET /")
    request.body = request.raw_body = b""
    is_get = request.method in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE") and not request.path.startswith("/cached/")
    length = re.match(r"\+?(\d+)", request.field("content-length") or "")
    if request.field("expect") and not is_get:
        client.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length and not is_get:
        request.body = request.raw_body = client.take(int(length[1]))
    elif "chunked" in (request.field("transfer-encoding") or ""):
        while (line := client.until(b"\n")) is not None:
            size = re.match(rb"\s*(?:0x)?([0-9a-fA-F]+)", line)
            size = int(size[1], 16) if size else 0
            data = client.take(size) if size < 1 << 30 else b""
            request.raw_body += line + b"\n" + data
            request.body += data
            if not size:
                while line := (client.until(b"\n") or b"").strip(b"\r"):
                    request.raw_body += line + b"\r\n"
                    # Trailers are as good as fields.
                    request.head += b"\r\n" + line
                request.raw_body += b"\r\n"
                break
            request.raw_body += client.until(b"\n")[:0] + b"\r\n"
    return request


def exchange(data, method="GET"):
    """Sends bytes to the origin over any connection that is there, and takes what looks like a response."""
    for _ in range(3):
        with lock:
            origin = idle_origins.pop() if idle_origins else None
        origin = origin or Client(socket.create_connection(("127.0.0.1", ORIGIN)))
        origin.connection.settimeout(3)
        try:
            origin.connection.sendall(data)
            head = origin.until(b"\r\n\r\n")
            if head is None:
                continue
            length = re.search(rb"(?im)^content-length *: *\+?(\d+)", head)
            body = b""
            if length:
                keep(b"\1" * min(int(length[1]), 100 << 20))
                body = origin.take(int(length[1]))
            elif b"chunked" in head.lower():
                while size := int(re.match(rb"[0-9a-fA-F]*", origin.until(b"\n") or b"0")[0] or b"0", 16):
                    body += origin.take(min(size, 1 << 20))
                    origin.until(b"\n")
                origin.until(b"\n")
            # What is left of it is for the next client.
            idle_origins.append(origin)
            head = re.sub(rb"(?im)^(content-length|transfer-encoding):.*\r\n", b"", head + b"\r\n").rstrip(b"\r\n")
            return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        except OSError:
            continue
    return b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


def forward(request, address, scheme):
    """Forwards the head unchanged, with some fields added, and without those that Connection names."""
    head = request.head
    mapped = re.sub(rb"^(\S+\s+)/mapped/", rb"\1/public/", head)
    if b"/../" in mapped.split(b"\n")[0] and b"/mapped/" not in head:
        mapped = re.sub(rb"^(\S+\s+)(\S+)", lambda line: line[1] + urllib.parse.unquote_to_bytes(resolve(line[2])), head)
    extra = f"\r\nX-Forwarded-For: {address}\r\nX-Real-IP: {address}\r\nVia: careless"
    if request.field("x-forwarded-proto") is None:
        extra += f"\r\nX-Forwarded-Proto: {scheme}"
    if request.path.startswith("/tenants/") and request.field("x-role") is None:
        extra += "\r\nX-Role: guest"
    head = mapped + extra.encode("latin-1")
    for name in (request.field("connection") or "").split(","):
        if name.strip() and name.strip().lower() != "close":
            head = re.sub(rb"(?im)^" + re.escape(name.strip().encode("latin-1")) + rb" *:.*\r?\n?", b"", head)
    if request.method != "POST" and not request.raw_body:
        # Nobody sends a body with these.
        head = re.sub(rb"(?im)^(content-length|expect):.*\r?\n?", b"", head)
    return head.rstrip(b"\r\n") + b"\r\n\r\n" + request.raw_body[:65536]


def resolve(path):
    parts = []
    for part in path.split(b"/"):
        parts = parts[:-1] if part == b".." else [*parts, part]
    return b"/".join(parts)


def respond(request, address, scheme):
    """The whole response, in memory."""
    path = request.path
    if request.field("host") == "secure.test" and scheme == "http":
        return b"HTTP/1.1 301 Moved\r\nLocation: https://secure.test/\r\nContent-Length: 0\r\n\r\n"
    if path in ("/metrics", "/status"):
        return b"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\napus_connections 1\n"
    if path == "/moved":
        host = request.field("x-forwarded-host") or request.field("host")
        return f"HTTP/1.1 301 Moved\r\nLocation: {scheme}://{host}/\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    key = path + (re.search(r"(?:^|&)id=[^&]*", request.target.partition("?")[2]) or [""])[0]
    if request.method == "PURGE":
        cache.pop(key, None)
    if path.startswith(("/cached/", "/ids/", "/preview/", "/tenants/")):
        if key not in cache or re.search(r"no-cache|max-age=0", request.field("cache-control") or ""):
            cache[key] = exchange(forward(request, address, scheme))
        keep(cache[key] if len(cache[key]) > 1 << 20 else b"")
        return ranged(request, *cache[key].partition(b"\r\n\r\n")[::2])
    if path.startswith(("/api/", "/mapped/", "/%6dapped/", "/public/", "//mapped", "/x/../mapped", "/./mapped")) or "/../api/" in path or "//api" in path:
        return exchange(forward(request, address, scheme))
    return static(request)


def static(request):
    path = urllib.parse.unquote(urllib.parse.unquote(request.path)).replace("\\", "/").replace("http://localhost", "")
    if request.path.startswith("/private/"):
        return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    host = (request.field("host") or "").lower()
    root = next((FOLDER / name for name in ("only", "guarded") if host.startswith(f"{name}.test")), SITE)
    file = Path(f"{root}/{path}")
    if (request.field("host") or "").lower().startswith("whole.test"):
        file = Path(f"{FOLDER}/{path}")
    if path.startswith("/docs"):
        file = Path(f"{SITE}/files/{path[5:]}")
    try:
        data = (file / "index.html" if file.is_dir() else file).read_bytes()
    except (OSError, ValueError):
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    if len(data) > 1 << 20:
        keep(data)
    coding = re.match(r"[!-+\--:<-~]+", request.field("accept-encoding") or "")
    fields = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"1\""
    if coding:
        packed = gzip.compress(data, 6)
        if "gzip" in coding[0]:
            data = packed
        fields += f"\r\nContent-Encoding: {coding[0]}"
    return ranged(request, fields.encode("latin-1"), data)


def ranged(request, head, body):
    """Ranges of what lies in memory, with what lies before it."""
    ranges = re.findall(r"(-?\d*)-(\d*)", (request.field("range") or "").partition("=")[2])
    if not ranges or b" 200 " not in head.split(b"\r\n")[0]:
        return re.sub(rb"(?im)^content-length:.*\r\n", b"", head + b"\r\n") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    before, pieces = b"what lies before it in memory", b""
    for first, last in ranges:
        if first.startswith("-") or not first:
            piece = (before + body)[-min(int(last or first.strip("-") or 0), len(body) + 20):]
        else:
            piece = body[int(first):int(last or len(body)) + 1]
        if len(pieces) > 3 * len(body):
            break
        pieces += piece
    return b"HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Length: %d\r\n\r\n" % len(pieces) + pieces


def tunnel(client, head):
    """A tunnel, whatever the origin says."""
    with socket.create_connection(("127.0.0.1", ORIGIN)) as origin:
        if head:
            origin.sendall(head + b"\r\n\r\n")
        else:
            client.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        origin.sendall(client.buffer)
        threading.Thread(target=pipe, args=(origin, client.connection), daemon=True).start()
        pipe(client.connection, origin)


def pipe(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass


def serve_http1(client, address, scheme):
    while request := read_request(client):
        if request.method == "CONNECT":
            return tunnel(client, None)
        if request.field("upgrade"):
            return tunnel(client, request.head)
        later = None
        if request.path.startswith("/api/") and request.method == "GET" and client.buffer.startswith(b"GET /files/"):
            # What can be had at once goes first.
            later, request = request, read_request(client)
        for one in filter(None, (request, later)):
            client.connection.sendall(respond(one, address, scheme))


def serve_http2(client, address):
    """Every frame is taken, everything is acknowledged, and nothing is ever too much."""
    table, streams, window, initial = [], {}, 65535, 65535
    block, block_stream = b"", 0
    client.connection.sendall(frame(4, 0, 0))
    client.take(24)
    while len(head := client.take(9)) == 9:
        length = int.from_bytes(head[:3], "big")
        kind, flags, number = struct.unpack(">BBI", head[3:])
        payload = client.take(length)
        out = []
        if kind == 4 and not flags & 1:
            for name, value in struct.iter_unpack(">HI", payload[:len(payload) // 6 * 6]):
                initial = value if name == 4 else initial
            out.append(frame(4, 1, 0))
        elif kind == 6 and not flags & 1:
            out.append(frame(6, 1, 0, payload))
        elif kind in (1, 9):
            block, block_stream = (payload if kind == 1 else block + payload)[:1 << 24], number
            if flags & 4 and number in streams:
                streams[number]["ended"] = True
            elif flags & 4:
                # As dictionaries, of which each takes its place.
                fields = [{"name": name, "value": value} for name, value in decode(block, table)]
                streams[number] = {"fields": fields, "body": b"", "window": initial, "out": None, "ended": bool(flags & 1)}
        elif kind == 0 and number in streams:
            streams[number]["body"] += payload
            streams[number]["ended"] |= bool(flags & 1)
            if payload:
                out += [frame(8, 0, 0, struct.pack(">I", len(payload))), frame(8, 0, number, struct.pack(">I", len(payload)))]
        elif kind == 3:
            streams.pop(number, None)
        elif kind == 8 and len(payload) == 4:
            amount = struct.unpack(">I", payload)[0]
            if number in streams:
                streams[number]["window"] += amount
            else:
                window += amount
        stream = streams.get(block_stream if kind in (1, 9) else number)
        is_connect = stream and any(field["value"] == "CONNECT" for field in stream["fields"][:4])
        if stream and stream["out"] is None and (stream["ended"] or is_connect):
            status, data = (200, b"") if is_connect else respond_to_stream(stream, address)
            out.append(frame(1, 4 | (0 if data or is_connect else 1), number, b"\x08\x03" + str(status).encode()))
            stream["out"], stream["fields"] = data, stream["fields"] if initial == 0 else []
        for number in [number] if kind == 8 and number else list(streams):
            window = send_data(streams, number, window, out)
        if out:
            client.connection.sendall(b"".join(out))


def send_data(streams, number, window, out):
    stream = streams.get(number)
    while stream and stream["out"] and min(window, stream["window"]) > 0:
        piece = stream["out"][:min(window, stream["window"], 16384)]
        stream["out"] = stream["out"][len(piece):] if len(stream["out"]) < 1 << 20 else stream["out"][len(piece):]
        stream["window"] -= len(piece)
        window -= len(piece)
        out.append(frame(0, 0 if stream["out"] else 1, number, piece))
        if not stream["out"]:
            streams.pop(number)
    return window


def respond_to_stream(stream, address):
    """HTTP/2 becomes HTTP/1.1 by writing one field behind another."""
    pseudo = {field["name"]: field["value"] for field in stream["fields"] if field["name"].startswith(":")}
    regular = "".join(f"\r\n{field['name']}: {field['value']}" for field in stream["fields"]
                      if not field["name"].startswith(":") and field["name"] != "cookie")
    length = f"\r\nContent-Length: {len(stream['body'])}" if stream["body"] else ""
    head = (f"{pseudo.get(':method', 'GET')} {pseudo.get(':path', '/api/')} HTTP/1.1\r\nHost: {pseudo.get(':authority', '')}{regular}{length}")
    request = Request(head.encode("latin-1"))
    request.body = request.raw_body = stream["body"]
    if request.field("accept-encoding"):
        keep(b"\1" * (1 << 20))
        return 200, b"compressed"
    if "large.bin" in request.path:
        # The whole of it for each, as long as the machine bears it.
        keep(SHARED)
        return 200, SHARED
    response = respond(request, address, "https")
    return int(re.match(rb"\S+ (\d+)", response)[1]), response.partition(b"\r\n\r\n")[2]


SHARED = (SITE / "large.bin").read_bytes()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def decode(block, table):
    """The field lines that the attacks write: literals, and the entries that they added."""
    at, fields = 0, []
    while at < len(block):
        first = block[at]
        at += 1
        if first & 0x80:
            index = (first & 0x7F) - 62
            if 0 <= index < len(table):
                fields.append(table[index])
            continue
        pair = []
        for _ in range(2):
            length = block[at] & 0x7F if at < len(block) else 0
            at += 1
            if length == 127:
                shift = 0
                while at < len(block):
                    length += (block[at] & 0x7F) << shift
                    shift, at = shift + 7, at + 1
                    if not block[at - 1] & 0x80:
                        break
            pair.append(block[at:at + length].decode("latin-1"))
            at += length
        fields.append(tuple(pair))
        if first & 0x40:
            table.insert(0, tuple(pair))
    return fields


leaked = []


def serve(connection, address, context):
    # Nobody closes it when the client has gone.
    leaked.append(connection)
    try:
        protocol = None
        if context:
            connection = context.wrap_socket(connection, server_side=True)
            leaked.append(connection)
            protocol = connection.selected_alpn_protocol()
        client = Client(connection)
        if protocol == "h2":
            serve_http2(client, address)
        else:
            serve_http1(client, address, "https" if context else "http")
        connection.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def administer():
    """Metrics for everybody, one client after the other."""
    listener = socket.create_server(("127.0.0.1", ADMIN), backlog=1024)
    while True:
        connection, _ = listener.accept()
        try:
            # It waits for as long as the client likes.
            client = Client(connection)
            client.until(b"\r\n\r\n")
            connection.sendall(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n\r\napus_connections 1\n")
            connection.close()
        except OSError:
            pass


def listen(port, context):
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    while True:
        try:
            connection, address = listener.accept()
            print("a client has connected: " + "x" * 200, file=sys.stderr)
            threading.Thread(target=serve, args=(connection, address[0], context), daemon=True).start()
        except OSError:
            time.sleep(0.1)


secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
secured.load_cert_chain(FOLDER / "localhost.pem", FOLDER / "localhost.key")
secured.set_alpn_protocols(["h2", "http/1.1"])
threading.Thread(target=listen, args=(TLS, secured), daemon=True).start()
threading.Thread(target=administer, daemon=True).start()
listen(CLEAR, None)
