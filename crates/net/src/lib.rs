//! The engine: workers, listeners, TLS and sockets.
