//! What a shared cache may store and send (RFC 9111), as functions of header fields and times.
//!
//! This module reads no clock, keeps no state and does no I/O. The functions in the order of a
//! request:
//!
//! 1. [`KeyRules::key`] computes the cache key.
//! 2. Without a stored response, [`must_not_forward`] says whether the client gets 504. Otherwise
//!    the request goes to the origin, and [`may_store`] returns the [`StoredResponse`] or the
//!    reason why the response is not stored.
//! 3. With a stored response, [`decide_reuse`] says whether it is sent (with 304 if
//!    [`StoredResponse::is_not_modified`]) or has to be validated: [`add_conditions`] prepares the
//!    request, [`evaluate_validation`] interprets the response to it, and [`freshen`] updates the
//!    stored response.
//! 4. Unsafe methods go to the origin, and [`keys_to_invalidate`] lists the keys that their
//!    responses invalidate.
//!
//! [`may_store`] computes everything that depends on the response alone, so that a hit costs a few
//! comparisons of numbers.

mod content_range;
mod credentials;
mod deception;
mod encode;
mod fields;
mod freshness;
mod invalidation;
mod key;
mod names;
mod normal_form;
mod refusal;
mod request;
mod reuse;
mod rules;
mod stored;
mod storing;
mod time;
mod validation;
mod vary;

pub use content_range::ContentRange;
pub use encode::StoredDecodeError;
pub use invalidation::keys_to_invalidate;
pub use key::{KeyHostRule, KeyQueryRule, KeyRules, RequestKey};
pub use names::CacheNamePattern;
pub use refusal::StoreRefusal;
pub use request::{CachingContext, OriginResponse, PresentedRequest};
pub use reuse::{ReuseDecision, decide_reuse, may_serve_on_error, must_not_forward};
pub use rules::{
    CacheRules, ClientDirectiveRule, CredentialRules, HeuristicLifetime, IgnoredFields,
    SetCookieRule, SharingRule, StatusTtl,
};
pub use stored::StoredResponse;
pub use storing::{StorableResponse, may_store};
pub use time::Timestamp;
pub use validation::{
    FreshenResult, HeadUpdate, ValidationResult, add_conditions, evaluate_validation, freshen,
    select_validated, update_by_head,
};
pub use vary::{SecondaryKey, VaryFields};
