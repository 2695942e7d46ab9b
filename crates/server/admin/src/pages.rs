//! What the address responds.

use std::rc::Rc;

use apus_control::{ControlQueue, ControlRequest, ControlResponse};
use apus_http::{
    HeaderValue, Method, Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode,
    header,
};
use apus_metrics::MetricFormat;
use serde_json::Value;

const INDEX: &str = "Apus\n\n/metrics  metrics in the text format of Prometheus or of OpenMetrics\n/status   the status as JSON\n";

/// The pages, which ask the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    queue: ControlQueue,
}

impl Pages {
    pub(crate) fn new(queue: ControlQueue) -> Self {
        Self { queue }
    }

    fn respond(&self, request: &Request) -> ResponseFuture {
        let path = request.path();
        if !matches!(path, "/" | "/metrics" | "/status") {
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
            "/status" => ResponseFuture::later(async move {
                match ask(&queue, ControlRequest::Status).await {
                    Ok(status) => fresh("application/json", status.to_string()),
                    Err(failed) => *failed,
                }
            }),
            _ => Response::text(StatusCode::OK, INDEX).into(),
        }
    }
}

async fn metrics(queue: &ControlQueue, format: MetricFormat) -> Response {
    let request = ControlRequest::Metrics {
        format: format.into(),
    };
    match ask(queue, request).await {
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

/// The answer of the control thread, or the response that says why there is none.
async fn ask(queue: &ControlQueue, request: ControlRequest) -> Result<Value, Box<Response>> {
    let failed = |message: &str| {
        let text = format!("503 Service Unavailable: {message}\n");
        Box::new(Response::text(StatusCode::SERVICE_UNAVAILABLE, text))
    };
    match queue.send(request).await {
        Some(ControlResponse::Done(answer)) => Ok(answer),
        Some(ControlResponse::Failed { message, .. }) => Err(failed(&message)),
        None => Err(failed("the server is stopping")),
    }
}

/// A response that nobody may store.
fn fresh(media_type: &'static str, text: String) -> Response {
    Response::new(StatusCode::OK)
        .with_header(&header::CONTENT_TYPE, &HeaderValue::from_static(media_type))
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        )
        .with_body(text)
}

impl Service for Pages {
    fn call(&self, request: Request) -> ResponseFuture {
        self.respond(&request)
    }
}

impl ServiceFactory for Pages {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(self.clone())
    }
}
