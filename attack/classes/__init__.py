"""The attacks, a module for each class."""

from . import framing, http2, http3, slow, ranges, paths, identity, access, admission, cache, upgrade, memory, logs, upstream, bodies, certificates, admin  # noqa: F401
