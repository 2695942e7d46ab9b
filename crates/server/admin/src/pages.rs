//! What the address responds.

use std::rc::Rc;

use apus_control::{ControlQueue, ControlRequest};
use apus_http::{
    HeaderValue, Method, Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode,
    header,
};
use apus_metrics::MetricFormat;
use serde_json::Value;

use crate::api::{API_PREFIX, Api};
use crate::dashboard;
use crate::reply::{ask, fresh};

/// The pages, which ask the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    queue: ControlQueue,
    api: Api,
}

impl Pages {
    pub(crate) fn new(queue: ControlQueue, api: Api) -> Self {
        Self { queue, api }
    }

    fn respond(&self, request: &Request) -> ResponseFuture {
        if let Some(response) = dashboard::respond(request) {
            return response.into();
        }
        let path = request.path();
        if !matches!(path, "/metrics" | "/status") {
            return Response::text(StatusCode::NOT_FOUND, "404 Not Found\n").into();
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allow = HeaderValue::from_static("GET, HEAD");
            return Response::refuse_method(request.method(), &allow).into();
        }
        let queue = self.queue.clone();
        match path {
            "/metrics" => {
                let format = MetricFormat::accepted(request.headers().get_str("accept"));
                ResponseFuture::later(async move { metrics(&queue, format).await })
            }
            _ => ResponseFuture::later(async move {
                match ask(&queue, ControlRequest::Status, String::new()).await {
                    Ok(status) => fresh("application/json", status.to_string()),
                    Err(failed) => *failed,
                }
            }),
        }
    }
}

async fn metrics(queue: &ControlQueue, format: MetricFormat) -> Response {
    let request = ControlRequest::Metrics {
        format: format.into(),
    };
    match ask(queue, request, String::new()).await {
        Ok(mut answer) => {
            let text = match answer.get_mut("text").map(Value::take) {
                Some(Value::String(text)) => text,
                _ => String::new(),
            };
            fresh(format.media_type(), text)
                .with_header(&header::VARY, &HeaderValue::from_static("Accept"))
        }
        Err(failed) => *failed,
    }
}

impl Service for Pages {
    fn call(&self, request: Request) -> ResponseFuture {
        if request.path().starts_with(API_PREFIX) {
            return self.api.respond(request);
        }
        self.respond(&request)
    }
}

impl ServiceFactory for Pages {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(self.clone())
    }
}
