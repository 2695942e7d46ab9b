//! `RememberMe`: log-ins that outlive the session, by a cookie that the server can revoke.

use std::time::Duration;

use apus_handler::ClientInfo;
use apus_handler::extract::Cookies;
use apus_handler::extract::cookie::{Cookie, time};

use crate::{AccountTokens, StoredToken, TokenError};

/// The purpose of these tokens.
const PURPOSE: &str = "remember";

/// Remembers visitors who log in with "remember me", for 30 days by default.
///
/// Each log-in has its own token, which stays the same: browsers send several requests at once after a start, and a
/// token that changes with each of them would log the visitor out. [`RememberMe::forget_all`] revokes all of an account,
/// which a new password must do.
#[derive(Clone, Debug)]
pub struct RememberMe {
    tokens: AccountTokens,
    lifetime: Duration,
}

impl RememberMe {
    /// Remembered log-ins among these tokens.
    pub fn new(tokens: AccountTokens) -> Self {
        Self {
            tokens,
            lifetime: Duration::from_secs(30 * 24 * 3600),
        }
    }

    /// How long a log-in is remembered.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Remembers a log-in: sets the cookie. The note is what a list of log-ins shows, as the name of the browser.
    ///
    /// # Errors
    /// The store failed.
    pub async fn remember(
        &self,
        cookies: &mut Cookies,
        client: ClientInfo,
        account: i64,
        note: &str,
    ) -> Result<(), TokenError> {
        let text = self
            .tokens
            .issue(PURPOSE, account, note, self.lifetime)
            .await?;
        let seconds = i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX);
        cookies.add(Cookie::build((name(client), text)).max_age(time::Duration::seconds(seconds)));
        Ok(())
    }

    /// The remembered log-in of a request.
    ///
    /// # Errors
    /// The store failed.
    pub async fn find(
        &self,
        cookies: &Cookies,
        client: ClientInfo,
    ) -> Result<Option<StoredToken>, TokenError> {
        match cookies.get(name(client)) {
            Some(text) => self.tokens.find(PURPOSE, text).await,
            None => Ok(None),
        }
    }

    /// Forgets the log-in of a request, at log-out: removes the cookie, and revokes its token.
    ///
    /// # Errors
    /// The store failed.
    pub async fn forget(
        &self,
        cookies: &mut Cookies,
        client: ClientInfo,
    ) -> Result<(), TokenError> {
        if let Some(text) = cookies.get(name(client)).map(str::to_owned) {
            cookies.remove(name(client));
            self.tokens.revoke(PURPOSE, &text).await?;
        }
        Ok(())
    }

    /// Forgets all log-ins of an account.
    ///
    /// # Errors
    /// The store failed.
    pub async fn forget_all(&self, account: i64) -> Result<(), TokenError> {
        self.tokens.revoke_all(PURPOSE, account).await
    }

    /// The remembered log-ins of an account, the newest first.
    ///
    /// # Errors
    /// The store failed.
    pub async fn of(&self, account: i64) -> Result<Vec<StoredToken>, TokenError> {
        self.tokens.of(PURPOSE, account).await
    }
}

/// The name of the cookie. Over TLS no other host can set it.
fn name(client: ClientInfo) -> &'static str {
    if client.is_secure {
        "__Host-remember"
    } else {
        "remember"
    }
}
