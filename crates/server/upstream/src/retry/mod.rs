//! Retries: the rules that allow them, and their budget.

mod rules;
mod token_bucket;

pub use rules::is_idempotent;
pub(crate) use rules::{RetryReason, is_retryable};
pub(crate) use token_bucket::RetryTokenBucket;
