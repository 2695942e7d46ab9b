"""The attacks, a module for each class."""

from . import framing, http2, http3, slow, ranges, paths, identity, access, cache, upgrade, memory, logs, upstream, bodies, certificates  # noqa: F401
