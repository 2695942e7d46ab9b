"""PHP behind Apus and nginx: one PHP-FPM, MariaDB and code for all, and a server in front of them at a time.

What PHP itself costs is counted apart, by the processes of its pool.
"""

import os
import shutil
import subprocess
import sys
import urllib.request

from . import host
from .servers import BENCH, RUN, run_apus, run_nginx

STACK = BENCH.parent / "crates" / "cli" / "tests" / "origins" / "php" / "stack"

WORDPRESS, EXAMPLE, RABBIT, HELLO = "wordpress", "example", "rabbit", "hello"
PARTS = {WORDPRESS: ("wordpress",), EXAMPLE: ("example",), RABBIT: ("rabbit",), HELLO: ("scripts",)}

# Applications whose front controller handles all requests.
WITH_FRONT_CONTROLLER = (EXAMPLE, RABBIT)

# Apus with workers, as clients reach it, and behind nginx.
RESIDENT, PROXIED = "resident", "resident-behind-nginx"

# Installs the blog as its installer does, and fills its front page.
INSTALL = """
$_SERVER['HTTP_HOST'] = '127.0.0.1';
$_SERVER['REQUEST_METHOD'] = 'GET';
define('WP_INSTALLING', true);
require 'wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Apus apus', 'swift', 'swift@bench.test', true, '', 'on the wing');
update_option('permalink_structure', '/%postname%/');
flush_rewrite_rules();
for ($number = 1; $number <= 10; $number++) {
    wp_insert_post(['post_title' => "Swift $number", 'post_status' => 'publish', 'post_author' => 1,
        'post_content' => str_repeat('<p>Apus apus sleeps on the wing, and eats and drinks there.</p>', 5)]);
}
"""

# As the handbook of WordPress has it, and nginx's own page on PHP.
NGINX_HTTP = """\
    fastcgi_cache_path cache-of-{name} keys_zone=bench:10m max_size=1g inactive=1h use_temp_path=off;
    upstream php {{
        server unix:{socket};
        {keepalive}
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {root};
        index index.php;
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            try_files $uri =404;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param HTTP_PROXY "";
            fastcgi_pass php;
            fastcgi_keep_conn {keep_conn};
            fastcgi_read_timeout 120s;
            fastcgi_buffers 16 16k;
            fastcgi_buffer_size 32k;
            {cache}
        }}
    }}
"""

# For as long as the load goes on, a connection and thus its process serves any client.
NGINX_KEEPALIVE = "keepalive {connections}; keepalive_requests 1000000000; keepalive_time 24h;"

# The usual rules of a WordPress behind fastcgi_cache: who is known, and what is sent, is never stored.
NGINX_CACHE = """\
set $skip 0;
            if ($request_method = POST) {{ set $skip 1; }}
            if ($query_string != "") {{ set $skip 1; }}
            if ($http_cookie ~* "comment_author|wordpress_[a-f0-9]+|wp-postpass|wordpress_logged_in") {{ set $skip 1; }}
            fastcgi_cache bench;
            fastcgi_cache_key "$scheme$request_method$host$request_uri";
            fastcgi_cache_valid 200 1h;
            fastcgi_cache_bypass $skip;
            fastcgi_no_cache $skip;
            fastcgi_cache_lock on;
            add_header X-FastCGI-Cache $upstream_cache_status;"""

# nginx as a reverse proxy in front of Apus.
NGINX_PROXY = """\
    upstream apus {{
        server 127.0.0.1:{origin};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_pass http://apus;
        }}
    }}
"""

APUS = """\
[global]
worker_threads = 1
keepalive_timeout = 300
control_socket = "{name}.sock"

[[sites]]
name = "bench"
listen = ["127.0.0.1:{port}"]
root = "{root}"
{site}
"""


class Stack:
    """MariaDB and the applications, and a PHP-FPM for each server: as they keep connections, one would take its processes
    from another. On one core, if that is said."""

    # As many processes as Debian's pool has by default.
    CHILDREN = 5

    def __init__(self, *parts, core=None):
        self.pinned = [] if core is None else ["taskset", "-c", str(core)]
        self.started = []
        self.folder, _ = self._start("php", 1, "database", *parts)
        if "wordpress" in parts:
            subprocess.run(["php", "-d", "sendmail_path=/bin/true", "-r", INSTALL], cwd=self.folder / "wordpress",
                           check=True, stdout=subprocess.DEVNULL)

    def start_fpm(self, name, children=CHILDREN):
        """Its socket, and its master."""
        folder, pid = self._start(
            f"php-{name}", children, APUS_PHP=str(self.folder / "apus.php"),
            RABBIT_SOCKET=f"{self.folder}/db.sock",
            EXAMPLE_DSN=f"mysql:unix_socket={self.folder}/db.sock;dbname=example;charset=utf8mb4")
        return folder / "fpm.sock", pid

    def root(self, kind):
        return self.folder / {WORDPRESS: "wordpress", HELLO: "scripts", EXAMPLE: "example/public",
                              RABBIT: "rabbit/public"}[kind]

    def _start(self, name, children, *parts, **environment):
        folder = RUN / name
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen([*self.pinned, STACK, folder, str(children), *parts], env=dict(os.environ, **environment),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        if process.stdout.readline().strip() != "ready":
            sys.exit("bench: PHP does not start; `make tools` installs what it needs")
        return folder, int((folder / "fpm.pid").read_text())

    def stop(self):
        for process in reversed(self.started):
            process.stdin.close()
            process.wait()


def start_nginx(case, core, stack):
    """As it is by default: a connection to PHP for each request."""
    return _start_nginx("nginx", case, core, stack)


def start_nginx_keepalive(case, core, stack):
    """With connections to PHP that stay open. It has no queue, and a process serves none but its connection: with fewer
    processes than clients some clients would wait for ever, and wrk would not report them."""
    return _start_nginx("nginx-keepalive", case, core, stack, max(case.connections, stack.CHILDREN))


def _start_nginx(name, case, core, stack, kept=0):
    port = host.free_port()
    socket, pid = stack.start_fpm(name, kept or stack.CHILDREN)
    shutil.rmtree(RUN / f"cache-of-{name}", ignore_errors=True)
    http = NGINX_HTTP.format(
        name=name, port=port, root=stack.root(case.kind), socket=socket, cache=NGINX_CACHE.format() if case.cached else "",
        keepalive=NGINX_KEEPALIVE.format(connections=kept) if kept else "", keep_conn="on" if kept else "off")
    return run_nginx(http, core, port, php_pid=pid, name=name)


NGINX = {"nginx": start_nginx, "nginx-keepalive": start_nginx_keepalive}


def start_apus(case, core, stack, binary, name="apus"):
    lines = []
    if case.kind == WORDPRESS:
        lines.append('preset = "wordpress"')
    if case.kind in WITH_FRONT_CONTROLLER:
        lines.append('fastcgi.front_controller = "/index.php"')
    if case.cached:
        lines.append("fastcgi.cache = { ttl = 3600 }")
    return _start_apus(name, case, core, stack, binary, lines, stack.start_fpm(name))


def start_resident(case, core, stack, binary, name=RESIDENT):
    """Apus with the application in the memory of PHP-FPM's processes; one is left for other requests."""
    script = "/index.php" if case.kind in WITH_FRONT_CONTROLLER else case.path
    workers = f'{{ mode = "{case.resident}", min = {stack.CHILDREN}, max = {stack.CHILDREN} }}'
    lines = [f'fastcgi = {{ front_controller = "{script}", workers = {workers} }}']
    return _start_apus(name, case, core, stack, binary, lines, stack.start_fpm(name, stack.CHILDREN + 1))


def start_proxied(core, origin):
    """nginx in front of a resident Apus. Both share one core, and their CPU is counted together."""
    port = host.free_port()
    http = NGINX_PROXY.format(port=port, origin=origin.clear)
    server = run_nginx(http, core, port, php_pid=origin.php_pid, name=PROXIED)
    server.origin = origin
    return server


def length_of(server, path):
    """Bytes of a page."""
    with urllib.request.urlopen(server.url(path)) as response:
        return len(response.read())


def _start_apus(name, case, core, stack, binary, lines, fpm):
    port = host.free_port()
    socket, pid = fpm
    lines = [f'php_fastcgi = "{socket}"', *lines]
    text = APUS.format(name=name, port=port, root=stack.root(case.kind), site="\n".join(lines))
    return run_apus(name, binary, text, core, port, php_pid=pid)
