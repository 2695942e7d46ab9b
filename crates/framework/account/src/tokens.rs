//! `AccountTokens`: tokens for one purpose that expire, and that are redeemed once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use apus_clock::unix_seconds;

use crate::store::{AccountTokenStore, StoredToken, TokenError};
use crate::token;

/// The interval at which expired tokens are removed, in seconds.
const SWEEP: u64 = 10 * 60;

/// Issues and redeems tokens: a state of the application, which is cheap to clone.
///
/// A token is 256 random bits in a text of 43 characters for links and cookies. Stores keep its digest (SHA-256), so that
/// who reads a database cannot use it. A token is for one purpose: a token of a confirmation does not reset a password.
#[derive(Clone)]
pub struct AccountTokens(Arc<AccountTokensState>);

struct AccountTokensState {
    store: Box<dyn AccountTokenStore>,
    swept: AtomicU64,
}

impl AccountTokens {
    /// Tokens in a store.
    pub fn new(store: impl AccountTokenStore) -> Self {
        Self(Arc::new(AccountTokensState {
            store: Box::new(store),
            swept: AtomicU64::new(0),
        }))
    }

    /// A new token of an account for a purpose, with a text of the application.
    ///
    /// # Errors
    /// The store failed, or the system has no random bytes.
    pub async fn issue(
        &self,
        purpose: &str,
        account: i64,
        note: &str,
        lifetime: Duration,
    ) -> Result<String, TokenError> {
        let now = unix_seconds();
        self.sweep(now).await?;
        let text = token::random()?;
        let digest = token::digest_of(purpose, &text).unwrap_or_default();
        let stored = StoredToken {
            digest,
            purpose: purpose.to_owned(),
            account,
            note: note.to_owned(),
            issued: now,
            expires: now.saturating_add(lifetime.as_secs()),
        };
        self.0.store.insert(&stored).await?;
        Ok(text)
    }

    /// The token of a text for a purpose, if it has not expired; it stays valid.
    ///
    /// # Errors
    /// The store failed.
    pub async fn find(&self, purpose: &str, text: &str) -> Result<Option<StoredToken>, TokenError> {
        let Some(digest) = token::digest_of(purpose, text) else {
            return Ok(None);
        };
        let found = self.0.store.find(&digest, unix_seconds()).await?;
        Ok(found.filter(|token| token.purpose == purpose))
    }

    /// Redeems a token: it is returned once, also if several requests redeem it at the same time. All other tokens of the
    /// account for this purpose become invalid.
    ///
    /// # Errors
    /// The store failed.
    pub async fn redeem(
        &self,
        purpose: &str,
        text: &str,
    ) -> Result<Option<StoredToken>, TokenError> {
        let Some(token) = self.find(purpose, text).await? else {
            return Ok(None);
        };
        if !self.0.store.remove(&token.digest).await? {
            return Ok(None);
        }
        self.revoke_all(purpose, token.account).await?;
        Ok(Some(token))
    }

    /// Makes a token invalid.
    ///
    /// # Errors
    /// The store failed.
    pub async fn revoke(&self, purpose: &str, text: &str) -> Result<(), TokenError> {
        if let Some(digest) = token::digest_of(purpose, text) {
            self.0.store.remove(&digest).await?;
        }
        Ok(())
    }

    /// Makes all tokens of an account for a purpose invalid.
    ///
    /// # Errors
    /// The store failed.
    pub async fn revoke_all(&self, purpose: &str, account: i64) -> Result<(), TokenError> {
        self.0.store.remove_of(purpose, account).await
    }

    /// The tokens of an account for a purpose that have not expired, the newest first: to show where a user is logged in.
    ///
    /// # Errors
    /// The store failed.
    pub async fn of(&self, purpose: &str, account: i64) -> Result<Vec<StoredToken>, TokenError> {
        self.0.store.of(purpose, account, unix_seconds()).await
    }

    /// Removes expired tokens if the interval is over.
    async fn sweep(&self, now: u64) -> Result<(), TokenError> {
        let swept = self.0.swept.load(Ordering::Relaxed);
        let is_due = now >= swept.saturating_add(SWEEP);
        let swept_by = &self.0.swept;
        let exchange =
            || swept_by.compare_exchange(swept, now, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && exchange().is_ok() {
            self.0.store.sweep(now).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountTokens").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use apus_clock::TestClock;

    use super::*;
    use crate::MemoryTokens;

    const HOUR: Duration = Duration::from_secs(3600);

    fn block_on<T>(future: impl Future<Output = Result<T, TokenError>>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(future).unwrap()
    }

    fn tokens() -> (AccountTokens, MemoryTokens) {
        let store = MemoryTokens::new();
        (AccountTokens::new(store.clone()), store)
    }

    #[test]
    fn a_token_is_redeemed_once_and_for_its_purpose_only() {
        let (tokens, _) = tokens();
        block_on(async {
            let text = tokens.issue("reset", 7, "note", HOUR).await?;
            assert_eq!(tokens.redeem("confirm", &text).await?, None);
            let found = tokens.find("reset", &text).await?.unwrap();
            assert_eq!((found.account, &*found.note), (7, "note"));
            assert!(tokens.redeem("reset", &text).await?.is_some());
            assert_eq!(tokens.redeem("reset", &text).await?, None);
            assert_eq!(tokens.find("reset", &text).await?, None);
            Ok(())
        });
    }

    #[test]
    fn a_token_expires_and_is_removed() {
        let (tokens, store) = tokens();
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        block_on(async {
            let text = tokens.issue("reset", 7, "", HOUR).await?;
            clock.advance(Duration::from_secs(3599));
            assert!(tokens.find("reset", &text).await?.is_some());
            clock.advance(Duration::from_secs(1));
            assert_eq!(tokens.find("reset", &text).await?, None);
            assert_eq!(tokens.redeem("reset", &text).await?, None);
            assert!(tokens.of("reset", 7).await?.is_empty());
            tokens.issue("reset", 8, "", HOUR).await?;
            assert!(store.of("reset", 7, 0).await?.is_empty(), "it is swept");
            Ok(())
        });
    }

    #[test]
    fn other_tokens_of_the_account_are_invalid_after_one_was_redeemed() {
        let (tokens, _) = tokens();
        block_on(async {
            let [one, two] = [
                tokens.issue("reset", 7, "", HOUR).await?,
                tokens.issue("reset", 7, "", HOUR).await?,
            ];
            let others = tokens.issue("reset", 8, "", HOUR).await?;
            let remembered = tokens.issue("remember", 7, "", HOUR).await?;
            assert!(tokens.redeem("reset", &one).await?.is_some());
            assert_eq!(tokens.redeem("reset", &two).await?, None);
            assert!(tokens.find("reset", &others).await?.is_some());
            assert!(tokens.find("remember", &remembered).await?.is_some());
            Ok(())
        });
    }

    #[test]
    fn a_store_does_not_contain_what_is_in_the_link() {
        let (tokens, store) = tokens();
        block_on(async {
            let text = tokens.issue("reset", 7, "", HOUR).await?;
            let stored = store.of("reset", 7, 0).await?;
            assert!(!format!("{stored:?}").contains(&text));
            // What is stored cannot be used in place of the token.
            assert_eq!(tokens.redeem("reset", &stored[0].digest).await?, None);
            Ok(())
        });
    }
}
