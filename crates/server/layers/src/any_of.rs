//! `AnyOf`: clients that one of several checks admits.

use std::fmt;
use std::sync::Arc;

use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, ResponseFuture, StatusCode, header};

use crate::access::{self, AccessCheck, AccessDecision, AccessGrant, note_refusal};

/// A layer for clients that one of its checks admits, such as those of the office without a password, and others with one.
/// nginx calls it `satisfy any`.
///
/// ```
/// use apus_layers::{AnyOf, NetworkAccess};
/// # use apus_layers::RequireClientCertificate;
///
/// let office = NetworkAccess::allow(["192.0.2.0/24".parse()?]);
/// let access = AnyOf::new(office).or(RequireClientCertificate::new());
/// # let _ = access;
/// # Ok::<(), apus_http::InvalidNetwork>(())
/// ```
///
/// A client that none of them admits gets 401 with the challenges of all that ask for credentials; 403 if none does.
/// Credentials of a client that is admitted in another way are checked too, so that the user is known.
#[derive(Clone)]
pub struct AnyOf(Vec<Arc<dyn AccessCheck>>);

impl AnyOf {
    /// This check, and others that follow.
    pub fn new(check: impl AccessCheck) -> Self {
        Self(vec![Arc::new(check)])
    }

    /// Those of these checks.
    pub fn of(checks: impl IntoIterator<Item = Arc<dyn AccessCheck>>) -> Self {
        Self(checks.into_iter().collect())
    }

    /// Admits clients that this check admits, too.
    #[must_use]
    pub fn or(mut self, check: impl AccessCheck) -> Self {
        self.0.push(Arc::new(check));
        self
    }
}

impl Middleware<ResponseMarker> for AnyOf {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let mut decisions = Decisions::default();
        let mut waiting = Vec::new();
        for (index, check) in self.0.iter().enumerate() {
            if decisions.admitted.is_some() && !check.establishes_user() {
                continue;
            }
            match check.check(&request) {
                AccessDecision::Now(decision) => decisions.add((index, check.name()), decision),
                AccessDecision::Later(decision) => {
                    waiting.push(((index, check.name()), decision));
                }
            }
        }
        if waiting.is_empty() {
            return match decisions.conclude(&request) {
                Ok(grants) => self.admit(grants, request, next),
                Err(error) => next.rendering(&request).respond(error).into(),
            };
        }
        let rendering = next.rendering(&request);
        let this = self.clone();
        ResponseFuture::later(async move {
            for (check, decision) in waiting {
                let decision = decision.await;
                decisions.add(check, decision);
            }
            match decisions.conclude(&request) {
                Ok(grants) => this.admit(grants, request, next).wait().await,
                Err(error) => rendering.respond(error),
            }
        })
    }
}

impl AnyOf {
    /// Passes an admitted request on.
    fn admit(&self, grants: Vec<AccessGrant>, mut request: Request, next: Next) -> ResponseFuture {
        for check in &self.0 {
            check.remove_claims(&mut request);
        }
        access::admit(grants, request, next)
    }
}

impl fmt::Debug for AnyOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|check| check.name());
        f.debug_list().entries(names).finish()
    }
}

/// What the checks of [`AnyOf`] decided about a request.
#[derive(Default)]
struct Decisions {
    /// The name of the first check that admitted the client.
    admitted: Option<&'static str>,
    /// What the checks that admitted it add.
    grants: Vec<AccessGrant>,
    /// The refusals, with the place and the name of the check.
    refusals: Vec<((usize, &'static str), Error)>,
}

impl Decisions {
    fn add(&mut self, check: (usize, &'static str), decision: Result<AccessGrant, Error>) {
        match decision {
            Ok(grant) => {
                self.grants.push(grant);
                self.admitted.get_or_insert(check.1);
            }
            Err(error) => self.refusals.push((check, error)),
        }
    }

    /// What the checks add to an admitted request.
    fn conclude(mut self, request: &Request) -> Result<Vec<AccessGrant>, Error> {
        if let Some(name) = self.admitted {
            trace::note(request, || {
                Step::new(
                    StepKind::Access,
                    format!("admitted by {name}"),
                    "one check is enough",
                )
            });
            return Ok(self.grants);
        }
        self.refusals.sort_by_key(|(check, _)| check.0);
        for ((_, name), error) in &self.refusals {
            note_refusal(request, name, error);
        }
        Err(joined(self.refusals.into_iter().map(|(_, error)| error)))
    }
}

/// The one response to a client that several checks refuse.
fn joined(refusals: impl Iterator<Item = Error>) -> Error {
    // Where a check could not decide, the client may try again: 429, 503. Else it may log in.
    let rank = |error: &Error| match error.status_code() {
        StatusCode::FORBIDDEN => 2,
        StatusCode::UNAUTHORIZED => 1,
        _ => 0,
    };
    let mut refusals: Vec<_> = refusals.collect();
    refusals.sort_by_key(rank);
    let mut refusals = refusals.into_iter();
    let Some(mut error) = refusals.next() else {
        return Error::forbidden("nobody is admitted here");
    };
    if error.status_code() == StatusCode::UNAUTHORIZED {
        let challenges = refusals
            .filter(|other| other.status_code() == StatusCode::UNAUTHORIZED)
            .flat_map(|other| other.fields().to_vec())
            .filter(|(name, _)| *name == header::WWW_AUTHENTICATE);
        for (name, challenge) in challenges {
            error = error.header(name, challenge);
        }
    }
    error
}
