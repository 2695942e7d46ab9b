"""Clients that look at every answer: whether it is whole, and whether it is theirs."""

import asyncio
import json
import os
import re
import time

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def ask(core, port, path, clients, seconds):
    """Has each client ask again and again by an id of its own; how many were answered, how many were told that PHP gave no
    answer, and what else went wrong."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return asyncio.run(_ask(port, path, clients, time.monotonic() + seconds))
    finally:
        os.sched_setaffinity(0, before)


async def _ask(port, path, clients, end):
    faults = []
    answered = await asyncio.gather(*(_client(port, path, number, end, faults) for number in range(clients)))
    lost = [fault for fault in faults if fault.endswith("status 502")]
    wrong = [fault for fault in faults if fault not in lost]
    return {"requests": sum(answered), "lost": len(lost), "errors": len(wrong), "faults": wrong[:5]}


async def _client(port, path, number, end, faults):
    answered, connection = 0, None
    while time.monotonic() < end:
        name = f"of-{number}-{answered}"
        request = (f"GET {path}?id={name} HTTP/1.1\r\nHost: bench.test\r\nX-Id: {name}\r\nCookie: of={name}\r\n\r\n").encode()
        try:
            if not connection:
                connection = await asyncio.open_connection("127.0.0.1", port)
            connection[1].write(request)
            status, closes, content = await asyncio.wait_for(_answer(connection[0]), 30)
            fault = _fault(status, content, name)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            closes, fault = True, repr(error)
        if fault:
            faults.append(f"{name}: {fault}")
        if closes and connection:
            connection[1].close()
            connection = None
        answered += 1
    if connection:
        connection[1].close()
    return answered


async def _answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    if length:
        content = await reader.readexactly(int(length.group(1)))
    else:
        content = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return int(head.split(b" ", 2)[1]), b"\r\nconnection: close" in head.lower(), content


def _fault(status, content, name):
    if status != 200:
        return f"status {status}"
    told = json.loads(content)
    of = {told["get"].get("id"), told["header"], told["cookie"].get("of") if told["cookie"] else None}
    if of != {name} or told["left"] is not None:
        return f"mixed up: {content[:300]}"
    return None
