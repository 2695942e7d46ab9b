//! Who may do what, and how often.
//!
//! # Modules
//!
//! - `key_table`: a number for each key, in bounded memory that all workers share without locks.
//! - `rate`: limits on rates, by GCRA.
//! - `concurrency`: limits on what happens at once, with a queue.
//! - `limit_state`: what a limit has counted, and the limits whose states a new configuration continues with.

#![forbid(unsafe_code)]

mod concurrency;
mod key_table;
mod limit_state;
mod rate;

pub use concurrency::{
    Claimant, Concurrency, ConcurrencyPlace, ConcurrencyTable, PlaceAttempt, WaitingPlace,
};
pub use key_table::{Key, KeyTable};
pub use limit_state::{LimitCounters, LimitCounts, LimitId, LimitOutcome, LimitState, LimitStates};
pub use rate::{Rate, RateDecision};
