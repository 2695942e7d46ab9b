//! What is stored of a response besides its body.

use bytes::Bytes;

/// The metadata of a stored response. A validation replaces it as a whole (RFC 9111 section 4.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMetadata {
    /// The encoded metadata of the policy.
    pub policy: Bytes,
    /// The header fields, as they are sent.
    pub fields: Bytes,
    /// When it becomes useless, in seconds since 1970: a hint for eviction.
    pub expires: u64,
    /// When it was received or last validated, in seconds since 1970. An object on disk with a
    /// later time than now is dropped, because its age is unknown.
    pub received: u64,
}

/// A response about to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewObject {
    /// Its metadata.
    pub metadata: ObjectMetadata,
    /// The fields in `Vary`, encoded by the policy; empty for a response without it.
    pub vary: Vec<u8>,
    /// The secondary key of the request. Empty for a response without `Vary`.
    pub secondary: Vec<u8>,
    /// Its tags (surrogate keys).
    pub tags: Vec<Box<[u8]>>,
    /// The length of its body in bytes, if it was declared.
    pub length: Option<u64>,
    /// Whether missing ranges may be fetched later: it has a strong validator, and its origin
    /// supports range requests.
    pub resumable: bool,
    /// Whether the fill continues when no reader is left.
    pub fill_without_readers: bool,
}
