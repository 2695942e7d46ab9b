#!/usr/bin/env python3
"""Builds Apus, or libapus, twice: first one that counts what runs under the load of `make bench`, then the one to release, laid out by these counts."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from comparison import host, servers

BENCH = servers.BENCH
ROOT = BENCH.parent
# Each way of a request through the server: protocols, TLS, files of each size, proxying and the cache.
CASES = ("12b-c64", "12b-browser-c64", "10k-c64", "100k-c64", "tls-10k-c64", "handshakes", "h2-10k-c64", "h2-100k-c64",
         "h3-12b-c64", "h3-10k-c64", "h3-1m-c16", "proxy-1k", "proxy-1k-browser", "proxy-10k", "proxy-100k", "proxy-h2-1k",
         "cached-10k")
# With PHP; and by handlers in C.
OF_PROGRAM = ("php-hello",)
OF_LIBRARY = ("c-12b-c50", "c-1k-c50", "c-10k-c50", "c-100k-c50")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", action="store_true", help="libapus.a for programs in C, instead of the program apus")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "release-profiled", help="the folder of what is built")
    parser.add_argument("--seconds", type=int, default=2, help="seconds of load for each case (default 2)")
    options = parser.parse_args()
    host.end_in_order()
    release = Release(options.library, options.seconds)
    merger = llvm_profdata(release.host)

    say("1 of 4: building what counts")
    counting = release.build("counting", f"-Cprofile-generate={release.counts}")
    say("2 of 4: load")
    release.load(counting)
    say("3 of 4: merging the counts")
    counts = sorted(release.counts.glob("*.profraw"))
    if not counts:
        sys.exit("release: nothing was counted")
    profile = release.folder / "merged.profdata"
    run([merger, "merge", "-o", profile, *counts])
    say("4 of 4: building what is released")
    built = release.build("released", f"-Cprofile-use={profile}")
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / built.name
    shutil.copy2(built, out)
    say(f"built {out}: {out.stat().st_size / 1e6:.1f} MB")


class Release:
    """What is built: the program, or the library."""

    def __init__(self, is_library, seconds):
        self.package, self.file = ("apus-capi", "libapus_capi.a") if is_library else ("apus-cli", "apus")
        self.is_library = is_library
        self.seconds = seconds
        self.host = word_after("host: ", run(["rustc", "-vV"], capture=True))
        self.folder = ROOT / "target" / "profile-guided" / self.package
        self.counts = self.folder / "counts"
        shutil.rmtree(self.counts, ignore_errors=True)
        self.counts.mkdir(parents=True)
        # Apus gives its privileges up before it writes the counts.
        self.counts.chmod(0o777)

    def build(self, name, flags):
        """The file, built with these flags of rustc. With --target, build scripts and macros are built without them."""
        target = self.folder / name
        environment = dict(os.environ, CARGO_TARGET_DIR=str(target), RUSTFLAGS=f"{os.environ.get('RUSTFLAGS', '')} {flags}".strip())
        run(["cargo", "build", "--release", "--locked", "--target", self.host, "-p", self.package], environment=environment)
        return target / self.host / "release" / self.file

    def load(self, counting):
        """Loads what counts with each case."""
        compare = [sys.executable, BENCH / "compare.py", "--only-apus", "--rounds", "1", "--seconds", self.seconds, *chosen(CASES)]
        if not self.is_library:
            # The generator is counted, too: it is part of the program.
            run([*compare, *chosen(OF_PROGRAM), "--apus", counting], environment=dict(os.environ, APUS_GENERATOR=str(counting)))
            return
        # C programs write no counts unless their linker is told to take in what does it.
        environment = dict(os.environ, LIBRARY=str(counting), BUILT=str(self.folder), LDFLAGS="-Wl,-u,__llvm_profile_runtime")
        run([BENCH / "embedded/build", "configured"], environment=environment)
        run([*compare, "--apus", self.folder / "configured"])
        run([servers.generator(), "bench", "compare", BENCH / "cases/embedded.toml", "--rounds", "1", "--duration", f"{self.seconds}s",
             "--set", f"beside={counting}", "--server", "beside", *chosen(OF_LIBRARY)],
            environment=environment)


def chosen(cases):
    return [word for case in cases for word in ("--case", case)]


def llvm_profdata(host):
    """The program that merges counts, of the compiler's own LLVM."""
    root = run(["rustc", "--print", "sysroot"], capture=True).strip()
    program = Path(root) / "lib/rustlib" / host / "bin/llvm-profdata"
    if not program.exists():
        if not shutil.which("rustup"):
            sys.exit(f"release: {program} is missing; it is part of the component llvm-tools of rustup")
        run(["rustup", "component", "add", "llvm-tools"])
    return program


def word_after(label, text):
    return next(line.removeprefix(label).strip() for line in text.splitlines() if line.startswith(label))


def run(command, environment=None, capture=False):
    try:
        done = subprocess.run([*host.DEPENDENT, *map(str, command)], cwd=ROOT, env=environment, check=True, text=True,
                              stdout=subprocess.PIPE if capture else None)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"release: {error}")
    return done.stdout


def say(line):
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    main()
