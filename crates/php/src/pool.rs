//! A pool of workers, for all threads.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use apus_http::{Body, BodyError, BodyStream, Frame, Headers, Method, StatusCode, list};
use tokio::sync::{mpsc, oneshot};

use crate::content::content;
use crate::error::{Failure, StartError};
use crate::exchange::{Asked, Exchange};
use crate::hub::Listening;
use crate::launcher::Launcher;
use crate::plan::{Launch, PoolPlan};
use crate::request::{Upload, WorkerRequest, WorkerResponse, head};
use crate::shared::{Shared, count};
use crate::signal::Signal;
use crate::status::PoolStatus;
use crate::supervisor::Supervisor;
use crate::wire::{ResponseHead, is_channel};

/// A pool of workers. Clones are the same pool; any thread may ask it.
///
/// A thread of its own starts the workers and looks after them. A request takes a connection to a worker
/// along to its own thread, writes to it, reads from it, and gives it back; requests that find none wait
/// in one line.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// How often a request is given to another worker that a worker may have begun with.
const MAX_RETRIES: usize = 2;

/// How often a request is given to another worker that no worker began with.
const MAX_UNBEGUN: usize = 16;

impl Pool {
    /// Starts the pool. Its workers boot by and by; requests may come at once. It runs until it is
    /// [stopped](Pool::stop), or the process ends.
    ///
    /// # Errors
    /// There is no such script or program, or the folder cannot be made.
    pub fn start(plan: PoolPlan) -> Result<Self, StartError> {
        Self::start_with(plan, None)
    }

    /// As [`Pool::start`]; `launcher` starts PHP that runs as another user.
    pub(crate) fn start_with(
        plan: PoolPlan,
        launcher: Option<Arc<dyn Launcher>>,
    ) -> Result<Self, StartError> {
        let (signals, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(plan, signals, launcher));
        let (started, outcome) = std::sync::mpsc::channel();
        let pool = Self {
            shared: Arc::clone(&shared),
        };
        // Programs that it starts end with this thread, not with the one that called.
        thread::Builder::new()
            .name("apus-php".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build_local(Default::default());
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = started.send(Err(StartError::Thread(error)));
                        return;
                    }
                };
                runtime.block_on(async {
                    match Supervisor::new(shared, received) {
                        Ok(supervisor) => {
                            let _ = started.send(Ok(()));
                            supervisor.run().await;
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })
            .map_err(StartError::Thread)?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Thread(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// What the pool was started as.
    pub fn plan(&self) -> &PoolPlan {
        &self.shared.plan
    }

    /// Has a worker answer a request. One whose worker ended before it said anything is given to another
    /// worker, if its method is idempotent (RFC 9110 section 9.2.2) and its content was short.
    ///
    /// # Errors
    /// No worker answered.
    pub async fn send(&self, request: WorkerRequest) -> Result<WorkerResponse, Failure> {
        let shared = &self.shared;
        count(&shared.totals.requests);
        let WorkerRequest {
            message,
            method,
            id,
            body,
        } = request;
        let is_head = method == Method::HEAD;
        let upload = Upload::of(body).await?;
        let asked = Asked {
            message,
            method,
            id: Some(id),
            socket: None,
        };
        let (exchange, answer) = self.ask(asked, upload).await?;
        self.response(exchange, &answer, is_head)
    }

    /// Has a worker answer, or another in its place.
    pub(crate) async fn ask(
        &self,
        mut asked: Asked,
        mut upload: Upload,
    ) -> Result<(Exchange, ResponseHead), Failure> {
        let shared = &self.shared;
        let is_head = asked.method == Method::HEAD;
        asked
            .message
            .finish(upload.content(), is_head)
            .map_err(|_| Failure::Oversized)?;
        let (mut retries, mut unbegun) = (0, 0);
        loop {
            let Some(connection) = shared.lease().await?.begin() else {
                continue;
            };
            let exchange = Exchange::new(Arc::clone(shared), connection, asked, upload);
            let broken = match exchange.run().await {
                Ok(answered) => return Ok(answered),
                Err(broken) => *broken,
            };
            count(&shared.totals.crashes);
            let is_safe = is_idempotent(&broken.request.method)
                && matches!(broken.upload, Upload::Inline(_))
                && matches!(broken.failure, Failure::Crashed | Failure::Io(_));
            // What no worker began with costs the application nothing, however often its processes end.
            let is_over = if broken.is_untouched {
                unbegun += 1;
                unbegun > MAX_UNBEGUN
            } else {
                retries += 1;
                retries > MAX_RETRIES || !is_safe
            };
            if is_over {
                return Err(broken.failure);
            }
            count(&shared.totals.retries);
            (asked, upload) = (broken.request, broken.upload);
        }
    }

    pub(crate) fn response(
        &self,
        exchange: Exchange,
        answer: &ResponseHead,
        is_head: bool,
    ) -> Result<WorkerResponse, Failure> {
        let head = head(answer, is_head)?;
        let mut headers = head.headers;
        let pid = exchange.pid();
        let events = headers
            .get("x-apus-events")
            .filter(|_| head.status == StatusCode::OK && !is_head)
            .map(|channels| self.listen(channels));
        let mut body = content(exchange, head.content, answer);
        if let Some(listening) = events {
            as_event_stream(&mut headers);
            body = Body::stream(Followed {
                first: body,
                then: listening,
            });
        }
        Ok(WorkerResponse {
            status: head.status,
            headers,
            body,
            pid,
        })
    }

    fn listen(&self, channels: &[u8]) -> Listening {
        let names = list::members(channels).filter(|name| is_channel(name));
        self.shared.hub.listen(names)
    }

    /// Loads the application anew: its script, by way of symbolic links that may have been switched. New
    /// workers boot before old ones end, and no request is lost.
    ///
    /// # Errors
    /// The new one does not boot, and the old workers go on: what PHP said.
    pub async fn reload(&self) -> Result<(), Arc<str>> {
        let (reply, done) = oneshot::channel();
        self.shared.signal(Signal::Reload(reply));
        done.await
            .unwrap_or_else(|_| Err("the pool has ended".into()))
    }

    /// Lets workers finish what they do and what waits, and ends them. Requests that come are refused.
    pub async fn stop(&self) {
        let (reply, done) = oneshot::channel();
        self.shared.signal(Signal::Stop(reply));
        let _ = done.await;
    }

    /// Whether the application takes WebSockets.
    pub fn takes_sockets(&self) -> bool {
        self.shared.state().takes_sockets
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends event streams and WebSockets; see [`Pools::end_streams`](crate::Pools::end_streams).
    pub(crate) fn end_streams(&self) {
        self.shared.hub.close();
        self.shared.sockets.close();
    }

    /// Has it [stop](Pool::stop), and does not wait.
    pub(crate) fn begin_stop(&self) {
        self.shared.signal(Signal::Stop(oneshot::channel().0));
    }

    /// Whether PHP knows the files that were uploaded with a request as such. It does not where it is
    /// built so that they can only be taken in by itself: those requests are better asked over FastCGI.
    pub fn takes_uploads(&self) -> bool {
        // What processes of our own do is known before the first of them has said it.
        matches!(self.plan().launch, Launch::Own(_)) || self.shared.state().takes_uploads
    }

    /// What the pool does.
    pub fn status(&self) -> PoolStatus {
        self.shared.status()
    }
}

fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// Fields of an answer that goes on with events.
fn as_event_stream(headers: &mut Headers) {
    headers.remove("x-apus-events");
    headers.remove("content-length");
    // Both are valid.
    let _ = headers.try_insert("content-type", "text/event-stream");
    if !headers.contains("cache-control") {
        let _ = headers.try_append("cache-control", "no-cache");
    }
}

/// Content, and then what is published.
struct Followed {
    first: Body,
    then: Listening,
}

impl BodyStream for Followed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.first.poll_frame(cx) {
            Poll::Ready(None) => self.then.poll_frame(cx),
            first => first,
        }
    }
}
