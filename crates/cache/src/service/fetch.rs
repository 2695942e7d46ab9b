//! Requests to the service behind, and storing its responses (RFC 9111 sections 3 and 4.3).

use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{
    Conditions, Freshened, OriginResponse, PresentedRequest, Storable, Stored, Timestamp,
    Validated, add_conditions, freshen, may_store, selected, validated,
};
use crate::store::{FillTicket, Filler, Head, NewObject};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{Body, FileRange, Frame, Method, Request, Response, StatusCode};
use bytes::Bytes;

use super::answer::{Prepared, Sending};
use super::cached::{Inner, presented};
use super::clock::now;
use super::ranges::{Beginning, Gaps, Opened};
use super::settings::CacheSettings;

/// For how long requests do not wait for one another, after an answer that cannot be shared.
const PASS_FOR: Duration = Duration::from_secs(2);

/// How much of a file is read at once.
const PIECE: u64 = 64 * 1024;

/// A request as it was asked, kept while its answer is on its way.
pub(super) struct Asked {
    request: Request,
    settings: Arc<CacheSettings>,
}

impl Asked {
    pub(super) fn of(request: &Request, settings: &Arc<CacheSettings>) -> Self {
        Self {
            request: request.without_body(),
            settings: Arc::clone(settings),
        }
    }

    pub(super) fn presented(&self) -> PresentedRequest<'_> {
        presented(&self.request, &self.settings)
    }

    /// The request once more, over the same connection, for ourselves.
    pub(super) fn again(&self) -> Request {
        let mut request = self.request.without_body();
        request.set_method(Method::GET);
        request
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
pub(super) struct Fetched {
    pub(super) response: Response,
    pub(super) requested: Timestamp,
    pub(super) received: Timestamp,
}

impl Fetched {
    pub(super) fn as_origin_response(&self) -> OriginResponse<'_> {
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
        asked: Rc<Asked>,
        mut request: Request,
        errand: Errand,
    ) -> Response {
        let Errand {
            ticket,
            stale,
            reason,
            conditions,
        } = errand;
        let mut beginning = None;
        match &stale {
            Some(stale) => add_conditions(&[&stale.stored], request.headers_mut()),
            None => {
                beginning = Beginning::of(request.headers(), &self.settings.rules);
                add_conditions(&[], request.headers_mut());
            }
        }
        if let Some(beginning) = &beginning {
            beginning.ask(request.headers_mut());
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
        let storing = Storing {
            asked: &asked,
            ticket,
            reason,
            conditions: &conditions,
            beginning,
        };
        let Some(stale) = stale else {
            return self.store(fetched, storing).await;
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
            Validated::Current => {
                // One with another validator is not about what is stored (RFC 9111 section 4.3.4).
                if selected(&[&stale.stored], fetched.response.headers()).is_none() {
                    self.drop_object(&stale.object);
                    return self.forward(asked.again(), reason).wait().await;
                }
                self.freshen(&asked, &fetched, storing.ticket, &stale).await
            }
            Validated::Replaced => self.store(fetched, storing).await,
            Validated::ServeStale { age } => {
                let opened = stale.complete(&presented).await;
                if !matches!(opened, Opened::Comes | Opened::Fetched) {
                    return self.told(fetched.response, reason);
                }
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
    async fn freshen(
        self: &Rc<Self>,
        asked: &Rc<Asked>,
        fetched: &Fetched,
        ticket: FillTicket,
        stale: &Prepared,
    ) -> Response {
        let presented = &asked.presented();
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
                let gaps = Gaps::of(self, asked, &stored, &stale.object);
                let current = Prepared::new(*stored, stale.object.clone()).with(gaps);
                match current.complete(presented).await {
                    Opened::Comes | Opened::Fetched => {}
                    Opened::Refused(response) => return self.told(response, ForwardReason::Stale),
                    Opened::Outdated | Opened::Alone => {
                        let again = self.forward(asked.again(), ForwardReason::Stale);
                        return again.wait().await;
                    }
                }
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
                if !stale.object.is_sound_at(0).await {
                    let again = self.forward(asked.again(), ForwardReason::Stale);
                    return again.wait().await;
                }
                let body = stale.body(None);
                let status = stale.stored.status();
                let mut response = Response::with_shared_headers(status, Rc::new(headers), body);
                let handling = Handling::Forwarded {
                    reason: ForwardReason::Stale,
                    status: Some(StatusCode::NOT_MODIFIED),
                    stored: false,
                    collapsed: false,
                };
                self.settings.telling().tell(&mut response, handling, None);
                response
            }
        }
    }

    /// Stores an answer if it may be, while it is sent.
    async fn store(self: &Rc<Self>, mut fetched: Fetched, storing: Storing<'_>) -> Response {
        let Storing {
            asked,
            ticket,
            reason,
            conditions,
            beginning,
        } = storing;
        let presented = asked.presented();
        let rules = &self.settings.rules;
        let origin = fetched.as_origin_response();
        let Storable { stored, part } = match may_store(&presented, &origin, rules, conditions) {
            Ok(storable) => storable,
            Err(refusal) => {
                tracing::debug!(path = presented.path, %refusal, "an answer is not stored");
                // A part that cannot be stored says nothing about the whole.
                ticket.pass(match refusal.is_of_request() || beginning.is_some() {
                    true => Duration::ZERO,
                    false => PASS_FOR,
                });
                return self.told(fetched.response, reason);
            }
        };
        let is_asked = |part| beginning.is_some_and(|beginning| beginning.is(part));
        let range = match part {
            Some(part) if !is_asked(part) => {
                ticket.pass(Duration::ZERO);
                return self.told(fetched.response, reason);
            }
            part => part.map(|part| part.range.start..part.range.end()),
        };
        let body = fetched.response.take_body();
        let length = match part {
            Some(part) => Some(part.complete),
            None => body.len(),
        };
        let new = NewObject {
            resumable: can_be_resumed(&stored, part.is_some()),
            ..new_object(&stored, length)
        };
        let filler = match range {
            Some(range) => ticket.start_part(new, range),
            None => ticket.start(new),
        };
        let object = filler.object().clone();
        fill(filler, body, rules.max_size).await;
        let now = fetched.received;
        let age = stored.age(now);
        let gaps = Gaps::of(self, asked, &stored, &object);
        let prepared = Prepared::new(stored, object).with(gaps);
        prepared.respond(
            &presented,
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
}

/// What goes with an answer that may be stored.
struct Storing<'a> {
    asked: &'a Rc<Asked>,
    ticket: FillTicket,
    reason: ForwardReason,
    conditions: &'a Conditions,
    beginning: Option<Beginning>,
}

/// Whether what is missing of a response can be asked for later. An origin that has sent a part
/// sends others.
fn can_be_resumed(stored: &Stored, is_part: bool) -> bool {
    stored.status() == StatusCode::OK
        && stored.has_strong_validator()
        && (is_part || stored.headers().get("accept-ranges") == Some(b"bytes"))
}

/// The metadata of a response as the store keeps it.
pub(super) fn head(stored: &Stored) -> Head {
    let mut policy = Vec::with_capacity(stored.headers().wire().len() + 128);
    stored.encode(&mut policy);
    Head {
        policy: policy.into(),
        fields: Bytes::new(),
        expires: stored.useful_until().as_unix_seconds(),
        received: stored.received().as_unix_seconds(),
    }
}

fn new_object(stored: &Stored, length: Option<u64>) -> NewObject {
    let (vary, secondary) = match stored.variance().is_empty() {
        true => (Vec::new(), Vec::new()),
        false => (stored.variance().line(), stored.variant().bytes().to_vec()),
    };
    NewObject {
        head: head(stored),
        vary,
        secondary,
        tags: stored.tags().map(Into::into).collect(),
        length,
        resumable: false,
        // Whoever leaves does not take the answer with them.
        fill_unread: true,
    }
}

/// Fills an object: at once if all of its content is there, or by a task of its own.
pub(super) async fn fill(mut filler: Filler, body: Body, most: u64) {
    match body {
        Body::Empty => {
            filler.finish();
        }
        Body::Sealed(sealed) => {
            let _ = filler.append(sealed.into_bytes()).await;
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
        // An end needs no room.
        if body.len() != Some(0) && filler.room().await.is_err() {
            return;
        }
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
