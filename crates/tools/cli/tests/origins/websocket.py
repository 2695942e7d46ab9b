"""A WebSocket echo with the `websockets` library: `websocket.py`. Prints the port that it listens on.

It accepts the subprotocol `echo`, compresses if the client can, and closes with 4000 after the message `bye`.
`websocket.py ask URL [CA]` is a client: it sends text and binary messages of all sizes, expects them back in order,
and succeeds only if every check passes. `websocket.py hold URL` prints each line that it reads after the echo has
returned it.
"""

import asyncio
import os
import ssl
import sys

import websockets


async def echo(connection, _path=None):
    try:
        async for message in connection:
            if message == "bye":
                await connection.close(4000, "as asked")
                return
            await connection.send(message)
    except websockets.ConnectionClosedError:
        # Tests break connections; the message of the library would look like a failure of the test.
        pass


async def serve():
    server = await websockets.serve(
        echo, "127.0.0.1", 0, subprotocols=["echo"], max_size=None, ping_interval=None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Future()


def connect(url, authority=None):
    context = ssl.create_default_context(cafile=authority) if authority else None
    return websockets.connect(url, subprotocols=["echo"], max_size=None, ping_interval=None, ssl=context)


async def ask(url, authority=None):
    async with connect(url, authority) as connection:
        assert connection.subprotocol == "echo", connection.subprotocol
        messages = ["", "hello", b"\0\xff" * 40, "ß" * 70_000, os.urandom(3_000_000)]
        for message in messages:
            await connection.send(message)
        for message in messages:
            assert await connection.recv() == message
        await (await connection.ping())
        await connection.send("bye")
        await connection.wait_closed()
        assert (connection.close_code, connection.close_reason) == (4000, "as asked")


async def hold(url):
    lines = asyncio.get_running_loop()
    async with connect(url) as connection:
        print("open", flush=True)
        while line := await lines.run_in_executor(None, sys.stdin.readline):
            await connection.send(line)
            assert await connection.recv() == line
            print(line, end="", flush=True)


match sys.argv[1:]:
    case []:
        asyncio.run(serve())
    case ["ask", *arguments]:
        asyncio.run(ask(*arguments))
    case ["hold", url]:
        asyncio.run(hold(url))
