//! The user of a request (RFC 3875 sections 4.1.1 and 4.1.11), as an authentication established it.

use std::sync::{Arc, OnceLock};

use crate::Request;

/// The user of a request, whom a layer or the TLS handshake authenticated: `REMOTE_USER` and `AUTH_TYPE` of scripts, and
/// `$remote_user`. A name that a client only claims is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUser {
    /// The name.
    pub name: Arc<str>,
    /// How the user was authenticated: `Basic`, `Bearer`, [`RemoteUser::CERTIFICATE`] or [`RemoteUser::FORWARDED`].
    pub scheme: &'static str,
}

/// A place for the user of a request, whom the log has to name after the request has gone to its service. Whoever needs
/// it adds it to the request before the layers.
#[derive(Clone, Debug, Default)]
pub struct RemoteUserSlot(Arc<AuthenticatedFacts>);

/// What an authentication established.
#[derive(Debug, Default)]
struct AuthenticatedFacts {
    user: OnceLock<RemoteUser>,
    claims: OnceLock<VerifiedClaims>,
}

/// The claims of the token of a request that was verified (RFC 7519): a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClaims(pub Arc<str>);

impl RemoteUser {
    /// The scheme of client certificates, as servlet containers name it. HTTP has no name for it.
    pub const CERTIFICATE: &'static str = "CLIENT_CERT";

    /// The scheme of users whom another service authenticates. HTTP has no name for it.
    pub const FORWARDED: &'static str = "FORWARD";

    /// The user of a request: the one that a layer authenticated, or the subject of the verified client certificate.
    pub fn of(request: &Request) -> Option<Self> {
        if let Some(user) = request.extensions().get::<Self>() {
            return Some(user.clone());
        }
        let tls = request.connection().tls.as_ref()?;
        let certificate = tls.client_certificate.as_ref()?;
        Some(Self {
            name: certificate.subject.as_str().into(),
            scheme: Self::CERTIFICATE,
        })
    }

    /// As [`RemoteUser::of`], and also if a layer has authenticated the user after this copy of the request was made.
    pub fn noted(request: &Request) -> Option<Self> {
        let slot = request.extensions().get::<RemoteUserSlot>();
        let noted = slot.and_then(RemoteUserSlot::user).cloned();
        noted.or_else(|| Self::of(request))
    }

    /// Sets the user of a request, for a layer that has authenticated it.
    pub fn set(self, request: &mut Request) {
        if let Some(slot) = request.extensions().get::<RemoteUserSlot>() {
            // The outermost layer sets the first one. The requests that an internal redirect makes have the same user.
            let _ = slot.0.user.set(self.clone());
        }
        request.extensions_mut().insert(self);
    }
}

impl RemoteUserSlot {
    /// The user, once there is one.
    pub fn user(&self) -> Option<&RemoteUser> {
        self.0.user.get()
    }
}

impl VerifiedClaims {
    /// The claims of a request.
    pub fn of(request: &Request) -> Option<&Self> {
        let extensions = request.extensions();
        let slot = extensions.get::<RemoteUserSlot>();
        let own = extensions.get::<Self>();
        own.or_else(|| slot?.0.claims.get())
    }

    /// Sets the claims of a request, for a layer that has verified its token.
    pub fn set(self, request: &mut Request) {
        if let Some(slot) = request.extensions().get::<RemoteUserSlot>() {
            let _ = slot.0.claims.set(self.clone());
        }
        request.extensions_mut().insert(self);
    }
}
