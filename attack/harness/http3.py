"""A client of HTTP/3 with aioquic, which also sends its own packets with any frames (RFC 9000 section 12.4)."""

import select
import socket
import ssl
import sys
import time
from pathlib import Path

from .attack import DidNotHold, NotApplicable

# `make tools` puts it there.
PACKAGES = sorted((Path(__file__).resolve().parents[2] / ".tools/python/lib").glob("python3*/site-packages"))

STREAM, STOP_SENDING = 0x08, 0x05
# The unidirectional streams of a client, after those that it has to open.
OTHER = 14
DATAGRAM = 1200


def aioquic():
    """The packages, if they are installed."""
    sys.path.extend(str(path) for path in PACKAGES if str(path) not in sys.path)
    try:
        from aioquic.h3 import connection as h3
        from aioquic.quic import configuration, connection, events
        from aioquic import tls
    except ImportError:
        raise NotApplicable("aioquic is not installed: `make tools` does that") from None
    return h3, configuration, connection, events, tls


def integer(value):
    """RFC 9000 section 16."""
    for bits, length in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if value < 1 << bits:
            return (value | length.bit_length() - 1 << 8 * length - 2).to_bytes(length, "big")
    raise ValueError(value)


def stream(identifier, offset, data):
    """A STREAM frame with an offset and a length."""
    return integer(STREAM | 0x6) + integer(identifier) + integer(offset) + integer(len(data)) + data


class Client:
    """A connection from an address of this machine. It is driven by the calls of its methods."""

    def __init__(self, target, source="127.0.0.1", bound=None):
        self.h3_module, configuration, quic, self.events, self.tls = aioquic()
        settings = configuration.QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", verify_mode=ssl.CERT_NONE)
        settings.idle_timeout = 60
        self.quic = quic.QuicConnection(configuration=settings)
        self.address = target.tls
        self.socket = bound or udp(source)
        self.seen = []
        self.quic.connect(self.address, now=time.monotonic())

    def flush(self):
        for data, _ in self.quic.datagrams_to_send(now=time.monotonic()):
            self.socket.sendto(data, self.address)

    def receive(self, seconds):
        """Handles packets for this time, or until one came; whether one did."""
        ready, _, _ = select.select([self.socket], [], [], max(seconds, 0))
        if not ready:
            timer = self.quic.get_timer()
            if timer is not None and timer <= time.monotonic():
                self.quic.handle_timer(now=time.monotonic())
        has_come = bool(ready)
        while ready:
            data, _ = self.socket.recvfrom(65536)
            self.quic.receive_datagram(data, self.address, now=time.monotonic())
            ready, _, _ = select.select([self.socket], [], [], 0)
        while event := self.quic.next_event():
            self.seen.append(event)
        return has_come

    def wait(self, holds, seconds):
        """Goes on until something holds; whether it does in time."""
        give_up = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > give_up:
                return False
            self.flush()
            self.receive(min(0.05, give_up - time.monotonic()))
        self.flush()
        return True

    def has(self, kind):
        return any(isinstance(event, kind) for event in self.seen)

    @property
    def ended(self):
        return self.has(self.events.ConnectionTerminated)

    def open(self, seconds=10):
        """Completes the handshake, and opens the streams of HTTP/3."""
        if not self.wait(lambda: self.has(self.events.HandshakeCompleted) or self.ended, seconds) or self.ended:
            raise DidNotHold(f"no connection over HTTP/3 within {seconds} s")
        self.http = self.h3_module.H3Connection(self.quic)
        self.flush()
        return self

    def get(self, path, seconds=10):
        """The status of the response to a GET."""
        identifier = self.quic.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        self.http.send_headers(identifier, [(name.encode(), value.encode()) for name, value in fields], end_stream=True)
        status, read = [], 0

        def responded():
            nonlocal read
            for event in self.seen[read:]:
                for found in self.http.handle_event(event):
                    status.extend(value for name, value in getattr(found, "headers", []) if name == b":status")
            read = len(self.seen)
            return status or self.ended

        self.wait(responded, seconds)
        return int(status[0]) if status else None

    def send_frames(self, frames):
        """Sends one packet with these frames, beside the frames of aioquic, unless the connection is over."""
        crypto = self.quic._cryptos[self.tls.Epoch.ONE_RTT]
        if not crypto.send.is_valid():
            return
        number = self.quic._packet_number
        self.quic._packet_number += 1
        header = bytes([0x43 | crypto.key_phase << 2]) + self.quic._peer_cid.cid + number.to_bytes(4, "big")
        self.socket.sendto(crypto.encrypt_packet(header, frames.ljust(4, b"\0"), number), self.address)

    def close(self):
        self.socket.close()


def udp(source):
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    found.bind((source, 0))
    return found


def assert_serves(target, source):
    """An honest client at this address gets a page over HTTP/3."""
    client = Client(target, source)
    try:
        status = client.open().get("/")
    finally:
        client.close()
    if status != 200:
        raise DidNotHold(f"an honest client got {status or 'nothing'} over HTTP/3")
