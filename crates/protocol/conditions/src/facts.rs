//! `Facts`: what a condition asks of a request and its response.

use std::borrow::Cow;
use std::net::IpAddr;

use jiff::Timestamp;

use crate::fact::Fact;

/// What is known of a request and its response. A fact that is not known has no value.
pub trait Facts {
    /// Calls `each` with the values of a text, until it returns `true`; returns whether it did.
    fn any_text(&self, fact: &Fact, each: &mut dyn FnMut(Cow<'_, [u8]>) -> bool) -> bool;

    /// A number, in the unit of its type.
    fn number(&self, fact: &Fact) -> Option<u64>;

    /// The address of the client; `None` for a Unix socket.
    fn address(&self) -> Option<IpAddr>;

    /// Whether something is true of the request.
    fn flag(&self, fact: &Fact) -> bool;

    /// A text that no other request has.
    fn request_id(&self) -> String;

    /// The time.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
