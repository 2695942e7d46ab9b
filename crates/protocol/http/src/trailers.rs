//! The fields that a trailer section may have (RFC 9110 section 6.5).

use crate::known_field::is_internal_field;

/// Whether a trailer section may have a field; `name` is in lower case.
///
/// RFC 9110 section 6.5.1 excludes fields of framing, routing, authentication, request modifiers,
/// response control and the format of the content. A recipient that merges trailers into the head
/// would change decisions that are based on the head. Fields for the server itself (`X-Accel-Redirect`) are for
/// no client. The proxy removes identity fields itself.
pub fn is_allowed_in_trailers(name: &[u8]) -> bool {
    !matches!(
        name,
        // Framing and the connection.
        b"connection"
            | b"content-length"
            | b"http2-settings"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"trailer"
            | b"transfer-encoding"
            | b"upgrade"
            // Routing. CGI programs read the variable of `Proxy` as their own configuration (httpoxy).
            | b"host"
            | b"max-forwards"
            | b"proxy"
            | b"via"
            // Authentication and state.
            | b"authorization"
            | b"cookie"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"set-cookie"
            | b"www-authenticate"
            // Request modifiers.
            | b"cache-control"
            | b"expect"
            | b"if-match"
            | b"if-modified-since"
            | b"if-none-match"
            | b"if-range"
            | b"if-unmodified-since"
            | b"pragma"
            | b"range"
            // Control of a response.
            | b"age"
            | b"date"
            | b"expires"
            | b"location"
            | b"retry-after"
            | b"vary"
            // The format of the content.
            | b"content-encoding"
            | b"content-range"
            | b"content-type"
    ) && !is_internal_field(name)
}

#[cfg(test)]
mod tests {
    use super::is_allowed_in_trailers;

    #[test]
    fn fields_that_decide_about_a_message_are_not_allowed_in_trailers() {
        for name in [
            "host",
            "content-length",
            "te",
            "cookie",
            "set-cookie",
            "vary",
            "x-accel-redirect",
            "x-sendfile",
            "x-apus-events",
        ] {
            assert!(!is_allowed_in_trailers(name.as_bytes()), "{name}");
        }
        // RFC 9110 section 8.8.3, RFC 9530, RFC 7615, Server-Timing and gRPC.
        for name in [
            "etag",
            "content-digest",
            "repr-digest",
            "authentication-info",
            "server-timing",
            "grpc-status",
            "grpc-message",
        ] {
            assert!(is_allowed_in_trailers(name.as_bytes()), "{name}");
        }
    }
}
