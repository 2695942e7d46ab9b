//! Asking the service behind, for one request or for all that wait for the same, and storing what it
//! answers (RFC 9111 sections 3 and 4.3).

use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_cache::policy::{
    Conditions, Freshened, OriginResponse, PresentedRequest, Storable, Stored, Timestamp,
    Validated, add_conditions, freshen, may_store, validated,
};
use apus_cache::store::{FillTicket, Filler, Head, NewObject};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{
    Body, FileRange, Frame, Headers, Method, Request, RequestParts, Response, StatusCode, Target,
    Version,
};
use bytes::Bytes;
use http::Extensions;

use super::answer::{Prepared, Sending, tell};
use super::device::device;
use super::service::{Inner, now};

/// For how long requests do not wait for one another, after an answer that cannot be shared.
const PASS_FOR: Duration = Duration::from_secs(2);

/// How much of a file is read at once.
const PIECE: u64 = 64 * 1024;

/// A request as it was asked, kept while its answer is on its way.
pub(super) struct Asked {
    method: Method,
    target: Target,
    version: Version,
    scheme: &'static str,
    authority: Box<str>,
    headers: Headers,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            target: request.target().clone(),
            version: request.version(),
            scheme: request.scheme(),
            authority: request.authority().unwrap_or("").into(),
            headers: request.headers().clone(),
        }
    }

    pub(super) fn presented(&self) -> PresentedRequest<'_> {
        PresentedRequest {
            method: &self.method,
            scheme: self.scheme,
            authority: &self.authority,
            path: self.target.path(),
            query: self.target.query(),
            headers: &self.headers,
            device: device(&self.headers),
        }
    }

    /// The request once more, over the same connection, for ourselves.
    pub(super) fn request(&self, like: &Request) -> Request {
        Request::new(RequestParts {
            method: Method::GET,
            target: self.target.clone(),
            version: self.version,
            headers: self.headers.clone(),
            body: Body::Empty,
            connection: Rc::clone(like.connection()),
            extensions: Extensions::new(),
        })
    }
}

/// What a request goes to the service behind for.
pub(super) struct Errand {
    /// For those who wait.
    pub(super) ticket: FillTicket,
    /// What is stored, and may be current.
    pub(super) stale: Option<Rc<Prepared>>,
    /// Why it is not enough.
    pub(super) reason: ForwardReason,
    pub(super) conditions: Conditions,
}

/// An answer and when it was asked for.
struct Fetched {
    response: Response,
    requested: Timestamp,
    received: Timestamp,
}

impl Fetched {
    fn as_origin_response(&self) -> OriginResponse<'_> {
        OriginResponse {
            status: self.response.status(),
            headers: self.response.headers(),
            requested: self.requested,
            received: self.received,
        }
    }
}

impl Inner {
    /// Asks the service behind for all that wait, whether what is stored is current or for something
    /// to store.
    pub(super) async fn fetch(
        self: &Rc<Self>,
        asked: Asked,
        mut request: Request,
        errand: Errand,
    ) -> Response {
        let Errand {
            ticket,
            stale,
            reason,
            conditions,
        } = errand;
        match &stale {
            Some(stale) => add_conditions(&[&stale.stored], request.headers_mut()),
            None => add_conditions(&[], request.headers_mut()),
        }
        let requested = now();
        let response = self.inner.call(request).wait().await;
        let fetched = Fetched {
            response,
            requested,
            received: now(),
        };
        let presented = asked.presented();
        let rules = &self.settings.rules;
        let Some(stale) = stale else {
            return self
                .store(&presented, fetched, ticket, reason, &conditions)
                .await;
        };
        let status = fetched.response.status();
        match validated(
            &presented,
            &stale.stored,
            status,
            rules,
            &conditions,
            fetched.received,
        ) {
            Validated::Current => self.freshen(&presented, &fetched, ticket, &stale),
            Validated::Replaced => {
                self.store(&presented, fetched, ticket, reason, &conditions)
                    .await
            }
            Validated::ServeStale { age } => {
                let handling = Handling::Forwarded {
                    reason: ForwardReason::Stale,
                    status: Some(status),
                    stored: true,
                    collapsed: false,
                };
                stale.respond(
                    &presented,
                    Sending {
                        handling,
                        ..self.hit(age, fetched.received)
                    },
                )
            }
            Validated::Failed => self.told(fetched.response, reason),
        }
    }

    /// What is stored is current.
    fn freshen(
        &self,
        presented: &PresentedRequest<'_>,
        fetched: &Fetched,
        ticket: FillTicket,
        stale: &Prepared,
    ) -> Response {
        let rules = &self.settings.rules;
        let origin = fetched.as_origin_response();
        let now = fetched.received;
        let handling = Handling::Forwarded {
            reason: ForwardReason::Stale,
            status: Some(StatusCode::NOT_MODIFIED),
            stored: true,
            collapsed: false,
        };
        match freshen(presented, &stale.stored, &origin, rules) {
            Freshened::Stored(stored) => {
                ticket.freshen(&stale.object, head(&stored));
                let age = stored.age(now);
                let current = Prepared::new(*stored, stale.object.clone());
                current.respond(
                    presented,
                    Sending {
                        handling,
                        ..self.hit(age, now)
                    },
                )
            }
            Freshened::NotStored {
                headers,
                is_revoked,
                renewed,
                ..
            } => {
                if let Some(renewed) = renewed {
                    ticket.freshen(&stale.object, head(&renewed));
                } else if is_revoked {
                    self.drop_object(&stale.object);
                }
                let body = stale.object.body(None);
                let status = stale.stored.status();
                Response::with_shared_headers(status, Rc::new(headers), body)
            }
        }
    }

    /// Stores an answer if it may be, while it is sent.
    async fn store(
        &self,
        presented: &PresentedRequest<'_>,
        mut fetched: Fetched,
        ticket: FillTicket,
        reason: ForwardReason,
        conditions: &Conditions,
    ) -> Response {
        let rules = &self.settings.rules;
        let origin = fetched.as_origin_response();
        let storable = match may_store(presented, &origin, rules, conditions) {
            Ok(Storable { stored, part: None }) => stored,
            Ok(_) => {
                ticket.pass(Duration::ZERO);
                return self.told(fetched.response, reason);
            }
            Err(refusal) => {
                tracing::debug!(path = presented.path, %refusal, "an answer is not stored");
                ticket.pass(match refusal.is_of_request() {
                    true => Duration::ZERO,
                    false => PASS_FOR,
                });
                return self.told(fetched.response, reason);
            }
        };
        let body = fetched.response.take_body();
        let filler = ticket.start(new_object(&storable, &body));
        let object = filler.object().clone();
        fill(filler, body, rules.max_size).await;
        let now = fetched.received;
        let age = storable.age(now);
        let prepared = Prepared::new(storable, object);
        prepared.respond(
            presented,
            Sending {
                handling: Handling::Forwarded {
                    reason,
                    status: None,
                    stored: true,
                    collapsed: false,
                },
                ..self.hit(age, now)
            },
        )
    }

    fn told(&self, mut response: Response, reason: ForwardReason) -> Response {
        if self.settings.status_field {
            let handling = Handling::Forwarded {
                reason,
                status: None,
                stored: false,
                collapsed: false,
            };
            tell(response.headers_mut(), handling, None);
        }
        response
    }
}

/// The metadata of a response as the store keeps it.
pub(super) fn head(stored: &Stored) -> Head {
    let mut policy = Vec::with_capacity(stored.headers().wire().len() + 128);
    stored.encode(&mut policy);
    Head {
        policy: policy.into(),
        fields: Bytes::new(),
        expires: stored.useful_until().as_unix_seconds(),
    }
}

fn new_object(stored: &Stored, body: &Body) -> NewObject {
    let (vary, secondary) = match stored.variance().is_empty() {
        true => (Vec::new(), Vec::new()),
        false => (stored.variance().line(), stored.variant().bytes().to_vec()),
    };
    NewObject {
        head: head(stored),
        vary,
        secondary,
        tags: stored.tags().map(Into::into).collect(),
        length: body.len(),
        // Whoever leaves does not take the answer of the others with them; alone, they do.
        resumable: false,
        fill_unread: true,
        created: stored.received().as_unix_seconds(),
    }
}

/// Fills an object: at once if all of its content is there, or by a task of its own.
async fn fill(mut filler: Filler, body: Body, most: u64) {
    match body {
        Body::Empty => {
            filler.finish();
        }
        Body::Bytes(bytes) => {
            // Whether anybody wants it, the end tells.
            let _ = filler.append(bytes).await;
            filler.finish();
        }
        body => {
            tokio::task::spawn_local(pump(filler, body, most));
        }
    }
}

/// Moves content from the service behind to the object, until it ends or nobody wants it.
async fn pump(mut filler: Filler, mut body: Body, most: u64) {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = filler.unwanted() => return,
        };
        let pumped = match frame {
            None => break,
            // What is cached has no trailers.
            Some(Ok(Frame::Trailers(_))) => continue,
            Some(Ok(Frame::Data(bytes))) => append(&mut filler, bytes, most).await,
            Some(Ok(Frame::File(range))) => pump_file(&mut filler, range, most).await,
            Some(Err(error)) => Err(error.into()),
        };
        if let Err(error) = pumped {
            tracing::debug!(%error, "an answer was not stored to its end");
            return;
        }
    }
    filler.finish();
}

async fn append(filler: &mut Filler, bytes: Bytes, most: u64) -> Result<(), Ended> {
    let filled = filler.range().start.saturating_add(bytes.len() as u64);
    if filled > most {
        // Nobody said how much it would be. Who reads it gets it all the same.
        filler.do_not_store();
    }
    Ok(filler.append(bytes).await?)
}

async fn pump_file(filler: &mut Filler, range: FileRange, most: u64) -> Result<(), Ended> {
    let mut done = 0;
    while done < range.len {
        let len = (range.len - done).min(PIECE);
        let (file, at) = (Arc::clone(&range.file), range.offset.saturating_add(done));
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(len).unwrap_or_default()];
            file.read_exact_at(&mut piece, at).map(|()| piece)
        });
        append(filler, reading.await??.into(), most).await?;
        done += len;
    }
    Ok(())
}

/// Why content was not moved to its end.
type Ended = Box<dyn std::error::Error>;
