//! Responses that go on: who has them, how many there are, and when they end.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, BodyStream, Frame, HeaderValue, Response, StatusCode, header};
use apus_net::worker_stop;
use bytes::Bytes;

use crate::authentication::{Caller, StreamAccess};
use crate::reply::problem;

/// The streams of all accounts.
const MAX_STREAMS: usize = 64;

/// The streams of one account, so that none can take those of the others.
const MAX_STREAMS_EACH: usize = 32;

/// How many streams each account has. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamCounts(Arc<Mutex<HashMap<String, usize>>>);

impl StreamCounts {
    /// A place for a stream; the response that says why there is none.
    pub(crate) fn begin(&self, caller: &Caller) -> Result<StreamPlace, Box<Response>> {
        let mut counts = self.lock();
        let own = counts.get(&caller.name).copied().unwrap_or(0);
        let detail = if own >= MAX_STREAMS_EACH {
            "the account has as many streams as it can have at once"
        } else if counts.values().sum::<usize>() >= MAX_STREAMS {
            "there are as many streams as there can be at once"
        } else {
            counts.insert(caller.name.clone(), own + 1);
            return Ok(StreamPlace {
                counts: self.clone(),
                account: caller.name.clone(),
            });
        };
        Err(Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, detail)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a stream, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    counts: StreamCounts,
    account: String,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.account) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
    }
}

/// Where the events of a stream come from. It is asked for the next one when the client has taken the one before, so that a client
/// that does not read has none waiting here.
pub(crate) trait EventSource: Sized + 'static {
    /// The next event; `None` after the last one.
    fn next(self) -> impl Future<Output = Option<(Self, Bytes)>> + 'static;
}

/// Sends events until the client leaves, its account or its session ends, or the server stops.
pub(crate) fn event_stream(
    source: impl EventSource,
    access: StreamAccess,
    place: StreamPlace,
) -> Response {
    let mut response = Response::new(StatusCode::OK)
        .with_header(
            &header::CONTENT_TYPE,
            &HeaderValue::from_static("text/event-stream"),
        )
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        )
        .with_body(Body::stream(ApiEventBody {
            next: Box::pin(source.next()),
            stopping: Box::pin(worker_stop()),
            access,
            _place: place,
        }));
    // An event would wait for the next ones in what compresses.
    response.set_coding_chosen(true);
    response
}

type NextEvent<S> = Pin<Box<dyn Future<Output = Option<(S, Bytes)>>>>;

struct ApiEventBody<S> {
    next: NextEvent<S>,
    stopping: Pin<Box<dyn Future<Output = ()>>>,
    access: StreamAccess,
    _place: StreamPlace,
}

impl<S: EventSource> BodyStream for ApiEventBody<S> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let Some((source, event)) = ready!(self.next.as_mut().poll(cx)) else {
            return Poll::Ready(None);
        };
        if !self.access.is_valid() {
            return Poll::Ready(None);
        }
        self.next = Box::pin(source.next());
        Poll::Ready(Some(Ok(Frame::Data(event))))
    }
}

#[cfg(test)]
mod tests {
    use apus_control::OperatorAccounts;

    use super::*;
    use crate::authentication::Authentication;
    use crate::sessions::{AdminSessions, SessionOwner};

    fn caller(name: &str) -> Caller {
        Caller::named(name)
    }

    #[test]
    fn places_are_bounded_for_each_account_and_for_all() {
        let counts = StreamCounts::default();
        let begin = |name: &str| {
            counts
                .begin(&caller(name))
                .map_err(|response| response.status())
        };
        let first: Vec<_> = (0..MAX_STREAMS_EACH).map(|_| begin("a").unwrap()).collect();
        assert_eq!(begin("a").unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        let others: Vec<_> = (MAX_STREAMS_EACH..MAX_STREAMS)
            .map(|number| begin(&format!("b{number}")).unwrap())
            .collect();
        assert_eq!(begin("c").unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert!(begin("c").is_ok());
        drop(others);
        assert!(
            counts.lock().is_empty(),
            "nothing is kept of who has no stream"
        );
    }

    #[test]
    fn other_accounts_end_the_streams_of_those_before() {
        let sessions = Arc::new(AdminSessions::default());
        let of = || Authentication::new(OperatorAccounts::default(), Arc::clone(&sessions));
        let token = sessions.begin(SessionOwner::ControlSocket).unwrap().token;
        let request = apus_testkit::get("/").with("authorization", &format!("Bearer {token}"));
        let request = request.request();
        let authentication = of();
        let caller = authentication.caller(&request).unwrap();
        let access = authentication.stream_access(&request, &caller);
        assert!(access.is_valid());
        sessions.end(&apus_control::TokenDigest::of(&token));
        assert!(!access.is_valid(), "the session has ended");
        let access = authentication.stream_access(&request, &Caller::named("x"));
        assert!(access.is_valid());
        of();
        assert!(!access.is_valid());
    }
}
