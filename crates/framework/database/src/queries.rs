//! `QueryLog`: the layer that counts the statements of each request, and finds those that repeat.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_handler::{Middleware, Next, RequestSpan};
use apus_http::{Request, ResponseFuture};
use sqlx::SqlStr;

/// The most different statements of a request that are looked at.
const MAX_STATEMENTS: usize = 256;

thread_local! {
    /// The counts of the request that this thread is at.
    static CURRENT: RefCell<Option<Arc<RequestQueries>>> = const { RefCell::new(None) };
}

/// A layer that counts the statements of each request and the time that they take.
///
/// The span of the request gets the fields `queries` and `query_us`, and a line with the target `apus::queries` and the
/// level `DEBUG` has them, too. A statement that one request runs more than ten times is a warning with its text: most likely a loop
/// loads rows one by one (n+1), which [`Related`](crate::Related) or an `IN` loads by one statement. It is made for
/// development; each statement costs about a microsecond more.
///
/// Statements on `&Db` and `&Tx` and statements of models are counted. The text of each is a line of sqlx itself, with
/// the target `sqlx::query` and the level `DEBUG`.
#[derive(Clone, Copy, Debug)]
pub struct QueryLog {
    most_repetitions: u32,
}

impl Default for QueryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl QueryLog {
    /// Warns of a statement that runs more than ten times.
    pub fn new() -> Self {
        Self {
            most_repetitions: 10,
        }
    }

    /// Warns of a statement that runs more often than this.
    #[must_use]
    pub fn most_repetitions(self, most: u32) -> Self {
        Self {
            most_repetitions: most,
        }
    }

    fn finish(self, request: &CountedRequest) {
        let counts = request.queries.lock();
        let (queries, time) = (counts.count, counts.time);
        if let Some(span) = &request.span {
            span.record_queries(queries, time);
        }
        tracing::debug!(
            target: "apus::queries",
            path = request.path,
            queries,
            query_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
        );
        for (statement, times) in &counts.statements {
            if *times > self.most_repetitions {
                tracing::warn!(
                    target: "apus::queries",
                    path = request.path,
                    statement = statement.as_str(),
                    times,
                    "a request ran one statement many times: `has_many`, `belongs_to` or an IN loads all rows by one"
                );
            }
        }
    }
}

impl Middleware<()> for QueryLog {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let counted = CountedRequest {
            span: RequestSpan::of(&request).cloned(),
            path: request.original_target().path().to_owned(),
            queries: Arc::default(),
        };
        let future = counted.queries.scope(|| next.call(request));
        let log = *self;
        match future {
            ResponseFuture::Now(response) => {
                log.finish(&counted);
                response.into()
            }
            ResponseFuture::Later(future) => ResponseFuture::later(async move {
                let response = CountedFuture {
                    future,
                    queries: counted.queries.clone(),
                };
                let response = response.await;
                log.finish(&counted);
                response
            }),
        }
    }
}

/// A request, for its log.
struct CountedRequest {
    span: Option<RequestSpan>,
    path: String,
    queries: Arc<RequestQueries>,
}

/// The statements of one request.
#[derive(Default)]
struct RequestQueries(Mutex<QueryCounts>);

#[derive(Default)]
struct QueryCounts {
    count: u64,
    time: Duration,
    statements: HashMap<String, u32>,
}

impl RequestQueries {
    fn lock(&self) -> std::sync::MutexGuard<'_, QueryCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a part of the request, whose statements count.
    fn scope<T>(self: &Arc<Self>, run: impl FnOnce() -> T) -> T {
        /// Restores the outer request, also on a panic.
        struct Outer(Option<Arc<RequestQueries>>);
        impl Drop for Outer {
            fn drop(&mut self) {
                let outer = self.0.take();
                CURRENT.with_borrow_mut(|current| *current = outer);
            }
        }
        let outer = CURRENT.with_borrow_mut(|current| current.replace(self.clone()));
        let _outer = Outer(outer);
        run()
    }
}

/// A future whose statements count for a request.
struct CountedFuture<F> {
    future: F,
    queries: Arc<RequestQueries>,
}

impl<F: Future + Unpin> Future for CountedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let queries = self.queries.clone();
        queries.scope(|| Pin::new(&mut self.future).poll(cx))
    }
}

/// Counts a statement from now on until this is dropped.
pub(crate) struct QueryTimer(Option<(Arc<RequestQueries>, Instant)>);

/// Counts a statement of the current request, if its statements are counted.
pub(crate) fn timer(sql: &SqlStr) -> QueryTimer {
    let Some(queries) = CURRENT.with_borrow(Clone::clone) else {
        return QueryTimer(None);
    };
    let mut counts = queries.lock();
    counts.count = counts.count.saturating_add(1);
    let text = sql.as_str();
    if let Some(times) = counts.statements.get_mut(text) {
        *times = times.saturating_add(1);
    } else if counts.statements.len() < MAX_STATEMENTS {
        counts.statements.insert(text.to_owned(), 1);
    }
    drop(counts);
    QueryTimer(Some((queries, Instant::now())))
}

impl Drop for QueryTimer {
    fn drop(&mut self) {
        if let Some((queries, started)) = self.0.take() {
            let took: Duration = started.elapsed();
            let mut counts = queries.lock();
            counts.time = counts.time.saturating_add(took);
        }
    }
}
