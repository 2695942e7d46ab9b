//! The id of a request, which names it in logs, in its response, and towards origins.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The longest id that is accepted from a proxy, in bytes.
const MAX_LEN: usize = 128;

/// The id of a request.
///
/// It has 32 hexadecimal digits, unless a trusted proxy sent another one. It is unique with high probability, in this
/// process and others, and tells nothing about other requests.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(IdForm);

#[derive(Clone, PartialEq, Eq, Hash)]
enum IdForm {
    Number(u128),
    Text(Arc<str>),
}

impl RequestId {
    /// The id that a proxy sent, if it has only characters that are safe in logs and fields, and at most 128 of them.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@".contains(byte);
        if value.is_empty() || value.len() > MAX_LEN || !value.iter().all(is_plain) {
            return None;
        }
        let text = std::str::from_utf8(value).ok()?;
        Some(Self(IdForm::Text(text.into())))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IdForm::Number(number) => write!(f, "{number:032x}"),
            IdForm::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a request on its thread. Its id is made of it when it is needed, as most requests never need one.
#[derive(Clone, Debug)]
pub(crate) enum RequestNumber {
    Counted(u64),
    Known(RequestId),
}

impl Default for RequestNumber {
    fn default() -> Self {
        Self::Counted(0)
    }
}

/// What the ids of this thread are made of, for another thread that has numbers of requests of this one.
pub(crate) fn secret_of_thread() -> RandomState {
    SECRET.with(RandomState::clone)
}

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
    /// The secret of the thread: without it, neither the number of a request nor another id can be computed from an id.
    static SECRET: RandomState = RandomState::new();
}

impl RequestNumber {
    /// The next number of this thread.
    pub(crate) fn next() -> Self {
        NEXT.with(|next| Self::Counted(next.replace(next.get().wrapping_add(1))))
    }

    /// The id with this number. A request stays on its thread, so that it is always the same.
    pub(crate) fn id(&self) -> RequestId {
        SECRET.with(|secret| self.id_by(secret))
    }

    /// The id of a trace that begins with this request: its own id, so that one id finds both.
    pub(crate) fn trace_id_by(&self, secret: &RandomState) -> u128 {
        let id = match self {
            Self::Known(RequestId(IdForm::Text(text))) => {
                let digits = u128::from_str_radix(text, 16).ok();
                digits.filter(|_| text.len() == 32)
            }
            _ => match self.id_by(secret).0 {
                IdForm::Number(number) => Some(number),
                IdForm::Text(_) => None,
            },
        };
        let half = |which| u128::from(self.half_by(secret, which));
        id.unwrap_or_else(|| (half(0) << 64) | half(1))
    }

    /// A number that only this request has, of this kind.
    pub(crate) fn half_by(&self, secret: &RandomState, which: u8) -> u64 {
        match self {
            Self::Known(RequestId(IdForm::Text(text))) => secret.hash_one((&**text, which)),
            Self::Known(RequestId(IdForm::Number(number))) => secret.hash_one((number, which)),
            Self::Counted(number) => secret.hash_one((number, which)),
        }
    }

    /// The id with this number on the thread with this secret.
    pub(crate) fn id_by(&self, secret: &RandomState) -> RequestId {
        match self {
            Self::Known(id) => id.clone(),
            Self::Counted(number) => {
                let half = |which: u8| u128::from(secret.hash_one((number, which)));
                RequestId(IdForm::Number((half(0) << 64) | half(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_at_each_look_and_differ_between_requests_and_threads() {
        let ids = || {
            let numbers: Vec<_> = (0..100).map(|_| RequestNumber::next()).collect();
            let ids: Vec<_> = numbers.iter().map(RequestNumber::id).collect();
            assert_eq!(
                numbers.iter().map(RequestNumber::id).collect::<Vec<_>>(),
                ids
            );
            ids
        };
        let mut all = ids();
        all.extend(std::thread::spawn(ids).join().unwrap());
        assert!(all.iter().all(|id| id.to_string().len() == 32));
        all.sort_by_key(RequestId::to_string);
        all.dedup();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn an_id_of_a_proxy_has_plain_characters_and_at_most_128_of_them() {
        for text in ["a", "01-ab.C_d~e+f/g=h:i@j", &"x".repeat(128)] {
            assert_eq!(RequestId::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        for text in [
            "",
            "a b",
            "a\"",
            "a\n",
            "\u{e4}",
            "a,b",
            "{}",
            &"x".repeat(129),
        ] {
            assert_eq!(RequestId::parse(text.as_bytes()), None, "{text}");
        }
    }
}
