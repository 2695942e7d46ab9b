//! Answers of an authority that one worker remembers.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{HeaderName, HeaderValue, Request};
use aws_lc_rs::digest;

/// What an authority said about a client that it admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AuthorityAnswer {
    /// The fields for the request.
    pub(super) request_fields: Vec<(HeaderName, HeaderValue)>,
    /// The fields for the response.
    pub(super) response_fields: Vec<(HeaderName, HeaderValue)>,
    /// The user.
    pub(super) user: Option<Arc<str>>,
}

/// Part of the request line that distinguishes the answers of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKey {
    /// The method.
    Method,
    /// `http` or `https`.
    Scheme,
    /// The host, with its port.
    Host,
    /// The path, without the query.
    Path,
    /// The path and the query.
    Uri,
}

/// The request line that an authority decides about.
pub(super) struct RequestLine<'a> {
    pub(super) request: &'a Request,
    /// The path in its normal form, and the query.
    pub(super) uri: &'a str,
}

impl AnswerKey {
    fn value<'a>(self, line: &RequestLine<'a>) -> &'a str {
        match self {
            Self::Method => line.request.method().as_str(),
            Self::Scheme => line.request.scheme(),
            Self::Host => line.request.authority().unwrap_or_default(),
            Self::Path => line.uri.split('?').next().unwrap_or_default(),
            Self::Uri => line.uri,
        }
    }

    /// The digest of everything that distinguishes an answer: the client, all fields that `subrequest` has of it, and these parts
    /// of the request line. So a client never gets the answer of another one.
    pub(super) fn digest(keys: &[Self], line: &RequestLine<'_>, subrequest: &Request) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        };
        match line.request.client().ip.map(|ip| ip.to_canonical()) {
            Some(ip) => add(ip.to_string().as_bytes()),
            None => add(b"unix:"),
        }
        for key in keys {
            add(key.value(line).as_bytes());
        }
        for (name, value) in subrequest.headers().iter() {
            add(name.as_bytes());
            add(value);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }
}

/// The largest answer that is remembered, in bytes of its fields.
const MAX_ANSWER_BYTES: usize = 4096;

/// Answers, the oldest of which gives way.
#[derive(Default)]
pub(super) struct AnswerCache {
    answers: HashMap<[u8; 32], (Duration, Rc<AuthorityAnswer>)>,
    /// The keys with the end of their time, in this order: all answers are remembered for the same time.
    order: VecDeque<([u8; 32], Duration)>,
}

impl AnswerCache {
    /// The answer that is remembered.
    pub(super) fn get(&self, key: &[u8; 32], now: Duration) -> Option<Rc<AuthorityAnswer>> {
        let (until, answer) = self.answers.get(key)?;
        (now < *until).then(|| Rc::clone(answer))
    }

    /// Remembers an answer until then. There are `max` answers at most.
    pub(super) fn insert(
        &mut self,
        key: [u8; 32],
        (until, now): (Duration, Duration),
        (answer, max): (Rc<AuthorityAnswer>, usize),
    ) {
        while let Some((oldest, ends)) = self.order.front().copied() {
            if ends > now && self.order.len() < max {
                break;
            }
            self.order.pop_front();
            // A younger answer may have the same key.
            if self
                .answers
                .get(&oldest)
                .is_some_and(|(until, _)| *until == ends)
            {
                self.answers.remove(&oldest);
            }
        }
        let fields = answer.request_fields.iter().chain(&answer.response_fields);
        let bytes = fields.map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        if max == 0 || bytes.fold(0, usize::saturating_add) > MAX_ANSWER_BYTES {
            return;
        }
        self.order.push_back((key, until));
        self.answers.insert(key, (until, answer));
    }
}

#[cfg(test)]
mod tests {
    use apus_testkit::get;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn answer(bytes: usize) -> Rc<AuthorityAnswer> {
        let value = HeaderValue::from_str(&"v".repeat(bytes)).unwrap();
        Rc::new(AuthorityAnswer {
            request_fields: vec![(HeaderName::from_static("a"), value)],
            ..AuthorityAnswer::default()
        })
    }

    #[test]
    fn answers_are_remembered_for_their_time_and_the_oldest_give_way() {
        let mut cache = AnswerCache::default();
        let insert = |cache: &mut AnswerCache, key: u8, now: u64| {
            let times = (seconds(now + 10), seconds(now));
            cache.insert([key; 32], times, (answer(1), 2));
        };
        insert(&mut cache, 1, 0);
        assert!(cache.get(&[1; 32], seconds(9)).is_some());
        assert!(cache.get(&[1; 32], seconds(10)).is_none());
        insert(&mut cache, 2, 1);
        insert(&mut cache, 3, 2);
        let has = |cache: &AnswerCache, key: u8| cache.get(&[key; 32], seconds(2)).is_some();
        assert_eq!([1, 2, 3].map(|key| has(&cache, key)), [false, true, true]);
        // The same key again: its old entry does not remove the new one.
        insert(&mut cache, 2, 3);
        assert!(has(&cache, 2) && cache.answers.len() <= 2);
        insert(&mut cache, 4, 20);
        assert_eq!((cache.answers.len(), cache.order.len()), (1, 1));
        for (bytes, is_kept) in [(MAX_ANSWER_BYTES - 1, true), (MAX_ANSWER_BYTES, false)] {
            let mut cache = AnswerCache::default();
            cache.insert([0; 32], (seconds(1), seconds(0)), (answer(bytes), 1));
            assert_eq!(cache.answers.len() == 1, is_kept, "{bytes}");
        }
    }

    #[test]
    fn the_key_of_an_answer_has_all_that_the_client_sends_to_the_authority() {
        let digest = |keys: &[AnswerKey], client: &str, lines: &[&str], uri: &str| {
            let address = (client.parse::<std::net::IpAddr>().unwrap(), 5000);
            let request = get("/").peer(address).lines(lines).request();
            let line = RequestLine {
                request: &request,
                uri,
            };
            AnswerKey::digest(keys, &line, &request)
        };
        let all = [AnswerKey::Host, AnswerKey::Uri];
        let one = digest(&all, "192.0.2.1", &["Cookie: a=1"], "/a?b");
        assert_eq!(
            one,
            digest(&all, "::ffff:192.0.2.1", &["Cookie: a=1"], "/a?b")
        );
        for (client, lines, uri) in [
            ("192.0.2.2", &["Cookie: a=1"][..], "/a?b"),
            ("192.0.2.1", &["Cookie: a=2"], "/a?b"),
            ("192.0.2.1", &[], "/a?b"),
            ("192.0.2.1", &["Cookie: a=1", "Cookie: a=1"], "/a?b"),
            ("192.0.2.1", &["Cookie: a=1"], "/a?c"),
            ("192.0.2.1", &["Authorization: a=1"], "/a?b"),
        ] {
            assert_ne!(one, digest(&all, client, lines, uri), "{client} {lines:?}");
        }
        let narrow = |client, lines: &[&str], uri| digest(&[], client, lines, uri);
        let one = narrow("192.0.2.1", &["Cookie: a=1"], "/a");
        assert_eq!(one, narrow("192.0.2.1", &["Cookie: a=1"], "/b"));
        assert_ne!(one, narrow("192.0.2.1", &["Cookie: a=2"], "/a"));
        assert_ne!(one, narrow("192.0.2.2", &["Cookie: a=1"], "/a"));
    }
}
