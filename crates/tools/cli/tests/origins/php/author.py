#!/usr/bin/env python3
"""A WordPress author in a real browser: logs in, opens the dashboard, publishes a post, and prints what the pages show.

    author.py CHROMIUM ORIGIN ADDRESS USER PASSWORD

The host of ORIGIN resolves to ADDRESS. The output is one JSON object.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

import websockets


class CallFailed(Exception):
    """The browser refuses a call."""


class Page:
    """A tab, controlled over the DevTools protocol."""

    def __init__(self, socket):
        self.socket = socket
        self.count = 0
        self.errors = []
        self.protocols = set()

    async def call(self, method, **parameters):
        self.count += 1
        call = self.count
        await self.socket.send(json.dumps({"id": call, "method": method, "params": parameters}))
        while True:
            message = json.loads(await self.socket.recv())
            if message.get("id") == call:
                if "error" in message:
                    raise CallFailed(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message):
        parameters = message.get("params", {})
        if message.get("method") == "Network.responseReceived":
            response = parameters["response"]
            self.protocols.add(response.get("protocol"))
            if response["status"] >= 400:
                self.errors.append(f"{response['status']} {response['url']}")
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"].get("exception", {}).get("description")))

    async def value(self, expression):
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    async def until(self, expression):
        for _ in range(600):
            try:
                if await self.value(f"document.readyState === 'complete' && !!({expression})"):
                    return
            except CallFailed as failure:
                # The page was left while the expression was evaluated: the next one is on its way.
                if "navigated" not in str(failure):
                    raise
            await asyncio.sleep(0.05)
        sys.exit(f"never: {expression}\n" + str(await self.value("document.documentElement.outerHTML")))

    async def open(self, url, condition):
        await self.call("Page.navigate", url=url)
        await self.until(condition)


async def main(chromium, origin, address, user, password):
    host = urlsplit(origin).hostname
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--ignore-certificate-errors", f"--host-resolver-rules=MAP {host} {address}",
             "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            for line in browser.stderr:
                if line.startswith("DevTools listening on "):
                    break
            else:
                sys.exit("the browser does not start")
            devtools = line.split()[-1]
            # Further messages of the browser would fill the pipe.
            reader = asyncio.get_running_loop().run_in_executor(None, browser.stderr.read)
            async with websockets.connect(devtools, max_size=None) as socket:
                target = await Page(socket).call("Target.createTarget", url="about:blank")
            tab = f"{devtools.split('/devtools/')[0]}/devtools/page/{target['targetId']}"
            async with websockets.connect(tab, max_size=None) as socket:
                print(json.dumps(await visit(Page(socket), origin, user, password)))
        finally:
            browser.kill()
            browser.wait()
        await reader


async def visit(page, origin, user, password):
    for domain in ("Page", "Runtime", "Network"):
        await page.call(f"{domain}.enable")
    # A moment after it is loaded, the page itself focuses the input field.
    await page.open(f"{origin}/wp-login.php", "document.activeElement.id === 'user_login'")
    for field, text in (("user_login", user), ("user_pass", password)):
        await page.value(f"document.getElementById('{field}').focus()")
        await page.call("Input.insertText", text=text)
    # The click comes after the call, which would fail if the page was left before its result is known.
    await page.value("void setTimeout(() => document.getElementById('wp-submit').click())")
    await page.until("document.getElementById('wpadminbar') && document.getElementById('dashboard-widgets')")
    dashboard = await page.value("document.querySelector('#wpbody h1').textContent")
    known = await page.value("document.querySelector('.display-name').textContent")
    await page.open(f"{origin}/wp-admin/post-new.php", "window.wp && wp.data && document.querySelector('.block-editor')")
    editor = await page.value(
        "wp.data.dispatch('core/editor').editPost({title: 'From a browser', status: 'publish'})"
        ".then(() => wp.data.dispatch('core/editor').savePost())"
        ".then(() => wp.data.select('core/editor').getCurrentPost().link)")
    await page.open(editor or origin, "document.querySelector('h1, h2')")
    return {
        "dashboard": dashboard,
        "known": known,
        "post": await page.value("document.title"),
        "bar": await page.value("!!document.getElementById('wpadminbar')"),
        "protocols": sorted(filter(None, page.protocols)),
        "errors": page.errors,
    }


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
