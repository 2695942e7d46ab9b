"""The servers under attack: how each is configured, with nothing that hardens it, and started."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from comparison import host

from . import attack

HERE = Path(__file__).resolve().parent

# A proxy that is trusted. It is on this machine, as everything is; other addresses of 127.0.0.0/8 are strangers.
TRUSTED = "127.0.0.9"

APUS = """\
[global]
control_socket = "apus.sock"
access_log = {{ path = "access.log", format = "$remote_addr $request_uri" }}
trusted_proxies = "{trusted}"
acme_folder = "acme"
cache = {{ dir = "apus-cache", size = 200 }}
admin_listen = "127.0.0.1:{admin}"
admin_allow = "127.0.0.1"
admin_names = "operator.test"

[[global.bots]]
name = "crawler"
keys_file = "crawler.jwks"

[[global.bots]]
name = "fetched"
directory = "http://127.0.0.1:{origin}/keys-of-bots"

[[global.rules]]
name = "host"
when = 'host == "closed.test"'
deny = 403

[[sites]]
name = "guarded"
server_name = ["guarded.test", "closed.test"]
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
root = "guarded"
tls = {{ cert = "localhost.pem", key = "localhost.key" }}
rules = [
    {{ name = "path", when = 'path matches "/admin/**"', deny = 403 }},
    {{ name = "client", when = "client in 127.0.0.66", deny = 403 }},
    {{ name = "trap", when = 'path == "/trap"', ban = "10m" }},
    {{ name = "key", when = 'header.x-key == "bad" or cookie.role == "bad" or query.key == "bad" or method == "DELETE"', deny = 403 }},
    {{ name = "bots", when = 'path matches "/bots/**" and not bot in ["crawler", "fetched"]', deny = 403 }},
    {{ name = "challenge", when = 'path matches "/challenged/**"', challenge = true }},
]

[[sites.upstreams]]
name = "authority"
nodes = ["127.0.0.1:{origin}"]
first_byte_timeout = 2
total_timeout = 4

[[sites.locations]]
path = "/members/"
forward_auth = {{ to = "authority", uri = "/may-enter", copy_headers = "X-Groups", user_header = "Remote-User" }}

[[sites.locations]]
path = "/api/members/"
upstream = "http://127.0.0.1:{origin}"
forward_auth = {{ to = "authority", uri = "/may-enter", copy_headers = "X-Groups", user_header = "Remote-User" }}

[[sites.locations]]
path = "/remembered/"
forward_auth = {{ to = "authority", uri = "/may-enter", cache = {{ time = 60 }} }}

[[sites.locations]]
path = "/api/remembered/"
upstream = "http://127.0.0.1:{origin}"
forward_auth = {{ to = "authority", uri = "/may-enter", copy_headers = "Remote-User", cache = {{ time = 60 }} }}

[[sites.locations]]
path = "/links/"
signed_url = {{ key_file = "links.key" }}

[[sites.locations]]
path = "/either/"
satisfy = "any"
allow = "127.0.0.77"
basic_auth = {{ users_file = "htpasswd", failures_per_minute = 0 }}

[[sites.locations]]
path = "/staff/"
allow = "127.0.0.77"

[[sites.locations]]
path = "/limited/"
limits = [{{ name = "limited", rate = "3/h" }}]

[[sites]]
name = "neighbour"
server_name = "neighbour.test"
listen = ["127.0.0.1:{clear}"]
root = "guarded"
rules = [
    {{ name = "bots", when = 'path matches "/bots/**" and not bot in ["crawler", "fetched"]', deny = 403 }},
    {{ name = "challenge", when = 'path matches "/challenged/**"', challenge = true }},
]

[[sites]]
name = "attacked"
server_name = ["localhost", "_"]
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
root = "site"
tls = {{ cert = "localhost.pem", key = "localhost.key" }}

[[sites.upstreams]]
name = "origin"
nodes = ["127.0.0.1:{origin}"]

[[sites.locations]]
path = "/api/"
upstream = "origin"

[[sites.locations]]
path = "/mapped/"
upstream = "origin/public/"

[[sites.locations]]
path = "/cached/"
upstream = "origin"
cache = true

[[sites.locations]]
path = "/ids/"
upstream = "origin"
cache = {{ key.query = ["id", "a_b"] }}

[[sites.locations]]
path = "/preview/"
upstream = "origin"
cache = {{ bypass_cookies = ["preview"], session_cookies = ["sid"] }}

[[sites.locations]]
path = "/tenants/"
upstream = "origin"
cache = {{ key.headers = ["X-Tenant"] }}
request_headers.set = {{ X-Role = "guest" }}

[[sites.locations]]
path = "/private/"
return = {{ status = 403 }}

[[sites.locations]]
path = "= /moved"
return = {{ status = 301, location = "$scheme://$host/" }}

[[sites.locations]]
path = "/docs"
alias = "site/files/"
{php}
[[sites]]
name = "secure"
server_name = "secure.test"
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
root = "site"
force_https = true
tls = {{ cert = "localhost.pem", key = "localhost.key" }}

[[sites]]
name = "whole"
server_name = "whole.test"
listen = ["127.0.0.1:{clear}"]
root = "."
listing = true
hidden_files = true
symlinks = "all"

[[sites]]
name = "only"
server_name = "only.test"
listen_tls = ["127.0.0.1:{tls}"]
root = "only"
tls = {{ cert = "only.test.pem", key = "only.test.key", client_auth = "required", client_ca = "client.pem" }}

[[sites]]
name = "shops"
server_name = "*.shops.test"
listen_tls = ["127.0.0.1:{tls}"]
root = "site"

[sites.tls]
acme_agree = true
acme_on_demand = {{ ask = "http://127.0.0.1:{origin}/may-have-certificate" }}
"""

APUS_PHP = """
[[sites]]
name = "guarded-php"
server_name = "guarded-php.test"
listen = ["127.0.0.1:{clear}"]
root = "php-site"
php_fastcgi = "{socket}"
rules = [{{ when = 'path == "/echo.php"', deny = 403 }}]

[[sites]]
name = "php"
server_name = "php.test"
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
tls = {{ cert = "localhost.pem", key = "localhost.key" }}
root = "php-site"
php_fastcgi = "{socket}"
"""

APUS_RESIDENT = """
[[sites]]
name = "resident"
server_name = "resident.test"
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
tls = {{ cert = "localhost.pem", key = "localhost.key" }}
root = "php-site"
php_fastcgi = "{program}"
fastcgi = {{ front_controller = "/echo.php", workers = {{ mode = "classic", min = 1, max = 2 }} }}

[[sites]]
name = "sockets"
server_name = "sockets.test"
listen = ["127.0.0.1:{clear}"]
listen_tls = ["127.0.0.1:{tls}"]
tls = {{ cert = "localhost.pem", key = "localhost.key" }}
root = "sockets/public"
php_fastcgi = "{program}"
fastcgi = {{ front_controller = "/index.php", workers = {{ mode = "native", min = 1, max = 2 }} }}
"""

NGINX = """\
daemon off;
{user}worker_processes 2;
pid nginx.pid;
error_log nginx.log error;
events {{ worker_connections 4096; }}
http {{
    log_format brief '$remote_addr $request_uri';
    access_log access-nginx.log brief;
    types {{ text/html html; text/plain txt; application/octet-stream bin; }}
    client_body_temp_path nginx-body; proxy_temp_path nginx-proxy; fastcgi_temp_path nginx-fastcgi;
    uwsgi_temp_path nginx-uwsgi; scgi_temp_path nginx-scgi;
    proxy_cache_path nginx-cache keys_zone=attack:10m max_size=200m use_temp_path=off;
    client_max_body_size 50m;
    gzip on; gzip_types text/plain;
    set_real_ip_from {trusted};
    real_ip_header X-Forwarded-For;
    ssl_certificate localhost.pem;
    ssl_certificate_key localhost.key;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 16; }}
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    proxy_http_version 1.1;
    proxy_set_header Host $host;
    proxy_set_header Connection $connection_upgrade;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    server {{
        listen 127.0.0.1:{clear} default_server;
        listen 127.0.0.1:{tls} ssl http2 default_server;
        server_name localhost;
        root site;
        location /api/ {{ proxy_pass http://origin; }}
        location /mapped/ {{ proxy_pass http://origin/public/; }}
        location /cached/ {{ proxy_pass http://origin; proxy_cache attack; }}
        location /ids/ {{ proxy_pass http://origin; proxy_cache attack; proxy_cache_key $scheme$host$uri$arg_id$arg_a_b; }}
        location /preview/ {{ proxy_pass http://origin; proxy_cache attack; proxy_cache_bypass $cookie_preview; proxy_no_cache $cookie_preview; }}
        location /tenants/ {{
            proxy_pass http://origin; proxy_cache attack; proxy_cache_key $scheme$host$request_uri$http_x_tenant;
            proxy_set_header Host $host; proxy_set_header X-Role guest; proxy_set_header Connection "";
            proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
        location /private/ {{ return 403; }}
        location = /moved {{ return 301 $scheme://$host/; }}
        location /docs {{ alias site/files/; }}
    }}
    server {{
        listen 127.0.0.1:{clear};
        server_name whole.test;
        root .;
        autoindex on;
    }}
    server {{
        listen 127.0.0.1:{tls} ssl http2;
        server_name only.test;
        ssl_certificate only.test.pem;
        ssl_certificate_key only.test.key;
        ssl_client_certificate client.pem;
        ssl_verify_client on;
        root only;
    }}
{php}}}
"""

NGINX_PHP = """\
    server {{
        listen 127.0.0.1:{clear};
        listen 127.0.0.1:{tls} ssl http2;
        server_name php.test;
        root php-site;
        location ~ \\.php$ {{
            try_files $uri =404;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{socket};
        }}
    }}
"""


H2O = """\
num-threads: 2
max-connections: 4096
{user}pid-file: h2o.pid
error-log: h2o.log
access-log:
  path: access-h2o.log
  format: "%h %U"
compress: ON
proxy.preserve-host: ON
hosts:
  default:
    listen:
      host: 127.0.0.1
      port: {clear}
    listen:
      host: 127.0.0.1
      port: {tls}
      ssl:
        certificate-file: localhost.pem
        key-file: localhost.key
    paths:
      /api/:
        proxy.reverse.url: http://127.0.0.1:{origin}/api/
        proxy.websocket: ON
      /mapped/:
        proxy.reverse.url: http://127.0.0.1:{origin}/public/
      /moved:
        redirect: http://localhost/
      /docs:
        file.dir: site/files
      /:
        file.dir: site
"""

HAPROXY = """\
global
    nbthread 2
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout http-request 10s
    option forwardfor
frontend attacked
    bind 127.0.0.1:{clear}
    bind 127.0.0.1:{tls} ssl crt haproxy.pem alpn h2,http/1.1
    http-request deny deny_status 403 if {{ path_beg /private/ }}
    http-request redirect location http://localhost/ code 301 if {{ path /moved }}
    http-request return status 200 content-type text/html file site/index.html if {{ path / }}
    http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]
    http-request replace-path /mapped/(.*) /public/\\1
    default_backend origin
backend origin
    server one 127.0.0.1:{origin}
"""


class Server:
    """A server that was started for this run and ends with it."""

    # What is attacked of it.
    features = frozenset()

    def __init__(self, name, sandbox, origin):
        self.name, self.sandbox, self.origin = name, sandbox, origin
        self.clear, self.tls, self.admin = host.free_port(), host.free_port(), host.free_port()
        self.process = None

    def start(self, descriptors=None):
        """Starts it anew, with this limit of open files."""
        self.stop()
        self.prepare()
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))) if descriptors else None
        log = self.sandbox.path(f"{self.name}.output").open("ab")
        environment = dict(os.environ, HOME=str(self.sandbox.folder), XDG_RUNTIME_DIR=str(self.sandbox.folder))
        self.process = host.Dependent(
            self.command(), cwd=self.sandbox.folder, env=environment,
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=limit)
        log.close()

    def stop(self):
        if not self.process:
            return
        for end in (self.process.terminate, self.process.kill):
            end()
            try:
                self.process.wait(2)
                break
            except subprocess.TimeoutExpired:
                pass
        self.process = None

    def output(self):
        """The end of what it wrote."""
        return self.sandbox.path(f"{self.name}.output").read_text(errors="replace")[-2000:]

    def prepare(self):
        """Writes its configuration."""

    def command(self):
        raise NotImplementedError

    def version(self):
        """What it calls itself."""
        return self.name


class Apus(Server):
    def __init__(self, sandbox, origin, binary):
        super().__init__("apus", sandbox, origin)
        self.binary = binary.resolve()
        self.socket = sandbox.php_socket()
        self.program = shutil.which("php-cgi8.2") or shutil.which("php-cgi")
        self.features = frozenset({
            attack.STATIC, attack.PROXY, attack.CACHE, attack.DISK, attack.TLS, attack.HTTP2, attack.HTTP3, attack.PROCESS, attack.ON_DEMAND,
            attack.RULES, attack.ADMIN,
            *([attack.PHP] if self.socket else []), *([attack.RESIDENT] if self.program else [])})

    def prepare(self):
        ports = {"clear": self.clear, "tls": self.tls}
        self.origin.script("/may-have-certificate", b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        shutil.rmtree(self.sandbox.path("apus-cache"), ignore_errors=True)
        php = APUS_PHP.format(socket=self.socket, **ports) if self.socket else ""
        php += APUS_RESIDENT.format(program=self.program, **ports) if self.program else ""
        self.sandbox.write("apus.toml", APUS.format(trusted=TRUSTED, origin=self.origin.port, admin=self.admin, php=php, **ports))

    def command(self):
        return [self.binary, "serve", self.sandbox.path("apus.toml")]

    def version(self):
        return host.first_line([self.binary, "--version"])


class Nginx(Server):
    program = "nginx"

    def __init__(self, sandbox, origin):
        super().__init__("nginx", sandbox, origin)
        self.socket = sandbox.php_socket()
        self.features = frozenset({
            attack.STATIC, attack.PROXY, attack.CACHE, attack.DISK, attack.TLS, attack.HTTP2, attack.PROCESS,
            *([attack.PHP] if self.socket else [])})

    def prepare(self):
        shutil.rmtree(self.sandbox.path("nginx-cache"), ignore_errors=True)
        php = NGINX_PHP.format(socket=self.socket, clear=self.clear, tls=self.tls) if self.socket else ""
        user = "user root;\n" if os.geteuid() == 0 else ""
        self.sandbox.write("nginx.conf", NGINX.format(
            user=user, trusted=TRUSTED, origin=self.origin.port, clear=self.clear, tls=self.tls, php=php))

    def command(self):
        folder = self.sandbox.folder
        return [host.find("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "nginx.log"]

    def version(self):
        return host.first_line([host.find("nginx"), "-v"]).removeprefix("nginx version: ")


class H2o(Server):
    program = "h2o"
    features = frozenset({attack.STATIC, attack.PROXY, attack.TLS, attack.HTTP2, attack.PROCESS})

    def __init__(self, sandbox, origin):
        super().__init__("h2o", sandbox, origin)

    def prepare(self):
        user = "user: root\n" if os.geteuid() == 0 else ""
        self.sandbox.write("h2o.conf", H2O.format(user=user, origin=self.origin.port, clear=self.clear, tls=self.tls))

    def command(self):
        return [host.find("h2o"), "-c", self.sandbox.path("h2o.conf")]

    def version(self):
        return host.first_line([host.find("h2o"), "--version"])


class Haproxy(Server):
    program = "haproxy"
    features = frozenset({attack.PROXY, attack.TLS, attack.HTTP2, attack.PROCESS})

    def __init__(self, sandbox, origin):
        super().__init__("haproxy", sandbox, origin)

    def prepare(self):
        pair = [self.sandbox.path(name).read_text() for name in ("localhost.pem", "localhost.key")]
        self.sandbox.write("haproxy.pem", "".join(pair))
        self.sandbox.write("haproxy.cfg", HAPROXY.format(origin=self.origin.port, clear=self.clear, tls=self.tls))

    def command(self):
        return [host.find("haproxy"), "-f", self.sandbox.path("haproxy.cfg"), "-db"]

    def version(self):
        return host.first_line([host.find("haproxy"), "-v"])


class Careless(Server):
    """The server of `--self-check`, which no attack may spare."""

    program = "python3"
    features = frozenset({attack.STATIC, attack.PROXY, attack.CACHE, attack.TLS, attack.HTTP2, attack.PROCESS, attack.RULES, attack.ADMIN})

    def __init__(self, sandbox, origin):
        super().__init__("careless", sandbox, origin)

    def command(self):
        return [sys.executable, HERE / "careless.py", self.clear, self.tls, self.admin, self.origin.port, self.sandbox.folder, TRUSTED]


PEERS = {"nginx": Nginx, "h2o": H2o, "haproxy": Haproxy, "careless": Careless}


def installed_peers():
    return [name for name, peer in PEERS.items() if host.find(peer.program)]
