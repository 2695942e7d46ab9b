//! `LocalClient`: sends the requests of a test to a service by calls.

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_http::{Body, Completion, Method, Response, ResponseOutcome, Service, ServiceFactory};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::{Reply, RequestBuilder, current_thread_runtime};

/// A client of one service, on a runtime as a worker has it. Tasks that the service starts run while a request or
/// [`LocalClient::run`] waits.
pub struct LocalClient {
    service: Rc<dyn Service>,
    tasks: LocalSet,
    runtime: Runtime,
}

impl LocalClient {
    /// A client of a new service.
    pub fn of(factory: &(impl ServiceFactory + ?Sized)) -> Self {
        let runtime = current_thread_runtime();
        let service = {
            let _entered = runtime.enter();
            factory.service()
        };
        Self {
            service,
            tasks: LocalSet::new(),
            runtime,
        }
    }

    /// The response to a request. As a connection does, it leaves out the body of a response to HEAD, and reports to the
    /// observers of the response that it was sent.
    pub fn send(&self, request: RequestBuilder) -> Reply {
        let request = request.request();
        let is_head = request.method() == Method::HEAD;
        self.run(async {
            let started = Instant::now();
            let mut response = self.service.call(request).wait().await;
            if is_head {
                *response.body_mut() = Body::Empty;
            }
            let observers = response.take_observers();
            let mut completion = Self::completion(&response);
            let reply = Reply::read(response).await;
            completion.body_bytes = reply.content.len() as u64;
            completion.bytes = completion.body_bytes;
            completion.duration = started.elapsed();
            observers.notify(&completion);
            reply
        })
    }

    /// The service, for requests at once within [`LocalClient::run`].
    pub fn service(&self) -> &Rc<dyn Service> {
        &self.service
    }

    /// Runs a future beside the tasks of the service.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, future)
    }

    fn completion(response: &Response) -> Completion {
        Completion {
            status: response.status(),
            body_bytes: 0,
            bytes: 0,
            duration: Duration::ZERO,
            first_byte: None,
            outcome: ResponseOutcome::Complete,
            origin: response.origin().cloned(),
            cache: None,
            fields: None,
        }
    }
}
