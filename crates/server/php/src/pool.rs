//! A pool of workers, shared by all threads.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use apus_http::{
    Body, BodyError, BodyStream, Frame, Headers, Method, Response, ResponseOrigin, StatusCode, list,
};
use tokio::sync::{mpsc, oneshot};

use crate::error::{PoolStartError, WorkerError};
use crate::exchange::WorkerExchange;
use crate::hub::EventSubscription;
use crate::launcher::Launcher;
use crate::plan::{Launch, WorkerPoolPlan};
use crate::request::{WorkerRequest, WorkerRequestBody, WorkerRequestHead, WorkerResponse, head};
use crate::response_body::response_body;
use crate::shared::{SharedPool, increment};
use crate::status::PoolStatus;
use crate::supervisor::Supervisor;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{WorkerResponseHead, is_channel};

/// A pool of workers. Clones are the same pool; any thread may use it.
///
/// The supervisor starts and watches the workers on a separate thread. A request moves a connection to its own
/// thread, writes to it and reads from it, and returns it; requests without a connection wait in one queue.
#[derive(Clone, Debug)]
pub struct WorkerPool {
    shared: Arc<SharedPool>,
}

/// How often a request is retried that a worker may have processed in part.
const MAX_RETRIES: usize = 2;

/// How often a request is retried that no worker began to process.
const MAX_UNPROCESSED: usize = 16;

impl WorkerPool {
    /// Starts the pool. Its workers boot in the background; requests can be sent at once. It runs until it is
    /// [stopped](WorkerPool::stop), or the process ends.
    ///
    /// # Errors
    /// The script or the program does not exist, or the folder cannot be created.
    pub fn start(plan: WorkerPoolPlan) -> Result<Self, PoolStartError> {
        Self::start_with(plan, None)
    }

    /// Starts the pool with a launcher, which starts PHP that runs as another user.
    pub(crate) fn start_with(
        plan: WorkerPoolPlan,
        launcher: Option<Arc<dyn Launcher>>,
    ) -> Result<Self, PoolStartError> {
        let (sender, messages) = mpsc::unbounded_channel();
        let shared = Arc::new(SharedPool::new(plan, sender, launcher));
        let (started, result) = std::sync::mpsc::channel();
        let pool = Self {
            shared: Arc::clone(&shared),
        };
        // Programs end with the thread that starts them, which must not be the caller's.
        thread::Builder::new()
            .name("apus-php".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build_local(Default::default());
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = started.send(Err(PoolStartError::Thread(error)));
                        return;
                    }
                };
                runtime.block_on(async {
                    match Supervisor::new(shared, messages) {
                        Ok(supervisor) => {
                            let _ = started.send(Ok(()));
                            supervisor.run().await;
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })
            .map_err(PoolStartError::Thread)?;
        match result.recv() {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PoolStartError::Thread(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// The plan of the pool.
    pub fn plan(&self) -> &WorkerPoolPlan {
        &self.shared.plan
    }

    /// The origin of a response to a request that was sent to a worker at this time.
    pub(crate) fn origin(&self, status: StatusCode, sent_at: Instant) -> ResponseOrigin {
        ResponseOrigin {
            address: self.plan().name.clone(),
            status,
            duration: sent_at.elapsed(),
        }
    }

    /// The response of a worker to a request that was sent at this time.
    pub(crate) fn response_of(&self, response: WorkerResponse, sent_at: Instant) -> Response {
        let origin = self.origin(response.status, sent_at);
        let mut made = Response::with_headers(response.status, response.headers, response.body);
        made.set_origin(origin);
        made
    }

    /// Sends a request to a worker. If the worker ends before its response, the request is sent to another one,
    /// if the method is idempotent (RFC 9110 section 9.2.2) and the body short.
    ///
    /// # Errors
    /// No worker responded.
    pub async fn send(&self, request: WorkerRequest) -> Result<WorkerResponse, WorkerError> {
        let shared = &self.shared;
        increment(&shared.counters.requests);
        let WorkerRequest {
            message,
            method,
            id,
            interim,
            body,
        } = request;
        let is_head = method == Method::HEAD;
        let body = WorkerRequestBody::of(body).await?;
        let request = WorkerRequestHead {
            message,
            method,
            id: Some(id),
            socket: None,
            interim,
        };
        let (exchange, head) = self.exchange(request, body).await?;
        self.response(exchange, &head, is_head)
    }

    /// Sends a request to a worker and waits for the head of the response, with retries.
    pub(crate) async fn exchange(
        &self,
        mut request: WorkerRequestHead,
        mut body: WorkerRequestBody,
    ) -> Result<(WorkerExchange, WorkerResponseHead), WorkerError> {
        let shared = &self.shared;
        let is_head = request.method == Method::HEAD;
        request
            .message
            .finish(body.transfer(), is_head)
            .map_err(|_| WorkerError::Oversized)?;
        let (mut retries, mut unprocessed) = (0, 0);
        loop {
            let lease = shared.lease().await?;
            let queued = lease.queued();
            let Some(connection) = lease.begin() else {
                continue;
            };
            let exchange = WorkerExchange::new(Arc::clone(shared), connection, request, body);
            let result = exchange.run().await;
            if let Some(queued) = queued {
                match &result {
                    Ok(_) => queued.respond(),
                    Err(_) => queued.fail(),
                }
            }
            let failed = match result {
                Ok(responded) => return Ok(responded),
                Err(failed) => *failed,
            };
            increment(&shared.counters.crashes);
            let is_safe = is_idempotent(&failed.request.method)
                && matches!(failed.body, WorkerRequestBody::Inline(_))
                && matches!(failed.error, WorkerError::Crashed | WorkerError::Io(_));
            // The retry of an unprocessed request costs the application nothing, so it has a higher limit.
            let is_final = if failed.is_unprocessed {
                unprocessed += 1;
                unprocessed > MAX_UNPROCESSED
            } else {
                retries += 1;
                retries > MAX_RETRIES || !is_safe
            };
            if is_final {
                return Err(failed.error);
            }
            increment(&shared.counters.retries);
            (request, body) = (failed.request, failed.body);
        }
    }

    pub(crate) fn response(
        &self,
        exchange: WorkerExchange,
        worker_head: &WorkerResponseHead,
        is_head: bool,
    ) -> Result<WorkerResponse, WorkerError> {
        let head = head(worker_head, is_head)?;
        let mut headers = head.headers;
        let pid = exchange.pid();
        let channels = headers
            .get("x-apus-events")
            .filter(|_| head.status == StatusCode::OK);
        let is_stream = channels.is_some();
        let events = channels
            .filter(|_| !is_head)
            .map(|channels| self.subscribe(channels));
        if let Some(line) = &head.invalid_line {
            exchange.log_invalid_line(line);
        }
        let mut body = response_body(exchange, head.body, worker_head);
        headers.remove("x-apus-events");
        if is_stream {
            set_event_stream_headers(&mut headers);
        }
        if let Some(events) = events {
            body = Body::stream(EventStreamBody {
                first: body,
                then: events,
            });
        }
        Ok(WorkerResponse {
            status: head.status,
            headers,
            body,
            pid,
        })
    }

    fn subscribe(&self, channels: &[u8]) -> EventSubscription {
        let names = list::members(channels).filter(|name| is_channel(name));
        self.shared.hub.subscribe(names)
    }

    /// Reloads the application, and resolves the symbolic links to its script again. New workers boot before old
    /// ones stop, and no request is lost.
    ///
    /// # Errors
    /// The new application does not boot, and the old workers stay; the error is the output of PHP.
    pub async fn reload(&self) -> Result<(), Arc<str>> {
        let (reply, done) = oneshot::channel();
        self.shared
            .notify_supervisor(SupervisorMessage::Reload(reply));
        done.await
            .unwrap_or_else(|_| Err("the pool has ended".into()))
    }

    /// Stops the workers after all running and queued requests. New requests fail.
    pub async fn stop(&self) {
        let (reply, done) = oneshot::channel();
        self.shared
            .notify_supervisor(SupervisorMessage::Stop(reply));
        let _ = done.await;
    }

    /// Whether the application accepts WebSockets.
    pub fn takes_sockets(&self) -> bool {
        self.shared.state().takes_sockets
    }

    pub(crate) fn shared(&self) -> &Arc<SharedPool> {
        &self.shared
    }

    /// Closes event streams and WebSockets; see [`WorkerPools::end_streams`](crate::WorkerPools::end_streams).
    pub(crate) fn end_streams(&self) {
        self.shared.hub.close();
        self.shared.sockets.close();
    }

    /// Begins to [stop](WorkerPool::stop) the pool, without waiting.
    pub(crate) fn begin_stop(&self) {
        self.shared
            .notify_supervisor(SupervisorMessage::Stop(oneshot::channel().0));
    }

    /// Whether `is_uploaded_file()` of PHP recognises uploads to workers. In some builds of PHP it only recognises
    /// uploads over FastCGI; then requests with uploads should be sent over FastCGI.
    pub fn takes_uploads(&self) -> bool {
        // Our `php-cgi` supports it always, also before the first worker connects.
        matches!(self.plan().launch, Launch::PhpCgi(_)) || self.shared.state().takes_uploads
    }

    /// The status of the pool.
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

/// Sets the header fields of a response that continues with events.
fn set_event_stream_headers(headers: &mut Headers) {
    headers.remove("content-length");
    // They cannot fail: names and values are valid.
    let _ = headers.try_insert("content-type", "text/event-stream");
    if !headers.contains("cache-control") {
        let _ = headers.try_append("cache-control", "no-cache");
    }
}

/// The body of an event stream: first the body of the application's response, then published events.
struct EventStreamBody {
    first: Body,
    then: EventSubscription,
}

impl BodyStream for EventStreamBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.first.poll_frame(cx) {
            Poll::Ready(None) => self.then.poll_frame(cx),
            first => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::task::spawn_local;

    use apus_http::{Interim, RequestId};

    use super::*;
    use crate::connection::WorkerConnection;
    use crate::wire::{FixedVariables, RequestFrame};

    /// BYE with the reason `stop`.
    const BYE: &[u8] = b"\x04\0\0\0\x4a\0\0\0stop";

    /// RESPONSE with the status 204.
    const RESPONSE: &[u8] = b"\x0c\0\0\0\x43\0\0\0\xcc\0\0\0\0\0\0\0\0\0\0\0";

    /// A worker that writes this frame once it has a request.
    async fn respond(mut worker: UnixStream, frame: &'static [u8]) {
        let mut input = [0; 4096];
        // The test may end before the worker has a request.
        if worker.read(&mut input).await.unwrap() > 0 {
            worker.write_all(frame).await.unwrap();
        }
    }

    /// Sends a request to workers of which this number end, one after another, without processing it; the next
    /// one responds. Returns the result and the number of retries.
    async fn send_past(ending: usize) -> (Result<WorkerResponse, WorkerError>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let (sender, _messages) = mpsc::unbounded_channel();
        let plan = WorkerPoolPlan::without_php(folder.path());
        let shared = Arc::new(SharedPool::new(plan, sender, None));
        // The worker that became idle last gets the request first.
        let frames = std::iter::once(RESPONSE).chain(std::iter::repeat_n(BYE, ending));
        for (id, frame) in (1..).zip(frames) {
            let (connection, worker) = WorkerConnection::with_peer(id);
            shared.admit(connection);
            spawn_local(respond(worker, frame));
        }
        let pool = WorkerPool { shared };
        let request = WorkerRequest {
            message: RequestFrame::request(&FixedVariables::new(), 512),
            method: Method::POST,
            id: RequestId::parse(b"1").unwrap(),
            interim: Interim::default(),
            body: Body::Empty,
        };
        let result = pool.send(request).await;
        (result, pool.shared.counters.retries.load(Relaxed))
    }

    #[test]
    fn a_request_that_no_worker_processed_is_retried_up_to_its_own_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(async {
            for ending in [MAX_UNPROCESSED - 1, MAX_UNPROCESSED] {
                let (result, retries) = send_past(ending).await;
                assert_eq!(result.unwrap().status, StatusCode::NO_CONTENT);
                assert_eq!(retries, ending as u64);
            }
            let (result, retries) = send_past(MAX_UNPROCESSED + 1).await;
            let error = result.unwrap_err();
            assert!(matches!(error, WorkerError::Crashed), "{error}");
            assert_eq!(retries, MAX_UNPROCESSED as u64);
        });
    }
}
