//! Who may do what, and how often.
//!
//! # Modules
//!
//! - `bans`: which addresses are banned, by [`Bans`], which workers ask; `ban_book`: their list, which commands change and a restart keeps.
//!   `banned_network`, `network_list`: networks, and lists of them as text.
//! - `glitches`: what each client did wrong lately.
//! - `key_table`: a number for each key, in bounded memory that all workers share without locks.
//! - `rate`: limits on rates, by GCRA. `bandwidth`: limits on bytes in a second.
//! - `quota`: quotas of an hour, a day or a month of the calendar, which a restart keeps.
//! - `concurrency`: limits on what happens at once, with a queue.
//! - `limit_state`: what a limit has counted, and the limits whose states a new configuration continues with.

#![forbid(unsafe_code)]

mod ban_book;
mod bandwidth;
mod banned_network;
mod bans;
mod concurrency;
mod glitches;
mod key_table;
mod limit_state;
mod network_list;
mod quota;
mod rate;

pub use ban_book::{BanBook, DamagedBans};
pub use bandwidth::{Bandwidth, BandwidthShare};
pub use banned_network::BannedNetwork;
pub use bans::{Ban, BanResult, BanSettings, Bans};
pub use concurrency::{
    Claimant, Concurrency, ConcurrencyPlace, ConcurrencyTable, PlaceAttempt, WaitingPlace,
};
pub use glitches::{GlitchSettings, GlitchThreshold, Glitches};
pub use jiff::tz::TimeZone;
pub use key_table::{Key, KeyTable};
pub use limit_state::{
    LimitCounters, LimitCounts, LimitId, LimitOutcome, LimitSize, LimitState, LimitStates,
};
pub use network_list::{NetworkList, NetworkListMistake};
pub use quota::{
    MAX_QUOTA, QuotaCalendar, QuotaExceeded, QuotaPeriod, QuotaTable, QuotaUsage, QuotaWindow,
};
pub use rate::{Rate, RateDecision};
