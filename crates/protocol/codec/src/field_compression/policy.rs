//! Which fields are added to a dynamic table, and how they are found there.

/// Whether the values of a field are indexed, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingPolicy {
    /// They repeat.
    Index,
    /// They rarely repeat.
    Skip,
    /// They are credentials.
    Never,
    /// They may be credentials.
    NeverIfShort,
}

impl IndexingPolicy {
    /// Whether this value belongs into a dynamic table (`Some(true)`), into none of this connection
    /// (`Some(false)`), or into none at all (`None`).
    #[inline]
    pub fn is_indexed(self, value: &[u8]) -> Option<bool> {
        match self {
            Self::Index => Some(true),
            Self::Skip => Some(false),
            Self::Never => None,
            // An attacker who sees lengths could guess a short value byte by byte (RFC 7541 section 7.1.3).
            Self::NeverIfShort => (value.len() >= 20).then_some(true),
        }
    }
}

/// The first index of a name in the static table of HPACK (RFC 7541 appendix A), or 0, and the policy for its
/// values.
pub fn indexing_policy(name: &[u8]) -> (u8, IndexingPolicy) {
    use IndexingPolicy::{Index, Never, NeverIfShort, Skip};
    match name {
        b":authority" => (1, Index),
        b":method" => (2, Index),
        // Nearly each request of a page has another one, and would evict what repeats.
        b":path" => (4, Skip),
        b":scheme" => (6, Index),
        b":status" => (8, Index),
        b"accept-charset" => (15, Index),
        b"accept-encoding" => (16, Index),
        b"accept-language" => (17, Index),
        b"accept-ranges" => (18, Index),
        b"accept" => (19, Index),
        b"access-control-allow-origin" => (20, Index),
        b"age" => (21, Skip),
        b"allow" => (22, Index),
        // Compressed beside text that an attacker chooses, a secret can be guessed by lengths, as CRIME did (RFC 7541
        // section 7.1).
        b"authorization" => (23, Never),
        b"cache-control" => (24, Index),
        b"content-disposition" => (25, Skip),
        b"content-encoding" => (26, Index),
        b"content-language" => (27, Index),
        b"content-length" => (28, Skip),
        b"content-location" => (29, Skip),
        b"content-range" => (30, Skip),
        b"content-type" => (31, Index),
        b"cookie" => (32, NeverIfShort),
        b"date" => (33, Index),
        b"etag" => (34, Skip),
        b"expect" => (35, Index),
        b"expires" => (36, Skip),
        b"from" => (37, Index),
        b"host" => (38, Index),
        b"if-match" => (39, Skip),
        b"if-modified-since" => (40, Skip),
        b"if-none-match" => (41, Skip),
        b"if-range" => (42, Skip),
        b"if-unmodified-since" => (43, Skip),
        b"last-modified" => (44, Skip),
        b"link" => (45, Index),
        b"location" => (46, Skip),
        b"max-forwards" => (47, Index),
        b"proxy-authenticate" => (48, Index),
        b"proxy-authorization" => (49, Never),
        b"range" => (50, Skip),
        b"referer" => (51, Index),
        b"refresh" => (52, Index),
        b"retry-after" => (53, Skip),
        b"server" => (54, Index),
        // A session that is given out once is a credential, and is not repeated on the connection.
        b"set-cookie" => (55, Never),
        b"strict-transport-security" => (56, Index),
        b"transfer-encoding" => (57, Index),
        b"user-agent" => (58, Index),
        b"vary" => (59, Index),
        b"via" => (60, Index),
        b"www-authenticate" => (61, Index),
        b"content-digest" | b"repr-digest" | b"server-timing" | b"traceparent"
        | b"x-request-id" => (0, Skip),
        _ => (0, Index),
    }
}

/// Bits of a mark that hold the static index of the name.
pub const TABLE_NAME_BITS: u32 = 6;

/// A number that finds a line in the dynamic table: a hash, and the static index of the name, which is
/// exact. Lines with the same mark are compared.
#[inline]
pub fn line_mark(name_index: usize, name: &[u8], value: &[u8]) -> u32 {
    let start = if name_index == 0 { mix(0, name) } else { 0 };
    let hash = u32::try_from(mix(start, value) >> 32).unwrap_or(0);
    hash.wrapping_shl(TABLE_NAME_BITS) | u32::try_from(name_index).unwrap_or(0)
}

fn mix(start: u64, bytes: &[u8]) -> u64 {
    // 2^64 divided by the golden ratio, as in Fibonacci hashing. No keyed hash: a collision costs one comparison, and
    // a table of 4 KiB has at most 128 marks.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let add = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(add(start, bytes.len() as u64), |sum, word| {
            add(sum, u64::from_le_bytes(*word))
        });
    let last = rest
        .iter()
        .fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    add(sum, last)
}
