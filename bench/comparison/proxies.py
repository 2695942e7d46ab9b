"""Servers in front of an origin: how each is configured to pass on, to cache, and to queue.

All send the origin the address of the client, in the usual fields; all keep connections to it.
"""

import shutil

from . import cases, host
from .servers import BUILD, RUN, Server, run_apus, run_nginx

NGINX_HTTP = """\
    {certificate}
    proxy_cache_path cache keys_zone=bench:10m max_size=4g inactive=1h use_temp_path=off;
    upstream origin {{
        server 127.0.0.1:{origin};
        keepalive {keepalive};
        keepalive_requests 1000000000;
        keepalive_time 24h;
    }}
    server {{
        listen 127.0.0.1:{port}{tls} backlog=4096;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_buffer_size 32k;
            proxy_buffers 8 32k;
            {cache}
        }}
    }}
"""

NGINX_TLS = "ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.3;"
NGINX_CACHE = "proxy_cache bench; proxy_cache_valid 200 1h; proxy_cache_lock on;"

HAPROXY = """\
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 60s
    timeout queue 60s
    timeout http-keep-alive 300s
    option forwardfor
    http-reuse always
frontend bench
    bind 127.0.0.1:{port} backlog 4096{tls}
    http-request set-header X-Forwarded-Proto {scheme}
    http-request set-header X-Real-IP %[src]
    default_backend origin
backend origin
    server origin 127.0.0.1:{origin}{limit}
"""

HAPROXY_TLS = " ssl crt haproxy.pem alpn h2,http/1.1 ssl-min-ver TLSv1.3"

VARNISH = """\
vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{origin}"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; }}
"""

APUS = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "{name}.sock"
{store}

[[sites]]
name = "bench"
{listen} = ["127.0.0.1:{port}"]
upstream = "origin"
{tls}
{cache}

[[sites.upstreams]]
name = "origin"
nodes = [{{ addr = "127.0.0.1:{origin}"{limit} }}]
keepalive = {{ max_idle = 1024 }}
"""

APUS_TLS = 'tls = { cert = "cert.pem", key = "key.pem" }'
APUS_STORE = 'cache = {{ dir = "cache-of-{name}", size = 4096, object_size = 2048 }}'
APUS_CACHE = "cache = { ttl = 3600, max_size = 2048 }"


# What an application adds to the six fields of the floor.
APPLICATION = (
    "cache-control: private, max-age=0, must-revalidate",
    "vary: Accept-Encoding, Cookie",
    "set-cookie: session=7f3c1b9a52d84e60; Path=/; HttpOnly; Secure; SameSite=Lax",
    "x-request-id: 5f0c6d1e-8a43-4b7e-9d52-3c1f7a90be64",
    "x-content-type-options: nosniff",
    "x-frame-options: SAMEORIGIN",
)


def start_origin(case, core):
    port = host.free_port()
    if case.kind == cases.QUEUE:
        command = [BUILD / "slow_origin", port, case.at_a_time, case.milliseconds]
    else:
        command = [BUILD / "floor", port, case.size, *(APPLICATION if case.browser else ())]
    return Server("origin", command, port, None, core)


def _ports(case):
    """A free port, and the same as the port of clear text and as that of TLS, one of which there is."""
    port = host.free_port()
    return (port, None, port) if case.tls else (port, port, None)


def start_apus(case, core, binary, origin, name="apus"):
    port, clear, tls = _ports(case)
    limit = f", max_conns = {case.at_a_time}" if case.kind == cases.QUEUE else ""
    store = cache = ""
    if case.kind == cases.CACHED:
        shutil.rmtree(RUN / f"cache-of-{name}", ignore_errors=True)
        store, cache = APUS_STORE.format(name=name), APUS_CACHE
    configuration = APUS.format(
        name=name, listen="listen_tls" if case.tls else "listen", port=port, tls=APUS_TLS if case.tls else "",
        origin=origin, limit=limit, store=store, cache=cache)
    return run_apus(name, binary, configuration, core, clear, tls)


def start_nginx(case, core, origin):
    port, clear, tls = _ports(case)
    shutil.rmtree(RUN / "cache", ignore_errors=True)
    keepalive = case.at_a_time if case.kind == cases.QUEUE else 1024
    cache = NGINX_CACHE if case.kind == cases.CACHED else ""
    http = NGINX_HTTP.format(
        port=port, tls=" ssl http2" if case.tls else "", certificate=NGINX_TLS if case.tls else "",
        origin=origin, keepalive=keepalive, cache=cache)
    return run_nginx(http, core, clear, tls, checked_after="60s")


def start_haproxy(case, core, origin):
    port, clear, tls = _ports(case)
    limit = f" maxconn {case.at_a_time}" if case.kind == cases.QUEUE else ""
    # It wants the certificate and its key in one file.
    (RUN / "haproxy.pem").write_text((RUN / "cert.pem").read_text() + (RUN / "key.pem").read_text())
    (RUN / "haproxy.cfg").write_text(HAPROXY.format(
        port=port, tls=HAPROXY_TLS if case.tls else "", scheme="https" if case.tls else "http", origin=origin, limit=limit))
    return Server("haproxy", [host.find("haproxy"), "-db", "-f", RUN / "haproxy.cfg"], clear, tls, core)


def start_varnish(case, core, origin):
    port = host.free_port()
    shutil.rmtree(RUN / "varnish", ignore_errors=True)
    (RUN / "bench.vcl").write_text(VARNISH.format(origin=origin))
    command = [host.find("varnishd"), "-F", "-n", RUN / "varnish", "-f", RUN / "bench.vcl", "-a", f"127.0.0.1:{port}",
               "-s", "malloc,2g", "-p", "thread_pools=1", "-p", "thread_pool_min=200", "-p", "timeout_idle=300"]
    return Server("varnish", command, port, None, core)


def start_floor(case, core, origin):
    port = host.free_port()
    return Server("floor", [BUILD / "relay", port, origin], port, None, core)


START = {"nginx": start_nginx, "haproxy": start_haproxy, "varnish": start_varnish, "floor": start_floor}
