"""A client of HTTP/3 with libcurl on ngtcp2 and nghttp3: `http3_curl.py PORT CA WHAT...`. Each WHAT is a function of this
file without its `check_`; the program succeeds only if all of them pass."""

import asyncio
import sys

from curl_cffi import CurlHttpVersion, CurlOpt
from curl_cffi.requests import AsyncSession, Session

PORT, AUTHORITY = int(sys.argv[1]), sys.argv[2]
URL = f"https://localhost:{PORT}"
SETTINGS = {
    "http_version": CurlHttpVersion.V3ONLY,
    "verify": AUTHORITY,
    "timeout": 240,
    "curl_options": {CurlOpt.RESOLVE: [f"localhost:{PORT}:127.0.0.1"]},
}


def content(length):
    """The content of the large files: lines of eight bytes with their numbers."""
    return b"".join(b"%07d\n" % number for number in range(length // 8))


def assert_response(response, body):
    # `CURL_HTTP_VERSION_3`.
    assert (response.status_code, response.http_version) == (200, CurlHttpVersion.V3), (response.status_code, response.http_version)
    assert response.content == body, f"{len(response.content)} bytes instead of {len(body)}"


def check_handshake():
    with Session(**SETTINGS) as session:
        for _ in range(20):
            assert_response(session.get(f"{URL}/small.txt"), b"small\n")
        assert session.get(f"{URL}/none").status_code == 404


def check_as_browsers():
    """With the transport parameters and the settings of browsers."""
    for browser in ("chrome", "safari"):
        with Session(**SETTINGS, impersonate=browser) as session:
            for _ in range(3):
                assert_response(session.get(f"{URL}/small.txt"), b"small\n")


def check_download():
    with Session(**SETTINGS) as session:
        assert_response(session.get(f"{URL}/large-100.bin"), content(100 << 20))


def check_upload():
    body = content(20 << 20)
    with Session(**SETTINGS) as session:
        assert_response(session.post(f"{URL}/echo", data=body), body)


def check_parallel():
    asyncio.run(parallel())


async def parallel():
    async def echo(index):
        body = content(8 * (1 + index * (500 if index % 10 == 9 else 10)))
        assert_response(await session.post(f"{URL}/echo", data=body), body)

    async with AsyncSession(**SETTINGS, max_clients=50) as session:
        await asyncio.gather(*(echo(index) for index in range(200)))


def main():
    for name in sys.argv[3:]:
        globals()[f"check_{name}"]()
        print(name, flush=True)


main()
