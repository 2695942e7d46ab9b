//! The name and password of a request (RFC 7617 section 2).

use std::fmt;
use std::net::IpAddr;

use apus_http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::credentials;

/// The name and password of a request.
#[derive(Clone)]
pub struct Credentials {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
    /// The address of the client, to be passed to `password::verify`.
    pub client: Option<IpAddr>,
}

impl Credentials {
    /// The credentials of a request, if it has valid ones.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let decoded = STANDARD.decode(credentials(request, "Basic")?).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (name, password) = text.split_once(':')?;
        Some(Self {
            name: name.to_owned(),
            password: password.to_owned(),
            client: request.client().ip,
        })
    }
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
