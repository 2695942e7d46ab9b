//! `TowerApp`: an application as a `tower::Service` on the thread of its caller.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use apus_http::{Request, Response, Service, ServiceFactory};

use super::body::LocalBody;
use super::{BoxError, message};
use crate::app::App;

/// An application as a `tower::Service` of `http` messages, on one thread.
///
/// The service and its futures are not `Send`. If handlers spawn tasks, the future needs a
/// [`LocalSet`](tokio::task::LocalSet) around it, as on a worker of Apus. It cannot upgrade connections: it
/// responds 501.
#[derive(Clone)]
pub struct TowerApp {
    service: Rc<dyn Service>,
}

/// The future of a response.
type ResponseFuture<B> = Pin<Box<dyn Future<Output = Result<http::Response<B>, Infallible>>>>;

impl App {
    /// This application as a `tower::Service` for the current thread.
    pub fn into_tower(self) -> TowerApp {
        TowerApp {
            service: self.service(),
        }
    }
}

impl<B> tower_service::Service<http::Request<B>> for TowerApp
where
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    type Response = http::Response<LocalBody>;
    type Error = Infallible;
    type Future = ResponseFuture<LocalBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.service.clone();
        Box::pin(async move {
            let response = match message::request_from(request) {
                Ok(request) => respond(&*service, request).await,
                Err(status) => Response::new(status),
            };
            Ok(message::response_to(response, LocalBody::new))
        })
    }
}

/// A service for one call, as by `ServiceExt::oneshot`, which builds the router for each call. Use
/// [`App::into_tower`] for several calls.
impl<B> tower_service::Service<http::Request<B>> for App
where
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    type Response = http::Response<LocalBody>;
    type Error = Infallible;
    type Future = ResponseFuture<LocalBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        self.clone().into_tower().call(request)
    }
}

/// The response of a service, which cannot upgrade the connection here.
pub(super) async fn respond(service: &dyn Service, request: Request) -> Response {
    let mut response = service.call(request).wait().await;
    if response.take_tunnel().is_some() {
        tracing::warn!("a tower service cannot upgrade a connection");
        return Response::new(apus_http::StatusCode::NOT_IMPLEMENTED);
    }
    response
}

impl std::fmt::Debug for TowerApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TowerApp").finish_non_exhaustive()
    }
}
