//! Who may do what, and how often.
//!
//! # Modules
//!
//! - `key_table`: a number for each key, in bounded memory that all workers share without locks.
//! - `rate`: limits on rates, by GCRA.

#![forbid(unsafe_code)]

mod key_table;
mod rate;

pub use key_table::{Key, KeyTable};
pub use rate::{RateDecision, RateLimit};
