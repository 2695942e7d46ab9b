//! Authentication (RFC 9110 section 11).

mod basic;
mod basic_credentials;
mod bearer;
mod comparisons;
mod failures;
mod forward;
mod forward_cache;
#[cfg(feature = "jwt")]
mod jwt;
mod key;
#[cfg(feature = "jwt")]
mod key_set;
#[cfg(feature = "password")]
mod legacy_hashes;
#[cfg(feature = "password")]
pub mod password;
#[cfg(feature = "jwt")]
mod remote_key_set;
mod signed_urls;
#[cfg(feature = "password")]
mod users;

use std::fmt;

use apus_http::{HeaderName, HeaderValue, Request, StatusCode, header};
use aws_lc_rs::{constant_time, digest};

pub use basic::{BasicAuth, BasicUser, CredentialsCheck};
pub use basic_credentials::Credentials;
pub use bearer::BearerAuth;
pub use forward::ForwardAuth;
pub use forward_cache::AnswerKey;
#[cfg(feature = "jwt")]
pub use jsonwebtoken;
#[cfg(feature = "jwt")]
pub use jwt::{Claims, JwtAuth};
pub use key::Key;
#[cfg(feature = "jwt")]
pub use key_set::{InvalidKeySet, KeySet};
#[cfg(feature = "bots")]
pub(crate) use remote_key_set::KnownKeys;
#[cfg(feature = "jwt")]
pub use remote_key_set::{FetchCounts, RemoteKeySet};
pub use signed_urls::SignedUrls;
#[cfg(feature = "password")]
pub use users::{InvalidUser, Users};

use apus_handler::Error;

/// A secret that cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// It is too short to be secure.
    TooShort {
        /// How long it is.
        bytes: usize,
        /// How long it has to be.
        needed: usize,
    },
    /// It is not the key of this algorithm in PEM.
    Unreadable,
    /// The system has no random bytes.
    NoRandomness,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { bytes, needed } => write!(
                f,
                "the secret has {bytes} bytes and needs {needed}: make one with `openssl rand -base64 {}`",
                needed.div_ceil(2).saturating_mul(3)
            ),
            Self::Unreadable => f.write_str("this is no public key of the algorithm in PEM"),
            Self::NoRandomness => f.write_str("the system has no random bytes"),
        }
    }
}

impl std::error::Error for KeyError {}

/// The credentials of a request in this scheme, whose name has no case (RFC 9110 section 11.4). A request with two
/// `Authorization` lines has none: an origin might read the other one.
fn credentials<'r>(request: &'r Request, scheme: &str) -> Option<&'r str> {
    let mut lines = request.headers().get_all("authorization");
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let field = std::str::from_utf8(line).ok()?;
    let (found, credentials) = field.split_once(' ')?;
    let credentials = credentials.trim_matches(' ');
    (found.eq_ignore_ascii_case(scheme) && !credentials.is_empty()).then_some(credentials)
}

/// 401 with a challenge (RFC 9110 section 11.6.1).
fn challenged(challenge: HeaderValue) -> Error {
    const WWW_AUTHENTICATE: HeaderName = header::WWW_AUTHENTICATE;
    Error::new(StatusCode::UNAUTHORIZED, "you have to log in").header(WWW_AUTHENTICATE, challenge)
}

/// Whether two texts are the same, compared in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    let of = |text| digest::digest(&digest::SHA256, text);
    constant_time::verify_slices_are_equal(of(one).as_ref(), of(other).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use apus_testkit::ask;

    use super::*;

    #[test]
    fn credentials_are_those_of_the_one_line_in_the_scheme() {
        let found = |lines: &[&str]| {
            let request = ask("GET", "/").lines(lines).request();
            credentials(&request, "Basic").map(str::to_owned)
        };
        for (line, expected) in [
            ("Authorization: Basic YTpi", Some("YTpi")),
            ("Authorization: bAsIc   YTpi ", Some("YTpi")),
            ("Authorization: Basic a b", Some("a b")),
            ("Authorization: Basic", None),
            ("Authorization: Basic ", None),
            ("Authorization: Basic\tYTpi", None),
            ("Authorization: Basics YTpi", None),
            ("Authorization: Bearer YTpi", None),
            ("Authorization: YTpi", None),
            ("Authorization:", None),
            ("X: Basic YTpi", None),
        ] {
            assert_eq!(found(&[line]).as_deref(), expected, "{line}");
        }
        let line = "Authorization: Basic YTpi";
        assert_eq!(found(&[line, line]), None, "an origin might read the other");
    }

    #[test]
    fn texts_are_the_same_if_all_their_bytes_are() {
        for (one, other, are_same) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "", false),
            ("a", "b", false),
            ("a", "aa", false),
            ("A", "a", false),
        ] {
            assert_eq!(same(one.as_bytes(), other.as_bytes()), are_same);
        }
    }
}
