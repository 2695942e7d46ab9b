#!/usr/bin/env python3
"""A visitor of the shop in Chromium: signs up, logs in, uploads a picture, chats and resets the password. Prints what the pages show.

    visitor.py ORIGIN [FOLDER]

Mails are read from the page /dev/mails/ of the shop. With a FOLDER, pictures of the pages are stored there.
"""

import asyncio
import base64
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import websockets


class CallFailed(Exception):
    """The browser refuses a call."""


class Page:
    """A tab, controlled over the DevTools protocol."""

    def __init__(self, socket, origin, folder):
        self.socket = socket
        self.origin = origin
        self.folder = folder
        self.count = 0
        self.errors = []

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
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))

    async def value(self, expression):
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def until(self, expression):
        for _ in range(1200):
            try:
                if await self.value(f"document.readyState === 'complete' && !!({expression})"):
                    return
            except CallFailed as failure:
                # The page was left while the expression was evaluated: the next one is on its way.
                if "navigated" not in str(failure):
                    raise
            await asyncio.sleep(0.05)
        sys.exit(f"never: {expression}\n" + str(await self.value("document.documentElement.outerHTML")))

    async def open(self, path):
        # The mark is gone once the next page is there.
        await self.value("window.isOld = true")
        await self.call("Page.navigate", url=f"{self.origin}{path}" if path.startswith("/") else path)
        await self.until("!window.isOld")

    async def type(self, name, text):
        await self.value(f"document.querySelector('main [name={name}]').focus()")
        await self.value(f"document.querySelector('main [name={name}]').value = ''")
        await self.call("Input.insertText", text=text)

    async def submit(self, form="main form"):
        await self.value("window.isOld = true")
        # The click comes after the call, which would fail if the page was left before its result is known.
        button = json.dumps(f"{form} button")
        await self.value(f"void setTimeout(() => document.querySelector({button}).click())")
        await self.until("!window.isOld")

    async def text(self, selector):
        return await self.value(f"document.querySelector({json.dumps(selector)})?.textContent")

    async def picture(self, name):
        if self.folder:
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                await self.call("Emulation.setEmulatedMedia", features=features)
                shot = await self.call("Page.captureScreenshot")
                (Path(self.folder) / f"{name}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))


def png(size):
    """A square picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + b"\x20\x80\xc0" * size for _ in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def link_of_mail(page, number):
    """The path of the link in a mail, once it came."""
    for _ in range(600):
        await page.open(f"/dev/mails/{number}")
        link = await page.value("document.querySelector('pre a')?.href")
        if link:
            return link.replace("https://shop.example", "")
        await asyncio.sleep(0.05)
    sys.exit(f"mail {number} never came")


async def choose_file(page, path):
    document = await page.call("DOM.getDocument")
    node = await page.call("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="[type=file]")
    await page.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node["nodeId"])


async def visit(page, files):
    saw = {}
    for domain in ("Page", "Runtime", "DOM"):
        await page.call(f"{domain}.enable")
    await page.open("/sign-up")
    # An address by the rules of browsers, not of mail servers.
    await page.type("email", "ada@exa_mple")
    await page.value("document.querySelector('main form').noValidate = true")
    await page.submit()
    saw["wrong address"] = await page.text(".wrong")
    await page.picture("sign-up")
    await page.type("email", "ada@example.com")
    await page.submit()
    await page.picture("log-in")
    await page.open(await link_of_mail(page, 1))
    await page.type("password", "password1234")
    await page.submit()
    saw["wrong password"] = await page.text(".wrong")
    await page.picture("set-password")
    await page.type("password", "correct horse battery")
    await page.submit()
    saw["signed up"] = await page.text("main p:not(.message)")
    await page.submit("header form")
    for key, password in (("wrong log-in", "wrong horse battery"), ("logged in", "correct horse battery")):
        await page.type("email", "ada@example.com")
        await page.type("password", password)
        await page.submit()
        saw[key] = await page.text("main .wrong, main p:not(.message)")
    await page.picture("home")
    await page.open("/pictures")
    (files / "page.png").write_text("<script>alert(1)</script>")
    (files / "swift.png").write_bytes(png(8))
    await page.type("title", "A swift")
    await choose_file(page, files / "page.png")
    await page.submit()
    saw["wrong picture"] = await page.text(".wrong")
    await page.type("title", "A swift")
    await choose_file(page, files / "swift.png")
    await page.submit()
    await page.until("document.querySelector('.pictures img')?.complete")
    size = "(image => [image.naturalWidth, image.naturalHeight])(document.querySelector('.pictures img'))"
    saw["picture"] = await page.value(size)
    await page.picture("pictures")
    await page.open("/chat")
    await page.until("document.getElementById('lines').dataset.open")
    await page.type("text", "hello <b>all</b>")
    await page.value("document.querySelector('#say button').click()")
    await page.until("document.querySelector('#lines li')")
    saw["chat"] = await page.text("#lines li")
    await page.picture("chat")
    await page.open("/forgot")
    await page.type("email", "ada@example.com")
    await page.submit()
    await page.open(await link_of_mail(page, 2))
    await page.picture("mail-link")
    await page.type("password", "another horse battery")
    await page.submit()
    saw["reset"] = await page.text(".message")
    await page.type("email", "ada@example.com")
    await page.type("password", "another horse battery")
    await page.submit()
    saw["logged in again"] = await page.text("main p:not(.message)")
    if page.folder:
        await page.open("/dev/mails/2")
        await page.picture("mail")
    saw["errors"] = page.errors
    return saw


async def main(origin, folder=None):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=900,700",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--remote-debugging-port=0", f"--user-data-dir={profile}/profile", "about:blank"],
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
                target = await Page(socket, origin, folder).call("Target.createTarget", url="about:blank")
            tab = f"{devtools.split('/devtools/')[0]}/devtools/page/{target['targetId']}"
            async with websockets.connect(tab, max_size=None) as socket:
                print(json.dumps(await visit(Page(socket, origin, folder), Path(profile))))
        finally:
            browser.kill()
            browser.wait()
        await reader


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
