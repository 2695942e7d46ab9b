"""Certificates on demand: names that a client invents cost next to nothing, and do not delay the look-ups of other names."""

import time

from harness.attack import ON_DEMAND, PROCESS, attack, require
from harness.http1 import Connection

# What docs/certificates.md allows one client: this number of names at once, and one more after this number of seconds.
NAMES_AT_ONCE, SECONDS_PER_NAME = 16, 4


def handshake(target, name, source=None):
    """Asks for a name; there is no certificate for it."""
    try:
        Connection(target.tls, source=source, tls=target.h1_context, name=name).socket.close()
    except (OSError, ValueError):  # an alert; a name that this client does not send
        pass


def invent(target, number, source=None):
    """A client asks for names that do not exist. Returns a text that stands in the questions about them."""
    text = target.token()
    for index in range(number):
        handshake(target, f"{text}-{index}.shops.test", source)
    return text


# The first handshakes and questions of a server take 30 MB, 300 names as well as 3,000.
@attack("3,000 names that one client invents", "CWE-770, CWE-400", [ON_DEMAND, PROCESS], memory=40 << 20, fresh=True)
def invented_names(target):
    begun = time.monotonic()
    text = invent(target, 3_000)
    most = NAMES_AT_ONCE + 1 + int((time.monotonic() - begun) / SECONDS_PER_NAME)
    asked = len(target.origin.seen(text))
    require(asked <= most, f"{asked} questions about invented names, at most {most} are allowed")
    return f"{asked} questions"


@attack("Names of another client while one invents many", "CWE-400", [ON_DEMAND], fresh=True)
def names_of_others(target):
    invent(target, 300)
    for index in range(NAMES_AT_ONCE):
        text = target.token()
        handshake(target, f"{text}.shops.test", source="127.0.0.77")
        require(target.origin.seen(text), f"nobody looked for name {index + 1} of an honest client")
    return f"{NAMES_AT_ONCE} names of another client were looked for"


@attack("Names that no authority accepts", "CWE-20", [ON_DEMAND], fresh=True)
def impossible_names(target):
    text = target.token()
    for name in ("{}_a", "-{}", "{}-", "ab--{}", "xn--{}-"):
        handshake(target, name.format(text) + ".shops.test")
    asked = target.origin.seen(text)
    require(not asked, f"{len(asked)} questions about names for which there is no certificate")
    return "no questions"
