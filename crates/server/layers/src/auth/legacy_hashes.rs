//! Hashes of old `htpasswd` files: `$apr1$` (MD5-crypt of Apache) and `{SHA}` (SHA-1 without a salt).

use aws_lc_rs::{constant_time, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

/// The mark of MD5-crypt of Apache.
pub(super) const APR1: &str = "$apr1$";
/// The mark of SHA-1.
pub(super) const SHA: &str = "{SHA}";

/// The letters of 6 bits each.
const LETTERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The salt and the digest of a hash `$apr1$SALT$DIGEST`. More than eight letters of a salt have no meaning.
fn parts(stored: &str) -> Option<(&str, &str)> {
    let (salt, digest) = stored.strip_prefix(APR1)?.split_once('$')?;
    let is_letter = |byte: u8| LETTERS.contains(&byte);
    let is_valid = salt.len() <= 8 && digest.len() == 22 && digest.bytes().all(is_letter);
    is_valid.then_some((salt, digest))
}

/// Whether a hash begins like one of these, and is complete.
pub(super) fn is_complete(stored: &str) -> bool {
    parts(stored).is_some() || sha1_digest(stored).is_some()
}

/// Whether a password is the one of this hash; `None` if it is none.
pub(super) fn matches(password: &[u8], stored: &str) -> Option<bool> {
    let is_same =
        |one: &[u8], other: &[u8]| constant_time::verify_slices_are_equal(one, other).is_ok();
    if let Some(stored) = sha1_digest(stored) {
        let given = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, password);
        return Some(is_same(given.as_ref(), &stored));
    }
    let (salt, stored) = parts(stored)?;
    Some(is_same(&apr1(password, salt.as_bytes()), stored.as_bytes()))
}

/// The digest of a hash `{SHA}DIGEST`.
fn sha1_digest(stored: &str) -> Option<Vec<u8>> {
    let digest = STANDARD.decode(stored.strip_prefix(SHA)?).ok()?;
    (digest.len() == digest::SHA1_OUTPUT_LEN).then_some(digest)
}

/// The letters of MD5-crypt, as `apr_md5_encode` of the Apache Portable Runtime makes them.
fn apr1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let mut inner = Md5::new();
    inner.update(password);
    inner.update(salt);
    inner.update(password);
    let inner = inner.finalize();
    let mut outer = Md5::new();
    outer.update(password);
    outer.update(APR1);
    outer.update(salt);
    for part in password.chunks(inner.len()) {
        outer.update(inner.get(..part.len()).unwrap_or_default());
    }
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => outer.update([0]),
            _ => outer.update(password.get(..1).unwrap_or_default()),
        }
        bits >>= 1;
    }
    let mut hash = outer.finalize();
    for round in 0..1000 {
        let is_odd = round % 2 == 1;
        let mut next = Md5::new();
        next.update(if is_odd { password } else { &hash });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &hash } else { password });
        hash = next.finalize();
    }
    let mut letters = Vec::with_capacity(22);
    let byte = |at: usize| hash.get(at).copied().map_or(0, u32::from);
    for (high, middle, low) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        push(
            &mut letters,
            byte(high) << 16 | byte(middle) << 8 | byte(low),
            4,
        );
    }
    push(&mut letters, byte(11), 2);
    letters
}

/// Adds the letters of a number, the lowest bits first.
fn push(letters: &mut Vec<u8>, mut number: u32, count: usize) {
    for _ in 0..count {
        let at = usize::try_from(number & 63).unwrap_or_default();
        letters.extend(LETTERS.get(at));
        number >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_what_openssl_and_htpasswd_make() {
        // By `openssl passwd -apr1 -salt SALT PASSWORD`, and `htpasswd -nbs`.
        for (password, stored) in [
            ("correct", "$apr1$saltsalt$M2b95Jota4AKoI/tH3eyJ/"),
            ("", "$apr1$saltsalt$a8ml/vK5HEjiZ5oypDWA7/"),
            ("a", "$apr1$x$16j9.5e7KiXmuYFAYpPJM/"),
            ("sixteen letters!", "$apr1$abcdefgh$jqw6vSOXktFEqD0akX7ff1"),
            (
                "a password of more than sixteen letters, and of more than 32, too",
                "$apr1$./09AZaz$V9myG/Nz4eH2EOeIPYVsq1",
            ),
            ("pässwörd", "$apr1$s$/KuNgW0uqd2rn.Rw0X7rH."),
            ("correct", "{SHA}MXmmXv8lI7veU8mbKZtxnBCjUjU="),
            ("", "{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
        ] {
            assert_eq!(matches(password.as_bytes(), stored), Some(true), "{stored}");
            for other in ["", "a", "correc", "Correct", "correct "] {
                let expected = other == password;
                assert_eq!(
                    matches(other.as_bytes(), stored),
                    Some(expected),
                    "{other} {stored}"
                );
            }
            assert!(is_complete(stored));
        }
        for stored in [
            "$apr1$",
            "$apr1$a",
            "$apr1$saltsalt$short",
            "$apr1$longersalt$M2b95Jota4AKoI/tH3eyJ/",
            "{SHA}",
            "{SHA}YQ==",
            "{sha}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
        ] {
            assert!(
                !is_complete(stored) && matches(b"a", stored).is_none(),
                "{stored}"
            );
        }
    }
}
