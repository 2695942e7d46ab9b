//! Accounts: the parts of sign-up, log-in and reset of passwords on which their security rests.
//!
//! - [`AccountTokens`] issues tokens for links in mails: random, stored as digests, for one purpose, limited in time, and
//!   redeemed once.
//! - [`RememberMe`] keeps visitors logged in by a cookie, which the server can revoke.
//! - [`PasswordRules`], [`EmailAddress`] and [`LocalPath`] are what a form has to check.
//!
//! Where tokens are stored, a [`AccountTokenStore`] decides: [`MemoryTokens`], or `SqlTokens` (feature `sql`).
//!
//! # Decisions
//!
//! - **Tokens are stored as digests**, so that who reads the database can use none. They are redeemed once, also by two
//!   requests at a time.
//! - **A remembered log-in is a row that the server can revoke**, not a session that lasts long.
//!
//! # Tests
//!
//! `tests/it`: the contract of stores, and remembered log-ins. `examples/login`, and projects of `apus new --with login`, use all of
//! it.

#![forbid(unsafe_code)]

mod email;
mod local_path;
mod memory;
mod password_rules;
mod remember;
#[cfg(feature = "sql")]
mod sql;
mod store;
mod token;
mod tokens;

pub use email::EmailAddress;
pub use local_path::LocalPath;
pub use memory::MemoryTokens;
pub use password_rules::PasswordRules;
pub use remember::RememberMe;
#[cfg(feature = "sql")]
pub use sql::SqlTokens;
pub use store::{AccountTokenStore, StoredToken, TokenError, TokenFuture};
pub use tokens::AccountTokens;
