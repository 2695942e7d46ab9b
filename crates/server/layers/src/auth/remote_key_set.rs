//! Key sets that are fetched from their issuer, and fetched again when they may have changed.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apus_http::fields::ResponseDirectives;
use apus_http::{
    Body, ConnectionInfo, Extensions, Frame, Headers, InvalidTarget, KeptValue, Method, Peer,
    Request, RequestParts, ServiceFactory, Target, Version,
};
use tokio::sync::watch;

use super::key_set::KeySet;

/// The keys of an issuer at a URL. All workers share them.
///
/// They are fetched when the first token or signed request comes, and again when the time of `Cache-Control: max-age` is over (a minute at least, a day
/// at most, an hour without the field), and for a token with an unknown key, but not within half a minute of the last attempt. When
/// that fails, the keys of before stay in force, and the log says so.
#[derive(Clone)]
pub struct RemoteKeySet(Arc<RemoteState>);

struct RemoteState {
    origin: Box<dyn ServiceFactory>,
    url: Box<str>,
    authority: Box<str>,
    target: Target,
    current: Mutex<CurrentKeys>,
}

#[derive(Default)]
struct CurrentKeys {
    keys: Option<Arc<KeySet>>,
    /// When the keys may have changed.
    fresh_until: Duration,
    /// When they may be fetched again.
    next_attempt: Duration,
    /// Whoever waits for the end of an attempt.
    attempt: Option<watch::Receiver<()>>,
    counts: FetchCounts,
}

/// How often a set of keys was fetched, also by the sets that it has continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchCounts {
    /// Attempts that have ended.
    pub fetches: u64,
    /// Those that failed.
    pub failures: u64,
}

/// What is known about the keys.
pub(crate) enum KnownKeys {
    /// These keys. They are fetched again meanwhile if they are old.
    Keys(Arc<KeySet>),
    /// An attempt to fetch them is under way.
    Wait(watch::Receiver<()>),
    /// They could not be fetched, and it is too early to try again.
    None,
}

/// The time between attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(30);
/// The time between attempts while there are no keys.
const BETWEEN_FIRST_ATTEMPTS: Duration = Duration::from_secs(2);
/// The longest time of an attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest, the usual and the longest time until keys are fetched again.
const MIN_AGE: Duration = Duration::from_secs(60);
const DEFAULT_AGE: Duration = Duration::from_secs(3600);
const MAX_AGE: Duration = Duration::from_secs(86_400);
/// The types of key sets.
const ACCEPT: &str = "application/json, application/http-message-signatures-directory+json";
/// The most bytes of a key set.
const MAX_BYTES: usize = 1024 * 1024;

impl RemoteKeySet {
    /// With a service for requests to the issuer, such as a `Proxy`, and the URL of the keys.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(origin: impl ServiceFactory + 'static, url: &str) -> Result<Self, InvalidTarget> {
        let absolute = Target::parse(&Method::GET, url)?;
        let authority = absolute.authority().ok_or(InvalidTarget)?;
        Ok(Self(Arc::new(RemoteState {
            origin: Box::new(origin),
            url: url.into(),
            authority: authority.into(),
            target: Target::parse(&Method::GET, absolute.path_and_query())?,
            current: Mutex::default(),
        })))
    }

    /// The URL of the keys.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// How often the keys were fetched.
    pub fn counts(&self) -> FetchCounts {
        self.lock().counts
    }

    /// Begins with the keys that another set has fetched.
    pub fn continue_from(&self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (keys, fresh_until, counts) = {
            let other = other.lock();
            (other.keys.clone(), other.fresh_until, other.counts)
        };
        let mut current = self.lock();
        current.counts.fetches += counts.fetches;
        current.counts.failures += counts.failures;
        if current.keys.is_none() {
            current.keys = keys;
            current.fresh_until = fresh_until;
        }
    }

    /// The keys, or how to wait for them.
    pub(crate) fn keys(&self) -> KnownKeys {
        let now = apus_clock::monotonic();
        let mut current = self.lock();
        match current.keys.clone() {
            Some(keys) => {
                if now >= current.fresh_until {
                    self.begin(&mut current, now);
                }
                KnownKeys::Keys(keys)
            }
            None => match self.begin(&mut current, now) {
                Some(attempt) => KnownKeys::Wait(attempt),
                None => KnownKeys::None,
            },
        }
    }

    /// Fetches the keys again, for a token with an unknown key. `None`: it is too early.
    pub(crate) fn refresh(&self) -> Option<watch::Receiver<()>> {
        let mut current = self.lock();
        self.begin(&mut current, apus_clock::monotonic())
    }

    /// The keys that there are after an attempt.
    pub(crate) fn current(&self) -> Option<Arc<KeySet>> {
        self.lock().keys.clone()
    }

    /// Begins an attempt, unless one is under way or the last one was just before.
    fn begin(&self, current: &mut CurrentKeys, now: Duration) -> Option<watch::Receiver<()>> {
        // The sender is gone when an attempt has ended, however it did.
        let running = current.attempt.as_ref();
        if let Some(running) = running.filter(|attempt| attempt.has_changed().is_ok()) {
            return Some(running.clone());
        }
        if now < current.next_attempt {
            return None;
        }
        let wait = match current.keys {
            Some(_) => BETWEEN_ATTEMPTS,
            None => BETWEEN_FIRST_ATTEMPTS,
        };
        current.next_attempt = now.saturating_add(wait);
        let (sender, receiver) = watch::channel(());
        current.attempt = Some(receiver.clone());
        let this = self.clone();
        tokio::task::spawn_local(async move {
            let result = tokio::time::timeout(TIMEOUT, this.fetch()).await;
            this.finish(result.unwrap_or_else(|_| Err("it took too long".to_owned())));
            drop(sender);
        });
        Some(receiver)
    }

    fn finish(&self, result: Result<(KeySet, Duration), String>) {
        let now = apus_clock::monotonic();
        let mut current = self.lock();
        current.counts.fetches += 1;
        match result {
            Ok((keys, age)) => {
                current.keys = Some(Arc::new(keys));
                current.fresh_until = now.saturating_add(age);
                current.next_attempt = now.saturating_add(BETWEEN_ATTEMPTS);
            }
            Err(reason) => {
                current.counts.failures += 1;
                let has_keys = current.keys.is_some();
                drop(current);
                let authority = &*self.0.authority;
                if has_keys {
                    tracing::warn!(
                        authority,
                        reason,
                        "a set of keys cannot be fetched again; the keys of before stay in force"
                    );
                } else {
                    tracing::error!(
                        authority,
                        reason,
                        "a set of keys cannot be fetched, so that no token and no bot is accepted"
                    );
                }
            }
        }
    }

    async fn fetch(&self) -> Result<(KeySet, Duration), String> {
        let state = &*self.0;
        let mut headers = Headers::new();
        for (name, value) in [("host", &*state.authority), ("accept", ACCEPT)] {
            let added = headers.try_append(name, value);
            added.map_err(|error| error.to_string())?;
        }
        let request = Request::new(RequestParts {
            method: Method::GET,
            target: state.target.clone(),
            version: Version::HTTP_11,
            headers,
            body: Body::Empty,
            // Of no client.
            connection: Rc::new(ConnectionInfo {
                kept: KeptValue::default(),
                id: 0,
                peer: Peer::Unix,
                local: Peer::Unix,
                tls: None,
            }),
            extensions: Extensions::new(),
        });
        let service = state.origin.service();
        let mut response = service.call(request).wait().await;
        if response.status() != 200 {
            return Err(format!("the response is {}", response.status()));
        }
        let age = ResponseDirectives::of(response.headers()).max_age;
        let age = age.map_or(DEFAULT_AGE, |age| Duration::from_secs(age.seconds().into()));
        let age = age.clamp(MIN_AGE, MAX_AGE);
        let mut body = response.take_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(Frame::Data(data)) => text.extend_from_slice(&data),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            if text.len() > MAX_BYTES {
                return Err("it is longer than a mebibyte".to_owned());
            }
        }
        let keys = KeySet::parse(&text).map_err(|error| error.to_string())?;
        Ok((keys, age))
    }

    fn lock(&self) -> MutexGuard<'_, CurrentKeys> {
        let current = &self.0.current;
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RemoteKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeySet")
            .field("authority", &self.0.authority)
            .field("target", &self.0.target)
            .finish_non_exhaustive()
    }
}
