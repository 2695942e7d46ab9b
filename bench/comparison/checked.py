"""Clients that check every response: whether it is complete, and whether it is for their request."""

import asyncio
import json
import os
import re
import time

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def run(core, port, path, clients, seconds):
    """Has each client send requests with ids of its own, one after another. Returns the number of requests, the number of
    502 responses because PHP sent none, and other errors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return asyncio.run(_run(port, path, clients, time.monotonic() + seconds))
    finally:
        os.sched_setaffinity(0, before)


async def _run(port, path, clients, end):
    faults = []
    finished = await asyncio.gather(*(_client(port, path, number, end, faults) for number in range(clients)))
    lost = [fault for fault in faults if fault.endswith("status 502")]
    wrong = [fault for fault in faults if fault not in lost]
    return {"requests": sum(finished), "lost": len(lost), "errors": len(wrong), "faults": wrong[:5]}


async def _client(port, path, number, end, faults):
    finished, connection = 0, None
    while time.monotonic() < end:
        name = f"of-{number}-{finished}"
        request = (f"GET {path}?id={name} HTTP/1.1\r\nHost: bench.test\r\nX-Id: {name}\r\nCookie: of={name}\r\n\r\n").encode()
        try:
            if not connection:
                connection = await asyncio.open_connection("127.0.0.1", port)
            connection[1].write(request)
            status, closes, body = await asyncio.wait_for(_read_response(connection[0]), 30)
            fault = _fault(status, body, name)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            closes, fault = True, repr(error)
        if fault:
            faults.append(f"{name}: {fault}")
        if closes and connection:
            connection[1].close()
            connection = None
        finished += 1
    if connection:
        connection[1].close()
    return finished


async def _read_response(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    if length:
        body = await reader.readexactly(int(length.group(1)))
    else:
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return int(head.split(b" ", 2)[1]), b"\r\nconnection: close" in head.lower(), body


def _fault(status, body, name):
    if status != 200:
        return f"status {status}"
    received = json.loads(body)
    of = {received["get"].get("id"), received["header"], received["cookie"].get("of") if received["cookie"] else None}
    if of != {name} or received["left"] is not None:
        return f"mixed up: {body[:300]}"
    return None
