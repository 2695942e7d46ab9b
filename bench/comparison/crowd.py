"""Clients with one request at a time each, all of which are counted: wrk does not report requests that never get a
response."""

import asyncio
import os
import re
import time

# Longer than that, and a person has left.
PATIENCE = 5.0

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def run(core, server, path, connections, seconds, patience=PATIENCE):
    """What the clients saw in so many seconds, and in up to `patience` seconds more for the last responses."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return asyncio.run(_run(server.clear, path, connections, seconds, patience))
    finally:
        os.sched_setaffinity(0, before)


async def _run(port, path, connections, seconds, patience):
    loop = asyncio.get_running_loop()
    end = time.monotonic() + seconds
    request = f"GET {path} HTTP/1.1\r\nHost: bench.test\r\n\r\n".encode()
    clients = [Client(request, end) for _ in range(connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    while time.monotonic() < end + patience and any(client.sent_at for client in clients):
        await asyncio.sleep(0.05)
    durations = sorted(took for client in clients for took in client.took)
    unfinished = sum(client.failed or client.sent_at is not None for client in clients)
    for client in clients:
        client.transport.abort()
    in_time = sum(client.in_time for client in clients)
    mean = sum(durations) / len(durations) if durations else 0.0

    def percentile(percent):
        return durations[min(len(durations) * percent // 100, len(durations) - 1)] * 1e6 if durations else 0.0

    return {
        "requests": len(durations),
        "requests_per_second": in_time / seconds,
        "mean_us": mean * 1e6,
        "p50_us": percentile(50),
        "p99_us": percentile(99),
        "errors": unfinished + sum(took > patience for took in durations),
    }


class Client(asyncio.Protocol):
    """Sends the next request as soon as it has the response, until the end."""

    def __init__(self, request, end):
        self.request = request
        self.end = end
        self.got = bytearray()
        self.sent_at = None
        self.failed = False
        self.took = []
        self.in_time = 0

    def connection_made(self, transport):
        self.transport = transport
        self._send()

    def _send(self):
        self.sent_at = time.monotonic()
        self.transport.write(self.request)

    def data_received(self, data):
        self.got += data
        # An error page of a server in between does not count as a response.
        self.failed = self.failed or not self.got.startswith(b"HTTP/1.1 200 "[:len(self.got)])
        if not self._is_whole():
            return
        now = time.monotonic()
        self.took.append(now - self.sent_at)
        self.got.clear()
        self.sent_at = None
        if now < self.end:
            self.in_time += 1
            self._send()

    def _is_whole(self):
        head, found, body = bytes(self.got).partition(b"\r\n\r\n")
        if not found:
            return False
        length = LENGTH.search(head)
        return len(body) >= int(length.group(1)) if length else body.endswith(b"0\r\n\r\n")

    def connection_lost(self, _error):
        self.failed = self.failed or self.sent_at is not None
        self.sent_at = None
