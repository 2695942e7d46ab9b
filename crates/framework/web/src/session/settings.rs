//! The settings of the sessions of an application.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::OnceCell;

use super::cookie::CookieText;
use super::sealed::Sealer;
use super::state::Lifetime;
use super::store::SessionBackend;

#[derive(Clone)]
pub(super) struct SessionSettings {
    pub(super) place: Arc<SessionBackend>,
    /// Signs the cookies of visitors who are not logged in, if `place` is a store.
    pub(super) visitors: Arc<OnceCell<Sealer>>,
    pub(super) cookie: CookieText,
    pub(super) is_always_secure: bool,
    pub(super) lifetime: Lifetime,
    pub(super) max_bytes: usize,
    pub(super) clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl SessionSettings {
    /// Seconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}
