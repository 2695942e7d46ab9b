#!/usr/bin/env python3
"""Writes a site with a thousand rules, none of which applies to the requests of a benchmark: paths, hosts, networks, a field, user agents."""

import sys

KINDS = (
    'path matches "/app-{n}/**"',
    'host == "h{n}.example.com"',
    "client in [10.0.{n}.0/24, 172.16.{n}.0/24]",
    'header.x-key == "key-{n}"',
    'user_agent contains "Robot-{n}"',
)

port = sys.argv[1]
print(f'[[sites]]\nname = "rules"\nlisten = ["127.0.0.1:{port}"]\nroot = "files"')
for n in range(200):
    for kind in KINDS:
        print(f"[[sites.rules]]\nwhen = '{kind.format(n=n)}'\ndeny = 403")
