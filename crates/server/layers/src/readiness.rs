//! `Readiness`: the handler by which a load balancer asks whether an application can serve.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use apus_handler::{Error, Handler, IntoResponse, Matched};
use apus_http::{HeaderValue, Request, ResponseFuture, header};

/// A handler that runs checks, as of the database: 200 if all succeed, and 503 with the names of the others. A load
/// balancer sends no requests to an application that is not ready; a separate route (`.get("/health", || "ok\n")`) says
/// that the process works.
///
/// ```
/// # use apus_layers::Readiness;
/// let ready = Readiness::new()
///     .check("files", async || std::fs::metadata("/"))
///     .check("mails", async || Err::<(), _>("no route"));
/// # let _ = ready;
/// ```
///
/// As the handler of a route, this responds with a 503 and `not ready: mails`. The causes are logged, and the client does not see them. A check fails after five seconds. Checks run one after
/// another, at each request.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Vec<ReadinessCheck>,
    time_limit: Option<Duration>,
}

#[derive(Clone)]
struct ReadinessCheck {
    name: &'static str,
    run: Arc<RunCheck>,
}

type RunCheck = dyn Fn() -> CheckFuture + Send + Sync;

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), Box<dyn StdError + Send + Sync>>>>>;

/// The time limit of a check.
const TIME_LIMIT: Duration = Duration::from_secs(5);

impl Readiness {
    /// Without checks, it is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check with a name for people: `.check("database", async move || db.acquire().await)`.
    #[must_use]
    pub fn check<F, T, E>(mut self, name: &'static str, check: F) -> Self
    where
        F: AsyncFn() -> Result<T, E> + Send + Sync + 'static,
        T: 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let check = Arc::new(check);
        let run = move || -> CheckFuture {
            let check = check.clone();
            Box::pin(async move { check().await.map(|_| ()).map_err(Into::into) })
        };
        self.checks.push(ReadinessCheck {
            name,
            run: Arc::new(run),
        });
        self
    }

    /// The time limit of each check.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    async fn run(self) -> Result<&'static str, Error> {
        let limit = self.time_limit.unwrap_or(TIME_LIMIT);
        let mut failed = Vec::new();
        for check in &self.checks {
            let result = match tokio::time::timeout(limit, (check.run)()).await {
                Ok(result) => result,
                Err(elapsed) => Err(elapsed.into()),
            };
            if let Err(error) = result {
                tracing::warn!(check = check.name, error = %error, "a check of the readiness failed");
                failed.push(check.name);
            }
        }
        if failed.is_empty() {
            Ok("ready\n")
        } else {
            let retry = HeaderValue::from_static("5");
            let error = Error::unavailable(format_args!("not ready: {}", failed.join(", ")));
            Err(error.header(header::RETRY_AFTER, retry))
        }
    }
}

#[diagnostic::do_not_recommend]
impl Handler<()> for Readiness {
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        let rendering = matched.rendering(&request);
        let run = self.clone().run();
        ResponseFuture::later(async move {
            let response = rendering.apply(run.await.into_response());
            response.with_header(
                &header::CACHE_CONTROL,
                &HeaderValue::from_static("no-store"),
            )
        })
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.checks.iter().map(|check| check.name);
        f.debug_list().entries(names).finish()
    }
}
