"""Clients of an embedded server that talk over WebSocket, upload, wait for responses of other threads, and break off halfway."""

import os
import random
import socket
import struct
import threading
import time

UPLOAD_BYTES = 1_000_000
HANDSHAKE = ("GET /socket HTTP/1.1\r\nHost: bench.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode()
# Of what they begin, they break off so much.
BROKEN_OFF = 0.3


class Visitors:
    """Threads that visit a server until `seconds` are over."""

    def __init__(self, port, seconds):
        self.port = port
        self.end = time.monotonic() + seconds
        self.counts = {visit.__name__.strip("_"): 0 for visit in self.visits()}
        self.broken_off, self.faults, self.lock = 0, [], threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(visit, number)) for visit in self.visits() for number in range(2)]

    def visits(self):
        return self._websocket, self._upload, self._deferred, self._download

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join()

    def _run(self, visit, seed):
        chance = random.Random(f"{visit.__name__} {seed}")
        while time.monotonic() < self.end:
            breaks_off = chance.random() < BROKEN_OFF
            try:
                with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
                    visit(connection, chance, breaks_off)
            except (OSError, ValueError) as error:
                with self.lock:
                    self.faults.append(f"{visit.__name__.strip('_')}: {error}")
                time.sleep(0.1)
                continue
            with self.lock:
                self.counts[visit.__name__.strip("_")] += 1
                self.broken_off += breaks_off

    def _websocket(self, connection, chance, breaks_off):
        """Messages that come back, and a close; or none."""
        reader = connection.makefile("rb")
        connection.sendall(HANDSHAKE)
        expect(_head(reader)[0] == 101, "a WebSocket should open")
        for _ in range(chance.randrange(1, 20)):
            message = chance.randbytes(chance.randrange(1, 60_000))
            connection.sendall(_frame(2, message))
            expect(_read_frame(reader) == (2, message), "a message should come back")
        if breaks_off:
            connection.sendall(_frame(2, b"half a message" * 1000)[:1000])
            return
        connection.sendall(_frame(8, struct.pack("!H", 1000)))
        expect(_read_frame(reader)[0] == 8, "a close should be responded to")

    def _upload(self, connection, chance, breaks_off):
        """A body whose bytes the server counts."""
        size = chance.randrange(1, UPLOAD_BYTES)
        connection.sendall(f"POST /upload HTTP/1.1\r\nHost: bench.test\r\nContent-Length: {size}\r\n\r\n".encode())
        connection.sendall(os.urandom(size // 2 if breaks_off else size))
        if not breaks_off:
            expect(_response(connection.makefile("rb")) == (200, str(size).encode()), "an upload should be counted")

    def _deferred(self, connection, chance, breaks_off):
        """A response that another thread of the server completes."""
        connection.sendall(b"GET /later HTTP/1.1\r\nHost: bench.test\r\n\r\n")
        if not breaks_off:
            expect(_response(connection.makefile("rb")) == (200, b"later"), "a deferred response should come")

    def _download(self, connection, chance, breaks_off):
        """A streamed body."""
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: bench.test\r\n\r\n")
        if breaks_off:
            connection.recv(1000)
            return
        status, body = _response(connection.makefile("rb"))
        expect(status == 200 and len(body) == UPLOAD_BYTES, f"a stream should be whole, not {len(body)} bytes")


def expect(holds, what):
    if not holds:
        raise ValueError(what)


def _head(reader):
    """The status and the fields of a response."""
    status = reader.readline().split(b" ")
    if len(status) < 2:
        raise ValueError("the connection ended before a response")
    fields = {}
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    return int(status[1]), fields


def _response(reader):
    status, fields = _head(reader)
    if fields.get(b"transfer-encoding") != b"chunked":
        return status, reader.read(int(fields[b"content-length"]))
    body = bytearray()
    while size := int(reader.readline() or b"-", 16):
        body += reader.read(size)
        reader.readline()
    return status, bytes(body)


def _frame(kind, payload):
    """A masked frame of a client, whose mask of zeros leaves the bytes as they are."""
    if len(payload) < 126:
        length = struct.pack("!B", 0x80 | len(payload))
    elif len(payload) < 65536:
        length = struct.pack("!BH", 0x80 | 126, len(payload))
    else:
        length = struct.pack("!BQ", 0x80 | 127, len(payload))
    return bytes([0x80 | kind]) + length + bytes(4) + payload


def _read_frame(reader):
    head = reader.read(2)
    if len(head) < 2:
        raise ValueError("the connection ended before a frame")
    length = head[1]
    if length == 126:
        length = struct.unpack("!H", reader.read(2))[0]
    elif length == 127:
        length = struct.unpack("!Q", reader.read(8))[0]
    return head[0] & 0x0F, reader.read(length)
