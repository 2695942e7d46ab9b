//! The decisions of a shared cache (RFC 9111): pure functions over fields and times.
