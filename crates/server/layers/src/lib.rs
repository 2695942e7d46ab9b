//! Layers: the middleware that most applications need.
//!
//! # The layers
//!
//! One file each: `cors`, `security_headers`, `hsts`, `force_https`, `rate_limit`, `quota_limit` (both by `counted_units`), `concurrent_requests`, `bandwidth_limit` (by `paced_body`), `timeout`, `request_id`, `log`,
//! `maintenance`, `challenge`, `bots`, `metrics`, `etag`, `readiness`, `catch_panic`, `network_access`, `client_certificate`, `referers`. `access` has what the checks of
//! clients have in common, and `any_of` combines them. [`auth`] has Basic authentication, the users of an `htpasswd` file
//! (`users`), hashes of passwords (`password`, `legacy_hashes`), JWT and the keys of issuers (`key_set`, `remote_key_set`), forward
//! authentication (`forward`, `forward_cache`), signed URLs, and the secret of an application (`key`).
//!
//! A layer is a `Middleware` of apus-handler. `crates/server/sites/src/serve/layers.rs` puts layers around the handler
//! of a location; their keys are in `crates/server/config/src/raw/layers.rs`, and
//! `crates/server/config/src/resolve/layers.rs` makes layers of them.
//!
//! # Decisions
//!
//! - **What limits count outlives a configuration** (`limit`): it is in an `apus_access::LimitState`, which the limit of the same name
//!   continues with after a reload. `limit_key` is what they count by. Conditions ask what is left by `limit_facts`.
//! - **Limits on rates, quotas and requests at once are gates** (`apus_handler::gate`): they decide with the request in place, and change the response
//!   later, so that a chain that knows gates makes nothing for them.
//! - **`hsts` is the one place that sets HSTS** (`HstsField`): in applications as a layer, alone or as a part of
//!   `security_headers`, and in sites where the other fields of a response are set, so that error pages and redirects have
//!   it, too.
//! - **`deny` wins over `allow`, and over every log-in**, in any order: nginx takes the first of its lines that matches, so that a
//!   line at the wrong place serves everybody. What is allowed is a check like a password (`AccessCheck`), so that one of both can
//!   be enough (`any_of`).
//! - **A wrong password is counted when its comparison begins** (`auth::failures`), so that guesses at the same time do not exceed the
//!   limit. Requests with the same credentials share one comparison (`auth::comparisons`): a browser sends many at once, and got 429
//!   for most of them after a reload.
//! - **An admission by another service is remembered with all that the service got of the client** (`auth::forward_cache`), and its address. A
//!   cookie alone as the key would let a client in by the cookie of somebody whom another field admitted.
//! - **A key of an issuer is for the algorithms of its own type** (`auth::key_set`), whatever the token says.
//! - **Passwords are verified on separate threads**, with places for clients and for all together
//!   (`auth::password`): Argon2 is meant to be expensive, and a flood of log-ins must not occupy workers.
//! - **A bot is asked for no nonce** (`bots`): a signature is for an authority and a time, and the draft lets bots use one for many requests. To remember
//!   all of a day would need a bound, and past it either bots would be refused or nothing would be gained.
//! - **The names of addresses are asked of DNS by a client of its own** (`bots::address_names`), which waits for nothing on the thread of a worker, unlike the resolver of the
//!   system. Only the addresses of requests that say they are from a bot with `hosts` are looked up; those that have such a name are remembered apart from
//!   the others, so that false ones from many addresses push none of them out.
//! - **A challenge has no state of clients** (`challenge`): what a browser has to do and what it has passed are signed texts in its cookies. Only the tickets
//!   that were used in the last two minutes are remembered, in a table of a fixed size. The page is the response to the request itself, and reloads itself:
//!   there is no other path that it would have to keep the URL for, and a reload sends the body of a POST again.
//! - **Levels of work stay low**: a bot computes digests a hundred times faster than a phone, so that more work costs visitors more than bots.
//!
//! # Tests
//!
//! `tests/it`, by layer: most are called, and those that need the framing, the time or the end of a connection run over
//! sockets. What a layer does around an application is in `crates/framework/web/tests/it/layers`.

#![forbid(unsafe_code)]

mod access;
mod any_of;
#[cfg(feature = "auth")]
pub mod auth;
#[cfg(feature = "rate-limit")]
mod bandwidth_limit;
#[cfg(feature = "bots")]
mod bots;
mod catch_panic;
mod challenge;
mod client_certificate;
mod client_network;
mod client_wait;
#[cfg(feature = "rate-limit")]
mod concurrent_requests;
mod conditional;
mod cors;
#[cfg(feature = "rate-limit")]
mod counted_units;
#[cfg(feature = "etag")]
mod etag;
mod force_https;
mod hsts;
#[cfg(feature = "rate-limit")]
mod limit;
#[cfg(feature = "rate-limit")]
mod limit_facts;
#[cfg(feature = "rate-limit")]
mod limit_key;
mod log;
mod maintenance;
mod maps;
mod metrics;
mod network_access;
#[cfg(feature = "rate-limit")]
mod paced_body;
#[cfg(feature = "rate-limit")]
mod quota_limit;
#[cfg(feature = "rate-limit")]
mod rate_limit;
mod readiness;
mod referers;
mod request_id;
mod security_headers;
mod timeout;

pub use apus_conditions::{RequestMap, RequestMaps};

pub use access::{AccessCheck, AccessDecision, AccessGrant};
pub use any_of::AnyOf;
#[cfg(feature = "rate-limit")]
pub use apus_access::{QuotaWindow, TimeZone};
#[cfg(feature = "bots")]
pub use apus_conditions::{BotClaim, BotProof};
pub use apus_metrics::{
    LabelValue, MetricDefinition, MetricFamily, MetricFormat, MetricSamples, MetricUnit,
    MetricValue,
};
#[cfg(feature = "rate-limit")]
pub use bandwidth_limit::BandwidthLimit;
#[cfg(feature = "bots")]
pub use bots::{BotCounts, BotWait, Bots, HostPattern, InvalidHostPattern, KnownBot};
pub use catch_panic::CatchPanic;
pub use challenge::{
    BrowserChallenge, ChallengeCounts, ChallengeDecision, ChallengeDemand, ChallengeKey,
    ChallengeLevel, ChallengeState, ChallengeStates,
};
pub use client_certificate::RequireClientCertificate;
#[cfg(feature = "rate-limit")]
pub use concurrent_requests::ConcurrentRequests;
pub use conditional::ConditionalLayer;
pub use cors::{AllowedOrigins, AnyOrigin, Cors, ListedOrigins};
#[cfg(feature = "etag")]
pub use etag::Etag;
pub use force_https::ForceHttps;
pub use hsts::{Hsts, HstsField};
#[cfg(feature = "rate-limit")]
pub use limit::{LimitHandle, QuotaKeyUsage, QuotaReport};
#[cfg(feature = "rate-limit")]
pub use limit_facts::LimitFacts;
#[cfg(feature = "rate-limit")]
pub use limit_key::{InvalidLimitKey, LimitKey};
pub use log::Logged;
pub use maintenance::{Maintenance, MaintenanceState, MaintenanceSwitch};
pub use maps::MapLayer;
pub use metrics::{Metrics, MetricsHandler};
pub use network_access::NetworkAccess;
#[cfg(feature = "rate-limit")]
pub use quota_limit::QuotaLimit;
#[cfg(feature = "rate-limit")]
pub use rate_limit::RateLimit;
pub use readiness::Readiness;
pub use referers::Referers;
pub use request_id::RequestIds;
pub use security_headers::{CspNonce, SecurityHeaders};
pub use timeout::Timeout;
