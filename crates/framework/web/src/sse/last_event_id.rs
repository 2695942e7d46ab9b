//! `LastEventId`: the last event of a client that reconnects (HTML Living Standard section 9.2.4).

use std::convert::Infallible;

use apus_http::Request;

use apus_handler::{FromRequestHead, Matched};

/// The id of the last event that a client had before it lost its connection: `Last-Event-ID`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastEventId(Option<Box<str>>);

impl LastEventId {
    /// The last event id of a client; `None` for a new client.
    pub fn new(id: Option<&str>) -> Self {
        Self(id.map(Box::from))
    }

    /// The id; `None` if the client had no event with one.
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromRequestHead for LastEventId {
    type Rejection = Infallible;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        let id = request.headers().get_str("last-event-id");
        Ok(Self::new(id.filter(|id| !id.is_empty())))
    }
}
