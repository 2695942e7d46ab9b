//! Comparisons of passwords that run: requests with the same credentials share one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{hmac, rand};
use tokio::sync::watch;

use super::Credentials;

/// The comparisons that run. A browser sends many requests at once for one page, and after a reload all of them before the
/// first comparison is done.
pub(super) struct Comparisons {
    key: Option<hmac::Key>,
    running: Mutex<HashMap<[u8; 32], watch::Receiver<Option<bool>>>>,
}

/// What a request with some credentials does.
pub(super) enum PasswordComparison {
    /// It compares them for others, too.
    Own(OwnComparison),
    /// It waits for the comparison of another one.
    Shared(SharedComparison),
}

/// The comparison of this request. Others look again when it is dropped without a result.
pub(super) struct OwnComparison {
    comparisons: Arc<Comparisons>,
    tag: [u8; 32],
    result: Option<watch::Sender<Option<bool>>>,
}

/// The comparison of another request.
pub(super) struct SharedComparison(watch::Receiver<Option<bool>>);

impl Comparisons {
    pub(super) fn new() -> Arc<Self> {
        let random = rand::SystemRandom::new();
        Arc::new(Self {
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
            running: Mutex::default(),
        })
    }

    /// Begins to compare credentials, or waits for another request of the client that does.
    pub(super) fn begin(self: &Arc<Self>, given: &Credentials) -> PasswordComparison {
        let Some(key) = &self.key else {
            return PasswordComparison::Own(OwnComparison {
                comparisons: self.clone(),
                tag: [0; 32],
                result: None,
            });
        };
        let mut context = hmac::Context::with_key(key);
        context.update(format!("{:?} {} ", given.client, given.name.len()).as_bytes());
        context.update(given.name.as_bytes());
        context.update(given.password.as_bytes());
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running.get(&tag) {
            return PasswordComparison::Shared(SharedComparison(other.clone()));
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(tag, receiver);
        PasswordComparison::Own(OwnComparison {
            comparisons: self.clone(),
            tag,
            result: Some(sender),
        })
    }
}

impl OwnComparison {
    /// Passes the result to those who wait for it.
    pub(super) fn finish(self, is_right: bool) {
        if let Some(sender) = &self.result {
            sender.send_replace(Some(is_right));
        }
    }
}

impl Drop for OwnComparison {
    fn drop(&mut self) {
        if self.result.is_some() {
            let running = &self.comparisons.running;
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            running.remove(&self.tag);
        }
    }
}

impl SharedComparison {
    /// Whether the password is right; `None` if that was not found out.
    pub(super) async fn result(mut self) -> Option<bool> {
        let result = self.0.wait_for(Option::is_some).await;
        result.ok().and_then(|result| *result)
    }
}
