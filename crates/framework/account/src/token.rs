//! `TokenText`: a random text in a link or a cookie, which stores know only by its digest.

use apus_tokens::{Hexadecimal, random_bytes, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::TokenError;

/// The length of a token in text.
const LEN: usize = 43;

/// 256 random bits in text.
pub(crate) fn random() -> Result<String, TokenError> {
    Ok(URL_SAFE_NO_PAD.encode(random_bytes::<32>().map_err(TokenError::new)?))
}

/// The digest of a token for a purpose (SHA-256), as 64 hexadecimal digits; `None` if the text is not a token. A
/// database that compares digests reveals nothing about tokens by the time that it takes.
pub(crate) fn digest_of(purpose: &str, text: &str) -> Option<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if text.len() != LEN || !text.bytes().all(is_token) {
        return None;
    }
    // The lengths of both parts are known, so no other pair has the same bytes.
    let digest = sha256([text, purpose].concat().as_bytes());
    Some(Hexadecimal(&digest).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_digest_for_each_purpose() {
        let [one, other] = [random().unwrap(), random().unwrap()];
        assert_ne!(one, other);
        let digest = digest_of("reset", &one).unwrap();
        assert_eq!(digest.len(), 64);
        assert_eq!(digest_of("reset", &one).as_ref(), Some(&digest));
        assert_ne!(digest_of("confirm", &one).as_ref(), Some(&digest));
        assert_ne!(digest_of("reset", &other).as_ref(), Some(&digest));
        assert!(!digest.contains(&one));
    }

    #[test]
    fn what_is_no_token_has_no_digest() {
        for text in ["", "abc", &"a".repeat(44), &"%".repeat(43), &"ü".repeat(21)] {
            assert_eq!(digest_of("reset", text), None, "{text:?}");
        }
    }

    #[test]
    fn a_token_has_43_letters_digits_hyphens_and_underscores() {
        for (length, is_token) in [(42, false), (43, true), (44, false)] {
            let text = "a".repeat(length);
            assert_eq!(digest_of("reset", &text).is_some(), is_token, "{length}");
        }
        for (end, is_token) in [
            ('Z', true),
            ('9', true),
            ('-', true),
            ('_', true),
            ('+', false),
            ('/', false),
            ('=', false),
            (' ', false),
            ('\n', false),
        ] {
            let text = format!("{}{end}", "a".repeat(42));
            assert_eq!(digest_of("reset", &text).is_some(), is_token, "{end:?}");
        }
    }
}
