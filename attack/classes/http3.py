"""HTTP/3: memory and work for data that nobody can read, and places that one address takes from all others.

What needs other packets than aioquic makes is tested in crates/engine/net/tests/it/h3."""

import time

from harness import http3 as h3
from harness.attack import HTTP3, PROCESS, attack, require

# An honest client is not at the address of the attacker.
ATTACKER, HONEST = "127.0.0.3", "127.0.0.2"
# `client_header_timeout`, and a moment for a busy machine.
DEADLINE_SECONDS = 15 + 10


def pieces(identifier, first, count, distance):
    """Frames of one byte each, with gaps between them."""
    return b"".join(h3.stream(identifier, first + distance * number, b"x") for number in range(count))


@attack("Data whose start never comes, in small pieces, over many connections", "RUSTSEC-2026-0185, CWE-770", [HTTP3, PROCESS], memory=96 << 20, fresh=True)
def gaps(target):
    clients = []
    try:
        for _ in range(16):
            client = h3.Client(target, ATTACKER).open()
            clients.append(client)
            for number in range(256):
                for packet in range(5):
                    client.send_frames(pieces(4 * number, 1 + 360 * packet, 180, 2))
                if number % 2:
                    client.receive(0)
                    client.flush()
            h3.assert_serves(target, HONEST)
        return f"{len(clients)} connections of 256 streams, 23 MB"
    finally:
        for client in clients:
            client.close()


@attack("Streams whose start never comes", "CVE-2007-6750, CWE-770", [HTTP3, PROCESS], memory=96 << 20)
def silent_streams(target):
    client = h3.Client(target, ATTACKER).open()
    try:
        for number in range(64):
            # aioquic knows the stream then, as the server will end it.
            client.quic._get_or_create_stream_for_send(4 * number)
            client.send_frames(h3.stream(4 * number, 5_000, b"x" * 1_000))
        stopped = lambda: sum(isinstance(event, client.events.StopSendingReceived) for event in client.seen)  # noqa: E731
        started = time.monotonic()
        over = client.wait(lambda: client.ended or stopped() >= 64, DEADLINE_SECONDS)
        require(over, f"{64 - stopped()} of 64 streams are held after {DEADLINE_SECONDS} s")
        h3.assert_serves(target, HONEST)
        return f"ended after {time.monotonic() - started:.0f} s"
    finally:
        client.close()


@attack("Half-open connections of one address", "RFC 9000 section 21.2, CWE-770", [HTTP3, PROCESS], fresh=True)
def half_open(target):
    bound, retries, ignored = h3.udp(ATTACKER), 0, 0
    try:
        for number in range(2_200):
            client = h3.Client(target, bound=bound)
            client.flush()
            # Each Retry packet is answered, and nothing else.
            deadline = time.monotonic() + (0 if number < 100 else 0.05 if ignored < 20 else 0.002)
            while not client.quic._retry_count and time.monotonic() < deadline:
                client.receive(deadline - time.monotonic())
            if client.quic._retry_count:
                retries, ignored = retries + 1, 0
                client.flush()
            else:
                ignored += 1
            if number % 400 == 399:
                h3.assert_serves(target, HONEST)
        h3.assert_serves(target, HONEST)
        return f"2,200 clients that stay silent, {retries} of them after a Retry packet"
    finally:
        bound.close()


@attack("Packets of pieces of one byte, between thousands of others", "CWE-407", [HTTP3, PROCESS], memory=96 << 20)
def small_pieces(target):
    client = h3.Client(target, ATTACKER).open()
    streams, gaps = range(0, 16, 4), range(1, 1_501)
    try:
        for number in gaps:
            for identifier in streams:
                client.send_frames(h3.stream(identifier, 1_300 * number, b"x" * 1_100))
            if number % 4 == 3:
                client.receive(0)
                client.flush()
        client.wait(lambda: client.ended, 1)
        # Each piece has a gap before and behind it.
        places = [1_300 * number + 1_102 + 2 * turn for turn in range(8) for number in gaps]
        packets, before = 0, target.cpu()
        for start in range(0, len(places), 120):
            for identifier in streams:
                client.send_frames(b"".join(h3.stream(identifier, at, b"x") for at in places[start:start + 120]))
                packets += 1
            client.receive(0)
            client.flush()
        h3.assert_serves(target, HONEST)
        each = (target.cpu() - before) / packets
        require(each < 0.0004, f"{each * 1e6:.0f} us of CPU for a packet")
        return f"{each * 1e6:.0f} us of CPU for a packet, including the packets of the honest clients beside it"
    finally:
        client.close()
