"""Clients with one request at a time each, all of whom are looked after: wrk tells nothing of those that are never
answered."""

import asyncio
import os
import re
import time

# Longer than that, and a person has left.
PATIENCE = 5.0

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def ask(core, server, path, connections, seconds, patience=PATIENCE):
    """What the clients saw in so many seconds, and as long as they are patient to answer the last of them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return asyncio.run(_ask(server.clear, path, connections, seconds, patience))
    finally:
        os.sched_setaffinity(0, before)


async def _ask(port, path, connections, seconds, patience):
    loop = asyncio.get_running_loop()
    end = time.monotonic() + seconds
    request = f"GET {path} HTTP/1.1\r\nHost: bench.test\r\n\r\n".encode()
    clients = [Client(request, end) for _ in range(connections)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    while time.monotonic() < end + patience and any(client.asked for client in clients):
        await asyncio.sleep(0.05)
    answered = sorted(took for client in clients for took in client.took)
    unanswered = sum(client.failed or client.asked is not None for client in clients)
    for client in clients:
        client.transport.abort()
    in_time = sum(client.in_time for client in clients)
    mean = sum(answered) / len(answered) if answered else 0.0

    def percentile(percent):
        return answered[min(len(answered) * percent // 100, len(answered) - 1)] * 1e6 if answered else 0.0

    return {
        "requests": len(answered),
        "requests_per_second": in_time / seconds,
        "mean_us": mean * 1e6,
        "p50_us": percentile(50),
        "p99_us": percentile(99),
        "errors": unanswered + sum(took > patience for took in answered),
    }


class Client(asyncio.Protocol):
    """Asks again as soon as it is answered, until the end."""

    def __init__(self, request, end):
        self.request = request
        self.end = end
        self.got = bytearray()
        self.asked = None
        self.failed = False
        self.took = []
        self.in_time = 0

    def connection_made(self, transport):
        self.transport = transport
        self._ask()

    def _ask(self):
        self.asked = time.monotonic()
        self.transport.write(self.request)

    def data_received(self, data):
        self.got += data
        # An error page of a server in between is no answer.
        self.failed = self.failed or not self.got.startswith(b"HTTP/1.1 200 "[:len(self.got)])
        if not self._is_whole():
            return
        now = time.monotonic()
        self.took.append(now - self.asked)
        self.got.clear()
        self.asked = None
        if now < self.end:
            self.in_time += 1
            self._ask()

    def _is_whole(self):
        head, found, content = bytes(self.got).partition(b"\r\n\r\n")
        if not found:
            return False
        length = LENGTH.search(head)
        return len(content) >= int(length.group(1)) if length else content.endswith(b"0\r\n\r\n")

    def connection_lost(self, _error):
        self.failed = self.failed or self.asked is not None
        self.asked = None
