//! Field values with their own grammar (RFC 9110), parsed into types that are only valid.

pub mod accept;
mod accept_encoding;
mod accept_language;
mod age;
mod cache_control;
mod cache_status;
mod conditional;
mod cookie;
mod date;
mod digest;
mod directives;
mod entity_tag;
mod quality;
mod range;
mod structured;
mod surrogate_key;
mod vary;

pub use accept_encoding::{AcceptEncoding, Coding};
pub use accept_language::PageLanguage;
pub use age::age;
pub use cache_control::{
    DeltaSeconds, DirectiveScope, MaxStale, RequestDirectives, ResponseDirectives,
};
pub use cache_status::{CacheResult, CacheStatus, ForwardReason, Handling};
pub use conditional::{Precondition, Validators};
pub use cookie::{CookiePair, cookie_texts, cookie_value, cookies};
pub use date::{http_date, http_date_text};
pub use digest::remove_digests;
pub use entity_tag::{EntityTag, EntityTagList, EntityTags};
pub use quality::Quality;
pub use range::{ByteRange, MAX_RANGES, Ranges};
pub use surrogate_key::surrogate_keys;
pub use vary::Vary;
