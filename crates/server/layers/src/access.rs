//! Checks of whether a client may have what it requests, and the layers that they are.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use apus_handler::Error;
use apus_handler::middleware::Next;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, RequestEvent, Response, ResponseFuture};

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

    /// Removes fields of a request in which only this check may say who the client is. It is called before an admitted request
    /// is passed on, also if another check has admitted it.
    fn remove_claims(&self, _request: &mut Request) {}
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
    pub const ADMITTED: Self = Self::Now(Ok(AccessGrant {
        attach: None,
        change: None,
    }));

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

/// What an admission adds: who the user is to the request, and fields to the response.
#[derive(Default)]
pub struct AccessGrant {
    attach: Option<Box<AttachUser>>,
    change: Option<Box<ChangeResponse>>,
}

type AttachUser = dyn FnOnce(&mut Request);
type ChangeResponse = dyn FnOnce(&mut Response);

impl AccessGrant {
    /// With a function that attaches the user to the request.
    pub fn of_user(attach: impl FnOnce(&mut Request) + 'static) -> Self {
        Self {
            attach: Some(Box::new(attach)),
            change: None,
        }
    }

    /// With a function that adds fields to the response.
    #[must_use]
    pub fn with_response(mut self, change: impl FnOnce(&mut Response) + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }
}

impl fmt::Debug for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGrant").finish_non_exhaustive()
    }
}

/// Passes an admitted request on, with what its admissions add.
pub(crate) fn admit(
    grants: impl IntoIterator<Item = AccessGrant>,
    mut request: Request,
    next: Next,
) -> ResponseFuture {
    let mut changes = Vec::new();
    for grant in grants {
        if let Some(attach) = grant.attach {
            attach(&mut request);
        }
        changes.extend(grant.change);
    }
    if changes.is_empty() {
        return next.call(request);
    }
    next.call_and_change(request, |mut response| {
        for change in changes {
            change(&mut response);
        }
        response
    })
}

/// Passes a request on that a check admits.
pub(crate) fn pass(
    check: &(impl AccessCheck + Clone),
    mut request: Request,
    next: Next,
) -> ResponseFuture {
    match check.check(&request) {
        AccessDecision::Now(Ok(grant)) => {
            check.remove_claims(&mut request);
            admit([grant], request, next)
        }
        AccessDecision::Now(Err(error)) => {
            note_refusal(&request, check.name(), &error);
            next.rendering(&request).respond(error).into()
        }
        AccessDecision::Later(decision) => {
            let rendering = next.rendering(&request);
            let check = check.clone();
            ResponseFuture::later(async move {
                match decision.await {
                    Ok(grant) => {
                        check.remove_claims(&mut request);
                        admit([grant], request, next).wait().await
                    }
                    Err(error) => {
                        note_refusal(&request, check.name(), &error);
                        rendering.respond(error)
                    }
                }
            })
        }
    }
}

/// Adds the step of a refusal to the trace of the request, and to its record.
pub(crate) fn note_refusal(request: &Request, name: &'static str, error: &Error) {
    let why = || error.detail().unwrap_or("the client is not admitted");
    request.note(|| RequestEvent::decided(name, why().to_owned()));
    trace::note(request, || {
        let why = why();
        let status = error.status_code().as_u16();
        Step::new(StepKind::Access, format!("{status} by {name}"), why)
    });
}
