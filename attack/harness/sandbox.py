"""The folder that every server under attack serves: files, certificates, PHP, and what nobody may see."""

import base64
import json
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from comparison import host

# What no client may see. It lies in files that are not to be served.
SECRET = "what-nobody-may-see"
HELLO = "<h1>hello</h1>"

TEXT_BYTES = 3 << 20
LARGE_BYTES = 4 << 20

# The FPM of Debian, and its CGI, which resident workers run in.
STACK = Path(__file__).resolve().parents[2] / "crates" / "tools" / "cli" / "tests" / "origins" / "php" / "stack"
PHP_PROCESSES = 8

ECHO = """<?php
$body = file_get_contents('php://input');
header('Content-Type: text/plain');
echo json_encode(['server' => $_SERVER, 'get' => $_GET, 'length' => strlen($body), 'sha256' => hash('sha256', $body),
    'said' => (int) ($_SERVER['CONTENT_LENGTH'] ?? -1)], JSON_PARTIAL_OUTPUT_ON_ERROR);
"""
LARGE = "<?php header('Content-Type: application/octet-stream'); for ($i = 0; $i < 320; $i++) { echo str_repeat('x', 65536); flush(); }"
SOCKETS = """<?php
use Apus\\{App, Request, Socket};
$app = new App();
$app->get('/', fn (): string => 'ready');
$app->socket('/chat',
    open: function (Request $request, Socket $socket): void {
        file_put_contents(__DIR__ . '/../opened', ($_COOKIE['victim'] ?? '') . "\\n", FILE_APPEND);
    },
    message: fn (Socket $socket, string $text) => null);
$app->run();
"""


def prose(size):
    """Text that compresses to about a third, as human text does."""
    numbers = random.Random(7)
    words = ["".join(numbers.choices("etaoinshrdlu", k=numbers.randint(2, 9))) for _ in range(4000)]
    lines = (" ".join(numbers.choices(words, k=12)) for _ in range(size // 60))
    return "\n".join(lines).encode()[:size]


class Sandbox:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="attack-"))
        # PHP runs as another user.
        self.folder.chmod(0o755)
        self.php = None
        self._fill()
        self._certificates()
        self._bots()

    def close(self):
        if self.php:
            self.php.stdin.close()
            self.php.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return self.folder / name

    def write(self, name, data):
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def php_socket(self):
        """The socket of a PHP-FPM that is started on first use; none where it is not installed."""
        if not self.php:
            if not shutil.which("php-fpm8.2", path=os.environ.get("PATH", "") + ":/usr/sbin"):
                return None
            self.php = subprocess.Popen([*host.DEPENDENT, STACK, self.path("php"), str(PHP_PROCESSES)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.php.stdout.readline().strip() != "ready":
                raise SystemExit("attack: PHP-FPM does not start")
        return self.path("php/fpm.sock")

    def _fill(self):
        text = prose(TEXT_BYTES)
        self.write("site/index.html", HELLO)
        self.write("site/text.txt", text)
        self.write("site/page.txt", text[:100_000])
        for number in range(2):
            # Only one attack requests them.
            self.write(f"site/few-{number}.txt", text)
            self.write(f"site/many-{number}.txt", text)
        self.write("site/large.bin", b"x" * LARGE_BYTES)
        self.write("site/files/a.txt", "a")
        self.write("guarded/index.html", HELLO)
        self.write("guarded/admin/a.txt", SECRET)
        self.write("guarded/staff/a.txt", "staff")
        self.write("guarded/limited/a.txt", "limited")
        for folder in ("bots", "members", "remembered", "links", "either", "challenged"):
            self.write(f"guarded/{folder}/a.txt", SECRET)
        self.write("links.key", "0123456789abcdef" * 4)
        # `openssl passwd -5 -salt saltsalt correct`
        self.write("htpasswd", "ada:$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1\n")
        for name in ("links.key", "htpasswd"):
            self.path(name).chmod(0o600)
        self.write("site/smuggled", "what was smuggled")
        self.write("site/private/a.txt", SECRET)
        for name in ("outside/a.txt", "a.txt", "site/.env", "site/.git/config", "site/.htaccess"):
            self.write(name, SECRET)
        self.write("only/index.html", SECRET)
        for name, to in {"link.txt": "../a.txt", "out": "../outside", "passwd": "/etc/passwd"}.items():
            self.path("site").joinpath(name).symlink_to(to)
        for name, to in {"linked.key": "localhost.key", "linked.toml": "apus.toml", "linked.conf": "nginx.conf"}.items():
            self.path(name).symlink_to(to)
        self.write("php-site/echo.php", ECHO)
        self.write("php-site/large.php", LARGE)
        self.write("php-site/uploads/picture.jpg", "<?php echo 'ran-an-upload';")
        self.write("php-site/left.php~", f"<?php // {SECRET}")
        self.write("php-site/left.php.bak", f"<?php // {SECRET}")
        self.write("php-site/left.inc", f"<?php // {SECRET}")
        self.write("php-site/source.php", f"<?php // {SECRET}\necho 'ran';")
        self.write("sockets/public/index.php", SOCKETS)
        self.path("sockets").chmod(0o777)

    def _bots(self):
        """Keys of Ed25519: of a bot that the server knows, and of one that it does not."""
        for name in ("crawler", "stranger"):
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.private"], cwd=self.folder, check=True, capture_output=True)
        key = {"kty": "OKP", "crv": "Ed25519", "x": self.public_key("crawler")}
        self.write("crawler.jwks", json.dumps({"keys": [key]}))

    def public_key(self, name):
        """The public key of a bot, as the member `x` of a JSON Web Key has it."""
        der = subprocess.run(["openssl", "pkey", "-in", f"{name}.private", "-pubout", "-outform", "DER"], cwd=self.folder, check=True, capture_output=True)
        return base64.urlsafe_b64encode(der.stdout[-32:]).decode().rstrip("=")

    def sign(self, name, text):
        """The signature of a text by the key of a bot."""
        message = self.write("to-sign", text)
        signed = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", f"{name}.private", "-rawin", "-in", message],
                                cwd=self.folder, check=True, capture_output=True)
        return signed.stdout

    def _certificates(self):
        names = {"localhost": [f"{name}.test" for name in ("php", "resident", "secure", "sockets", "a", "b", "c")], "only.test": [], "client": []}
        for name, more in names.items():
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "30", "-subj", f"/CN={name}",
                 "-addext", "subjectAltName=" + ",".join(f"DNS:{each}" for each in (name, *more))],
                cwd=self.folder, check=True, capture_output=True)
