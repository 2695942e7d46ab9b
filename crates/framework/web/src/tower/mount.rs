//! `TowerMount`: a `tower` service as a service of Apus.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use apus_http::{Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode};

use super::body::SendBody;
use super::service::{TowerService, call_when_ready, failed};
use super::{message, upgrade};

/// A `tower::Service` under a path: `app.mount("/axum", TowerMount::new(router))`.
///
/// Its requests are `http::Request<SendBody>`. Their extensions include the extensions of the
/// application's layers, and the [`Peer`](crate::Peer) of the client.
pub struct TowerMount<S> {
    /// Cloned once for each worker.
    service: Mutex<S>,
}

impl<S: TowerService + Send> TowerMount<S> {
    /// Mounts a service. Each worker clones it once, and each request clones that clone.
    pub fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
        }
    }
}

impl<S: TowerService + Send> ServiceFactory for TowerMount<S> {
    fn service(&self) -> Rc<dyn Service> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        Rc::new(TowerMountService(service.clone()))
    }
}

/// The service on one worker.
struct TowerMountService<S>(S);

impl<S: TowerService> Service for TowerMountService<S> {
    fn call(&self, request: Request) -> ResponseFuture {
        let service = self.0.clone();
        ResponseFuture::later(async move {
            if upgrade::is_upgrade(&request) {
                return upgrade::respond(service, request).await;
            }
            let Ok(request) = message::request_to(request, SendBody::of) else {
                return Response::new(StatusCode::BAD_REQUEST);
            };
            match call_when_ready(service, request).await {
                Ok(response) => message::response_from(response).await,
                Err(error) => failed(error),
            }
        })
    }
}

impl<S> std::fmt::Debug for TowerMount<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TowerMount").finish_non_exhaustive()
    }
}
