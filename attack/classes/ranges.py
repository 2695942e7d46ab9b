"""Ranges and compression: what multiplies bytes or work, and what mixes two forms of a file."""

import time
import zlib

from harness import http1
from harness.attack import CACHE, PROCESS, STATIC, NotApplicable, attack, each, require
from harness.sandbox import LARGE_BYTES


@attack("Many and overlapping ranges", "CVE-2011-3192", [STATIC])
def many(target):
    def judge(ranges):
        with target.connect() as connection:
            connection.send(http1.request("/large.bin", f"Range: bytes={ranges}\r\n"))
            response = connection.read()
        if response is None or response.status >= 400:
            return None
        most = LARGE_BYTES * 1.05 + 100_000
        return f"{len(response.body)} bytes of {LARGE_BYTES}" if len(response.body) > most else None

    ranges = [",".join(f"{at}-" for at in range(1000)), "0-," * 500 + "0-", ",".join("0-4000000" for _ in range(200)),
              ",".join(f"-{at}" for at in range(4_000_000, 4_000_200)), ",".join(f"{at}-{at}" for at in range(0, 1600, 2))]
    return each(ranges, lambda cases: target.judge_each(cases, judge))


def overflow_cases():
    most = 1 << 63
    return [f"-{most}", f"-{most - 1}", f"{most}-", f"0-{most * 2}", f"-{most * 2}", f"{most - 1}-{most}", f"1-0",
            f"-{LARGE_BYTES + 600},-{most - 600}", "-0", "18446744073709551615-0", "a-b", "0--1", "--1", "1-2-3", "0-0;x"]


@attack("Ranges that overflow", "CVE-2017-7529", [STATIC])
def overflow(target):
    return each(overflow_cases(), lambda cases: target.judge_each(cases, lambda case: within(target, "/large.bin", case)))


@attack("Ranges of a stored response that overflow", "CVE-2017-7529", [CACHE])
def overflow_in_cache(target):
    from harness import origin
    path = f"/cached/{target.token()}.bin"
    target.origin.script(path, lambda request, _: origin.respond(
        request, "Cache-Control: max-age=600\r\nETag: \"1\"\r\n", body=b"x" * LARGE_BYTES))
    target.get(path)
    return each(overflow_cases(), lambda cases: target.judge_each(cases, lambda case: within(target, path, case)))


def within(target, path, ranges):
    """What is wrong with the response to a range: it may be the whole, a part, or a refusal."""
    response = target.get(path, f"Range: bytes={ranges}\r\n")
    if response.status >= 400:
        return None
    if response.status not in (200, 206):
        return f"status {response.status}"
    if response.field("content-type") and response.field("content-type").startswith("multipart/"):
        return None if len(response.body) < 2 * LARGE_BYTES else f"{len(response.body)} bytes"
    wrong = response.body.strip(b"x")
    return f"bytes that are not the file's: {wrong[:40]!r}" if wrong or len(response.body) > LARGE_BYTES else None


@attack("A range of a compressed representation, and If-Range with the ETag of another", "RFC 9110 section 13.1.5", [STATIC])
def compressed_forms(target):
    plain = target.get("/page.txt")
    coded, give_up = plain, time.monotonic() + 10
    while not coded.field("content-encoding"):
        if time.monotonic() > give_up:
            raise NotApplicable("nothing is compressed")
        coded = target.get("/page.txt", "Accept-Encoding: gzip\r\n")
    require(zlib.decompress(coded.body, 47) == plain.body, "the compressed form is of something else")
    part = target.get("/page.txt", "Accept-Encoding: gzip\r\nRange: bytes=10-109\r\n")
    if part.status == 206:
        whole = coded if part.field("content-encoding") else plain
        require(part.body == whole.body[10:110], "a part of one form under the name of the other")
    tag = coded.field("etag")
    require(not tag or tag != plain.field("etag"), "one tag for two forms")
    if tag:
        mixed = target.get("/page.txt", f"Range: bytes=10-109\r\nIf-Range: {tag}\r\n")
        require(mixed.status == 200, "If-Range with the tag of the compressed form gave a part of the plain one")
    return f"range under gzip: {part.status}"


@attack("Invented values of Accept-Encoding", "RFC 9110 section 12.5.3", [STATIC])
def invented_codings(target):
    def judge(value):
        response = target.get("/text.txt", f"Accept-Encoding: {value}\r\n")
        if response.status in (200, 406) and response.field("content-encoding") in (None, "gzip", "br", "zstd"):
            return None
        return f"status {response.status}, Content-Encoding {response.field('content-encoding')}"

    values = [",".join(f"x{n}" for n in range(1500)), "gzip;q=9", "gzip;q=-1", "*;q=0", "identity;q=0, gzip;q=0.0001", ";;;,,,",
              *(f"x{n};q=0.{n}, gzip;q=0.{n}" for n in range(20))]
    return each(values, lambda cases: target.judge_each(cases, judge))


def work(target, path, fields, clients):
    """The processor time of a number of requests whose clients go away without reading."""
    before = target.cpu()
    for _ in range(clients):
        with target.connect() as connection:
            connection.send(http1.request(path, fields))
    # What goes on for nobody counts.
    last, give_up = -1, time.monotonic() + 12
    while target.cpu() - last > 0.1 and time.monotonic() < give_up:
        last = target.cpu()
        time.sleep(0.5)
    return target.cpu() - before


@attack("Compression for a few bytes, or for clients that have disconnected", "CWE-405", [PROCESS, STATIC], fresh=True)
def compression_for_nobody(target):
    """Many may cost what a few do, and a second for the rest of their requests: a form is made once, or given up."""
    found = []
    for number, ranges in enumerate(("Range: bytes=0-10\r\n", "")):
        # Brotli at its best level, made once, would cost as much as all others together.
        fields = f"Accept-Encoding: gzip, identity;q=0\r\n{ranges}"
        few = work(target, f"/few-{number}.txt", fields, 4)
        many = work(target, f"/many-{number}.txt", fields, 120)
        require(many < 4 * few + 1, f"{'11 bytes of gzip' if ranges else 'gzip'}: 4 requests cost {few:.1f} s of CPU, 120 cost {many:.1f} s")
        found.append(f"{few:.1f} to {many:.1f}")
    return f"4 to 120 requests cost {', '.join(found)} s of CPU"
