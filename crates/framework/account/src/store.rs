//! `AccountTokenStore`: the trait of stores of tokens.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// The future of a store operation, which stays on its thread.
pub type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TokenError>> + 'a>>;

/// Keeps tokens. All workers share one store.
///
/// Times are seconds since 1970-01-01 (UTC).
pub trait AccountTokenStore: Send + Sync + 'static {
    /// Adds a token.
    fn insert<'a>(&'a self, token: &'a StoredToken) -> TokenFuture<'a, ()>;

    /// The token with a digest that has not expired.
    fn find<'a>(&'a self, digest: &'a str, now: u64) -> TokenFuture<'a, Option<StoredToken>>;

    /// Removes a token. Of several calls at the same time, one returns true.
    fn remove<'a>(&'a self, digest: &'a str) -> TokenFuture<'a, bool>;

    /// Removes all tokens of an account for a purpose.
    fn remove_of<'a>(&'a self, purpose: &'a str, account: i64) -> TokenFuture<'a, ()>;

    /// The tokens of an account for a purpose that have not expired, the newest first.
    fn of<'a>(
        &'a self,
        purpose: &'a str,
        account: i64,
        now: u64,
    ) -> TokenFuture<'a, Vec<StoredToken>>;

    /// Removes the tokens that have expired.
    fn sweep(&self, now: u64) -> TokenFuture<'_, ()>;
}

/// A token as it is stored: nobody can use what a store contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// The digest of the token: 64 hexadecimal digits.
    pub digest: String,
    /// What the token is for, as `reset`.
    pub purpose: String,
    /// The account.
    pub account: i64,
    /// A text of the application, as the new address that is to be confirmed, or the name of a browser.
    pub note: String,
    /// When it was issued.
    pub issued: u64,
    /// When it expires.
    pub expires: u64,
}

/// The error of a store of tokens.
pub struct TokenError(Box<dyn Error + Send + Sync>);

impl TokenError {
    /// An error with its cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of tokens: {}", self.0)
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}
