//! Responses, and questions to the control thread.

use apus_control::{ControlQueue, ControlRequest, ControlResponse};
use apus_http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// The answer of the control thread, or the response that says why there is none. `by` is who asks.
pub(crate) async fn ask(
    queue: &ControlQueue,
    request: ControlRequest,
    by: String,
) -> Result<Value, Box<Response>> {
    match queue.send(request, by).await {
        Some(ControlResponse::Done(answer)) => Ok(answer),
        Some(ControlResponse::Failed { message, details }) => {
            // Somebody else was faster.
            let status = if details.get("conflict").is_some() {
                StatusCode::CONFLICT
            } else {
                StatusCode::UNPROCESSABLE_ENTITY
            };
            let mut problem = problem_value(status, &message);
            if let (Some(fields), false) = (problem.as_object_mut(), details.is_null()) {
                fields.insert("details".to_owned(), details);
            }
            Err(Box::new(problem_response(status, &problem)))
        }
        None => Err(Box::new(problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server is stopping",
        ))),
    }
}

/// A response that nobody may store.
pub(crate) fn fresh(media_type: &'static str, text: String) -> Response {
    with_body(StatusCode::OK, media_type, text)
}

/// JSON that nobody may store.
pub(crate) fn json_response(value: &Value) -> Response {
    fresh("application/json", value.to_string())
}

/// What is wrong with a request (RFC 9457).
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response {
    problem_response(status, &problem_value(status, detail))
}

fn problem_value(status: StatusCode, detail: &str) -> Value {
    json!({
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    })
}

fn problem_response(status: StatusCode, problem: &Value) -> Response {
    with_body(status, "application/problem+json", problem.to_string())
}

fn with_body(status: StatusCode, media_type: &'static str, text: String) -> Response {
    Response::new(status)
        .with_header(&header::CONTENT_TYPE, &HeaderValue::from_static(media_type))
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        )
        .with_body(text)
}
