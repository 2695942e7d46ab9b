//! Digests of bodies (RFC 9530, RFC 3230, RFC 1864).

use crate::Headers;

/// Removes the digests from the header or the trailers of a message whose body is changed on its way.
pub fn remove_digests(headers: &mut Headers) {
    headers.retain(|name| {
        !matches!(
            name,
            b"content-digest" | b"content-md5" | b"digest" | b"repr-digest"
        )
    });
}
