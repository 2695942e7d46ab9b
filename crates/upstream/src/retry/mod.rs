//! Trying again: when it is allowed, and how much of it there may be.

mod budget;
mod rules;

pub(crate) use budget::Budget;
pub use rules::is_idempotent;
pub(crate) use rules::{Trouble, may_retry};
