//! Field values with a grammar of their own (RFC 9110), parsed into types that are only valid.
