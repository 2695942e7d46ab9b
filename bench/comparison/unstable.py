"""Programs of Debian unstable, unpacked beside the programs of this system: its nginx has HTTP/3, and is the newest."""

import subprocess
import sys
from pathlib import Path

from .servers import BUILD

FOLDER = BUILD / "unstable"
ROOT = FOLDER / "root"
LIBRARIES = ROOT / "usr/lib/x86_64-linux-gnu"
SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main\n"
# nginx, and the libraries that it is linked with.
PACKAGES = ("nginx", "libc6", "libssl3t64", "libpcre2-8-0", "libcrypt1", "zlib1g", "libzstd1")


def nginx():
    """The command that runs nginx of Debian unstable, which is fetched the first time."""
    program = ROOT / "usr/sbin/nginx"
    if not program.exists():
        _fetch()
    return [LIBRARIES / "ld-linux-x86-64.so.2", "--library-path", LIBRARIES, program]


def _fetch():
    """By apt, with separate lists and settings: the lists and settings of the system stay as they are."""
    print("fetching", *PACKAGES, "of Debian unstable", flush=True)
    for folder in ("lists/partial", "archives/partial", "packages"):
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
    (FOLDER / "sources.list").write_text(SOURCE)
    (FOLDER / "status").touch()
    options = ["-qq"]
    for name, value in (("Dir::Etc::sourcelist", FOLDER / "sources.list"), ("Dir::Etc::sourceparts", "/dev/null"),
                        ("Dir::State", FOLDER), ("Dir::State::status", FOLDER / "status"), ("Dir::Cache", FOLDER),
                        ("APT::Sandbox::User", "root")):
        options += ["-o", f"{name}={value}"]
    packages = FOLDER / "packages"
    try:
        subprocess.run(["apt-get", *options, "update"], check=True)
        subprocess.run(["apt-get", *options, "download", *PACKAGES], cwd=packages, check=True)
        for package in sorted(packages.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, ROOT], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench: nginx of Debian unstable cannot be had: {error}")
