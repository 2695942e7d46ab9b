//! The reverse proxy: a service whose responses come from a group of origins.
//!
//! [`Proxy`] makes the request for the origin (`request_headers`), sends it to a node of the group (`client`), and
//! changes the headers of the response for the client (`response_headers`) while its body is streamed. If there
//! is no response, the client gets an error response (`error_response`). A second group may get copies of
//! requests (`mirror`).
//!
//! # A request
//!
//! 1. `request_headers` takes the fields out of the client's request, drops those that must not pass, and adds those
//!    about the client, such as `X-Forwarded-For`, which are made once for the requests of a connection. The codec
//!    writes them as they are.
//! 2. `mirror` sends a copy of the request to another group, if configured, and discards the response.
//! 3. `client` sends the request by apus-upstream. `hold` and `spool` buffer a whole body of a request, in memory and
//!    then in a file without a name, before it is sent on.
//! 4. `response_headers` rewrites redirects and cookies to the URLs of the site; `substitute` replaces text in bodies.
//! 5. `read_ahead` reads the response as fast as the origin sends it, into memory and then into a file, so that a slow
//!    client occupies neither an origin nor a process of PHP.
//! 6. `error_response` responds 502, 503 or 504, and logs the node, the phase and the cause; `recorded_attempts` notes all attempts for
//!    `apus explain --id`.
//!
//! `tunnel` and `websocket` carry Upgrade and CONNECT.
//!
//! # Decisions
//!
//! - **The forwarding fields are generated, not extended**, from the facts of the request. What a client wrote into
//!   `X-Forwarded-For` reaches an origin only through `trusted_proxies_pass`.
//!
//! # Tests
//!
//! `tests/it` has what services see; `crates/tools/cli/tests/it/proxy` has the proxy from outside.

#![forbid(unsafe_code)]

mod client;
mod error_response;
mod frame_queue;
mod hold;
pub mod log_rate_limiter;
mod mirror;
mod path_change;
mod read_ahead;
mod recorded_attempts;
pub mod request_headers;
mod request_label;
mod response_headers;
mod service;
mod settings;
mod single_origin;
mod spool;
mod substitute;
mod tee;
mod trailers;
mod tunnel;
mod websocket;

pub use self::client::UpstreamClient;
pub use self::hold::HoldSettings;
pub use self::mirror::MirrorSettings;
pub use self::path_change::PathChange;
pub use self::request_headers::Forwarding;
pub use self::response_headers::{CookieRules, RedirectRule};
pub use self::service::Proxy;
pub use self::settings::{HostHeader, PathForm, ProxySettings};
pub use self::single_origin::InvalidOrigin;
pub use self::substitute::{Substitution, Substitutions};
