#!/usr/bin/env python3
"""A WSGI application served by libapus: `hello.py [ADDRESS]`. apus.py beside it calls the library by cffi."""
import sys

import apus


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    name = environ["PATH_INFO"].strip("/") or "world"
    return [f"Hello, {name}!\n".encode("latin-1")]  # as WSGI has the bytes of a path


if __name__ == "__main__":
    apus.serve(application, *sys.argv[1:2])
