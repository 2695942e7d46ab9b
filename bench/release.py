#!/usr/bin/env python3
"""Builds Apus twice: first one that counts what runs under the load of `make bench`, then the one to release, laid out by these counts."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "profile-guided"
COUNTS = FOLDER / "counts"
PROFILE = FOLDER / "apus.profdata"
# Each way of a request through the server: protocols, TLS, files of each size, proxying, PHP and the cache.
CASES = ("12b-c64", "12b-browser-c64", "10k-c64", "100k-c64", "tls-10k-c64", "handshakes", "h2-10k-c64", "h2-100k-c64",
         "h3-12b-c64", "h3-10k-c64", "h3-1m-c16", "proxy-1k", "proxy-1k-browser", "proxy-10k", "proxy-100k", "proxy-h2-1k",
         "cached-10k", "php-hello")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "release-profiled" / "apus", help="where the program is put")
    parser.add_argument("--seconds", type=int, default=2, help="seconds of load for each case (default 2)")
    options = parser.parse_args()
    host = word_after("host: ", run(["rustc", "-vV"], capture=True))
    merger = llvm_profdata(host)

    shutil.rmtree(FOLDER / "counts", ignore_errors=True)
    COUNTS.mkdir(parents=True)
    # Apus gives its privileges up before it writes the counts.
    COUNTS.chmod(0o777)
    say("1 of 4: building the program that counts")
    counting = build(host, "counting", f"-Cprofile-generate={COUNTS}")
    say(f"2 of 4: load, {len(CASES)} cases")
    load = [sys.executable, ROOT / "bench/compare.py", "--apus", counting, "--only-apus", "--rounds", "1", "--seconds", options.seconds]
    # The generator is counted, too: it is part of the program.
    run([*load, *(word for case in CASES for word in ("--case", case))], environment=dict(os.environ, APUS_GENERATOR=str(counting)))
    say("3 of 4: merging the counts")
    counts = sorted(COUNTS.glob("*.profraw"))
    if not counts:
        sys.exit("release: nothing was counted")
    run([merger, "merge", "-o", PROFILE, *counts])
    say("4 of 4: building the program to release")
    built = build(host, "released", f"-Cprofile-use={PROFILE}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(built, options.out)
    say(f"built {options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


def build(host, name, flags):
    """The program, built with these flags of rustc. With --target, build scripts and macros are built without them."""
    target = FOLDER / name
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), RUSTFLAGS=f"{os.environ.get('RUSTFLAGS', '')} {flags}".strip())
    run(["cargo", "build", "--release", "--locked", "--target", host, "-p", "apus-cli"], environment=environment)
    return target / host / "release" / "apus"


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
        done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, check=True, text=True,
                              stdout=subprocess.PIPE if capture else None)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"release: {error}")
    return done.stdout


def say(line):
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    main()
