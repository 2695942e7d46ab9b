//! A cache in front of a service: what may be shared is kept and sent again (RFC 9111).
//!
//! [`Cache`] is what is kept, for all sites and workers; [`Cached`] makes a service that answers from
//! it, and asks the one behind it for the rest. The rules are `apus-cache`'s; here they meet requests:
//! `cached` decides what becomes of one, `answer` makes the response out of what is stored,
//! `fetch` asks the service behind, for one request or for all that wait for the same, and
//! `ranges` for what is missing of what is stored in parts; `forms` compresses what is stored; `clock` tells how old it is.

mod answer;
mod bypass;
mod cached;
mod clock;
mod device;
mod fetch;
mod forms;
mod purge;
mod ranges;
mod settings;
mod telling;
mod uses;

pub use self::bypass::CacheUnlessBypassed;
pub use self::cached::Cached;
pub use self::purge::{PurgeAccess, PurgeRequest};
pub use self::settings::{Cache, CacheSettings};
