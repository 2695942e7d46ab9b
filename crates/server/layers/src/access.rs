//! Checks of whether a client may have what it requests, and the layers that they are.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use apus_handler::Error;
use apus_handler::middleware::Next;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, ResponseFuture};

/// A check of a request, which [`AnyOf`](crate::AnyOf) can combine with others. Each check is a layer, too.
pub trait AccessCheck: Send + Sync + 'static {
    /// Its name for people: of the key that makes it.
    fn name(&self) -> &'static str;

    /// Decides about a request.
    fn check(&self, request: &Request) -> AccessDecision;

    /// Whether it establishes who the user is. Then it is called where another check has admitted the client already, for
    /// credentials that the client sends all the same.
    fn establishes_user(&self) -> bool {
        false
    }
}

/// The decision of an [`AccessCheck`].
pub enum AccessDecision {
    /// The decision is made.
    Now(Result<AccessGrant, Error>),
    /// The decision takes time.
    Later(Pin<Box<dyn Future<Output = Result<AccessGrant, Error>>>>),
}

impl AccessDecision {
    /// The client is admitted.
    pub const ADMITTED: Self = Self::Now(Ok(AccessGrant(None)));

    /// The client is refused, with this response.
    pub fn refused(error: Error) -> Self {
        Self::Now(Err(error))
    }
}

impl fmt::Debug for AccessDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(decision) => f.debug_tuple("Now").field(decision).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// What is attached to the request of a client that is admitted: who the user is.
#[derive(Default)]
pub struct AccessGrant(Option<Box<AttachUser>>);

type AttachUser = dyn FnOnce(&mut Request);

impl AccessGrant {
    /// With a function that attaches the user to the request.
    pub fn of_user(attach: impl FnOnce(&mut Request) + 'static) -> Self {
        Self(Some(Box::new(attach)))
    }

    /// Attaches it.
    pub(crate) fn attach(self, request: &mut Request) {
        if let Some(attach) = self.0 {
            attach(request);
        }
    }
}

impl fmt::Debug for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGrant").finish_non_exhaustive()
    }
}

/// Passes a request on that a check admits.
pub(crate) fn pass(check: &impl AccessCheck, mut request: Request, next: Next) -> ResponseFuture {
    let name = check.name();
    match check.check(&request) {
        AccessDecision::Now(Ok(admission)) => {
            admission.attach(&mut request);
            next.call(request)
        }
        AccessDecision::Now(Err(error)) => {
            note_refusal(&request, name, &error);
            next.rendering(&request).respond(error).into()
        }
        AccessDecision::Later(decision) => {
            let rendering = next.rendering(&request);
            ResponseFuture::later(async move {
                match decision.await {
                    Ok(admission) => {
                        admission.attach(&mut request);
                        next.call(request).wait().await
                    }
                    Err(error) => {
                        note_refusal(&request, name, &error);
                        rendering.respond(error)
                    }
                }
            })
        }
    }
}

/// Adds the step of a refusal to the trace of the request.
pub(crate) fn note_refusal(request: &Request, name: &str, error: &Error) {
    trace::note(request, || {
        let why = error.detail().unwrap_or("the client is not admitted");
        let status = error.status_code().as_u16();
        Step::new(StepKind::Access, format!("{status} by {name}"), why)
    });
}
