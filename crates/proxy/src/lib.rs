//! The reverse proxy: a service that has its answers from a group of origins.
//!
//! A request is written anew from its parsed form (`forward`), sent to a node of the group, and its
//! answer put in the terms of the site (`backward`) while its content streams by. What goes wrong
//! becomes an answer of our own (`refusal`). Another group may get copies of requests (`mirror`).

mod ahead;
mod backward;
mod exchange;
pub mod forward;
mod frames;
mod hold;
pub mod log_rate;
mod mirror;
mod refusal;
mod service;
mod settings;
mod spool;
mod substitute;
mod tee;
mod to;
mod trailers;
mod tunnel;
mod websocket;

pub use self::backward::{CookieRules, RedirectRule};
pub use self::exchange::Exchange;
pub use self::forward::Forwarding;
pub use self::hold::Hold;
pub use self::mirror::Mirror;
pub use self::service::Proxy;
pub use self::settings::{Host, PathChange, ProxySettings};
pub use self::substitute::{Substitution, Substitutions};
pub use self::to::InvalidOrigin;
