//! `SendApp`: an application on its own thread as a `tower::Service` for any thread.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use apus_http::{Request, Response, ServiceFactory, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use super::body::SendBody;
use super::{BoxError, app, message};
use crate::app::App;

/// An application on its own thread, as a `tower::Service` that is `Clone + Send + Sync`.
///
/// The thread ends when all clones are dropped and all requests are complete. It responds 501 to upgrades.
#[derive(Clone, Debug)]
pub struct SendApp {
    calls: mpsc::UnboundedSender<SendAppCall>,
}

/// A request for the thread, which is made there because it is not `Send`, and the sender of its response.
struct SendAppCall {
    request: Box<dyn FnOnce() -> Result<Request, StatusCode> + Send>,
    response: oneshot::Sender<http::Response<SendBody>>,
}

impl App {
    /// Starts a thread for this application, and returns a `tower::Service` for any thread.
    ///
    /// # Errors
    /// A route is invalid, or the thread cannot be started.
    pub fn into_send_tower(self) -> io::Result<SendApp> {
        self.check()
            .map_err(|errors| io::Error::new(io::ErrorKind::InvalidInput, errors))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (calls, received) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("apus-tower".into())
            .spawn(move || {
                let tasks = LocalSet::new();
                tasks.block_on(&runtime, run(self, received));
                // Completes open requests.
                runtime.block_on(tasks);
            })?;
        Ok(SendApp { calls })
    }
}

async fn run(app: App, mut calls: mpsc::UnboundedReceiver<SendAppCall>) {
    let service = app.service();
    while let Some(SendAppCall {
        request,
        response: sender,
    }) = calls.recv().await
    {
        let service = service.clone();
        tokio::task::spawn_local(async move {
            let mut sender = sender;
            let response = async {
                match request() {
                    Ok(request) => app::respond(&*service, request).await,
                    Err(status) => Response::new(status),
                }
            };
            let response = tokio::select! {
                response = response => response,
                () = sender.closed() => return,
            };
            // The caller may be gone.
            let _ = sender.send(message::response_to(response, SendBody::of));
        });
    }
}

impl<B> tower_service::Service<http::Request<B>> for SendApp
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<SendBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (response, received) = oneshot::channel();
        let request = Box::new(move || message::request_from(request));
        // If the thread is gone, the receiver gets an error.
        let _ = self.calls.send(SendAppCall { request, response });
        Box::pin(async move {
            Ok(received.await.unwrap_or_else(|_| {
                tracing::error!("the handler of a request failed");
                let failed = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
                message::response_to(failed, |_| SendBody::empty())
            }))
        })
    }
}

impl std::fmt::Debug for SendAppCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendAppCall").finish_non_exhaustive()
    }
}
