"""A server as attackers and honest clients reach it."""

import ipaddress
import itertools
import json
import secrets
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

from comparison import process

from . import http1, http2, sandbox
from .attack import DidNotHold, NotApplicable, brief

# Cases of a table that are sent at the same time.
AT_A_TIME = 8


def loopback(text):
    """The address in "127.0.0.1:8080". No other machine is attacked."""
    name, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        raise SystemExit(f"attack: {text}: an address of this machine is needed, as 127.0.0.1:8080") from None
    if address.version != 4 or not address.is_loopback or not port.isdigit():
        raise SystemExit(f"attack: {text}: only addresses in 127.0.0.0/8 are attacked")
    return str(address), int(port)


class Target:
    def __init__(self, name, clear, tls=None, *, features=frozenset(), server=None, origin=None, pid=None):
        self.name, self.clear, self.tls = name, clear, tls
        self.features, self.server, self.origin, self._pid = features, server, origin, pid
        self.numbers = itertools.count(1)
        # Whether honest clients send requests to the origin, too.
        self.requests_origin = True
        self.h1_context = http2.client_context(["http/1.1"])
        self.h2_context = http2.client_context(["h2"])

    @property
    def pid(self):
        return self.server.process.pid if self.server and self.server.process else self._pid

    @property
    def sandbox(self):
        return self.server.sandbox

    def token(self):
        """A text that nobody else sends."""
        return f"t{secrets.token_hex(6)}"

    # Clients over HTTP/1.1.

    def connect(self, *, tls=False, **how):
        if tls:
            how["tls"] = self.h1_context
        return http1.Connection(self.tls if tls else self.clear, **how)

    def send(self, data, *, method="GET", **how):
        """The response to these bytes over a separate connection; none if there is none."""
        with self.connect(**how) as connection:
            connection.send(data)
            return connection.read(method)

    def get(self, path, fields="", *, method="GET", host="localhost", body=b"", **how):
        """The response to a request as every client would send it. It has to come."""
        if how.get("tls"):
            how["name"] = host
        response = self.send(http1.request(path, fields, method, host, body), method=method, **how)
        if response is None:
            raise DidNotHold(f"no response to {method} {brief(path)}")
        return response

    def reflected(self, response):
        """What the origin, or PHP, says that it received."""
        try:
            return json.loads(response.text)
        except ValueError:
            raise DidNotHold(f"{response.status} in place of what the origin received: {brief(response.text)}") from None

    # Clients over HTTP/2.

    def h2(self, *pairs, name="localhost", **how):
        """A connection over TLS, or in clear text where there is no TLS."""
        context, address = (self.h2_context, self.tls) if self.tls else (None, self.clear)
        connection = http1.Connection(address, tls=context, name=name)
        if context and connection.socket.selected_alpn_protocol() != "h2":
            connection.socket.close()
            raise NotApplicable("no HTTP/2")
        return http2.Peer(connection, pairs, **how)

    # The process.

    def memory(self):
        return process.memory_bytes(self.pid) if self.pid else 0

    def cpu(self):
        return process.cpu_seconds(self.pid)

    def is_running(self):
        return not self.server or self.server.process.poll() is None

    def start(self, descriptors=None):
        """Starts the server anew, if it is ours, and waits until it serves."""
        if not self.server:
            return
        self.server.start(descriptors)
        give_up = time.monotonic() + 20
        while True:
            try:
                with self.connect(timeout=2) as connection:
                    connection.send(http1.request("/"))
                    if connection.read():
                        return
            except (OSError, http1.Malformed):
                pass
            if not self.is_running() or time.monotonic() > give_up:
                raise SystemExit(f"attack: {self.name} does not serve:\n{self.server.output()}")
            time.sleep(0.02)

    # What many attacks do.

    def judge_each(self, cases, judge):
        """What `judge` finds wrong with each case, several of them at a time."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(lambda case: guarded(judge, case), cases))

    def assert_serves(self):
        """An honest client gets a page, and from the origin what is its own."""
        page = self._honest("/")
        if not self.origin:
            return
        if sandbox.HELLO not in page.text:
            raise DidNotHold(f"an honest client got another's page: {brief(page.text)}")
        if not self.requests_origin:
            return
        mine = f"honest-{next(self.numbers)}-"
        response = self._honest(f"/api/{mine}")
        if mine not in response.text:
            raise DidNotHold(f"an honest client got another's response: {brief(response.text)}")

    def _honest(self, path):
        try:
            response = self.send(http1.request(path))
        except TimeoutError:
            raise DidNotHold(f"an honest client waited {http1.PATIENCE_SECONDS} s for {brief(path)}") from None
        except (OSError, http1.Malformed) as error:
            raise DidNotHold(f"an honest client failed: {error or type(error).__name__}") from None
        if response is None or response.status != 200:
            raise DidNotHold(f"an honest client got {response.status if response else 'nothing'} for {brief(path)}")
        return response


def guarded(judge, case):
    """A response that no client can parse, or a broken connection, counts as not held."""
    try:
        return judge(case)
    except http1.Malformed as error:
        return f"a response that is not HTTP: {error}"
    except TimeoutError:
        return "no response in time"
    except (ConnectionError, ssl.SSLError) as error:
        return f"the connection broke: {error}"
    except DidNotHold as evidence:
        return str(evidence)
