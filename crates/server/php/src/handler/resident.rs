//! Requests that resident workers handle.

use std::sync::Arc;
use std::time::Instant;

use crate::plan::ApplicationMode;
use crate::wire::RequestFrame;
use crate::{WorkerError, WorkerPool, WorkerRequest};
use apus_http::{
    Body, BodyError, HeaderValue, OriginAttempt, OriginResult, Request, RequestEvent, Response,
    StatusCode, header,
};

use super::socket;
use apus_proxy::log_rate_limiter::LogRateLimiter;

/// The workers of an application.
pub(super) struct ResidentWorkers {
    pool: WorkerPool,
    rate: LogRateLimiter,
    /// The path of the application's script below the root; `None` if workers run all scripts.
    script: Option<Box<[u8]>>,
}

impl ResidentWorkers {
    /// The workers of a pool, which run the front controller, or in classic mode any script.
    pub(super) fn new(pool: WorkerPool, front_controller: Option<&str>) -> Self {
        let script = match pool.plan().mode {
            ApplicationMode::Classic => None,
            ApplicationMode::Worker | ApplicationMode::Native => {
                front_controller.map(|path| path.as_bytes().into())
            }
        };
        Self {
            pool,
            rate: LogRateLimiter::default(),
            script,
        }
    }

    /// Whether workers handle a request for this script.
    pub(super) fn handles(&self, script: &[u8], request: &Request) -> bool {
        let is_upload = || {
            let kind = request.headers().get("content-type").unwrap_or_default();
            kind.get(..MULTIPART.len())
                .is_some_and(|kind| kind.eq_ignore_ascii_case(MULTIPART))
        };
        match &self.script {
            Some(application) => **application == *script,
            // A script may call `is_uploaded_file()`, which some builds of PHP support only over FastCGI.
            None => !is_upload() || self.pool.takes_uploads(),
        }
    }

    /// The response of a worker to a frame with the variables of the request.
    ///
    /// # Errors
    /// No worker responded; the error is our own response.
    pub(super) async fn respond(
        &self,
        request: &Request,
        message: RequestFrame,
        body: Body,
    ) -> Result<Response, Response> {
        let sent_at = Instant::now();
        if let Some(upgrade) = socket::upgrade(request, &self.pool) {
            return socket::open(&self.pool, upgrade, message.into_event())
                .await
                .map_err(|error| self.error_response(request, &error));
        }
        let worker_request = WorkerRequest {
            message,
            method: request.method().clone(),
            id: request.id(),
            interim: request.interim().clone(),
            body,
        };
        let sent = self.pool.send(worker_request).await;
        request.note(|| {
            let result = match &sent {
                Ok(response) => OriginResult::Status(response.status),
                Err(error) => OriginResult::failed("worker", cause(error)),
            };
            RequestEvent::Attempt(Box::new(OriginAttempt {
                node: Arc::clone(&self.pool.plan().name),
                address: "".into(),
                began: sent_at,
                connect: None,
                took: sent_at.elapsed(),
                result,
            }))
        });
        let worker_response = match sent {
            Ok(response) => response,
            Err(error) => return Err(self.error_response(request, &error)),
        };
        Ok(self.pool.response_of(worker_response, sent_at))
    }

    fn error_response(&self, request: &Request, error: &WorkerError) -> Response {
        let status = status(error);
        if let WorkerError::RequestBody(error) = error {
            tracing::debug!(%error, "a client did not send the whole body");
        } else if let Some(withheld) = self.rate.allow(Instant::now()) {
            tracing::error!(
                pool = &*self.pool.plan().name,
                method = request.method().as_str(),
                path = request.path(),
                request_id = %request.id(),
                status = status.as_u16(),
                cause = %cause(error),
                withheld,
                "no response from a worker"
            );
        }
        let mut response = match error {
            // In development the client gets the error of the application.
            WorkerError::Boot { message, .. } if self.pool.plan().development => {
                Response::text(status, message.to_string())
            }
            _ => Response::new(status),
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = match error {
                WorkerError::Boot { retry_after, .. } => retry_after.as_secs().saturating_add(1),
                _ => 1,
            };
            response
                .headers_mut()
                .insert(&header::RETRY_AFTER, &HeaderValue::from(seconds));
        }
        response
    }
}

const MULTIPART: &[u8] = b"multipart/form-data";

fn status(error: &WorkerError) -> StatusCode {
    match error {
        WorkerError::QueueFull
        | WorkerError::QueueTimedOut
        | WorkerError::Boot { .. }
        | WorkerError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        WorkerError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        WorkerError::Refused(_) => StatusCode::INTERNAL_SERVER_ERROR,
        WorkerError::Oversized => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        WorkerError::RequestBody(BodyError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        WorkerError::RequestBody(BodyError::TimedOut) => StatusCode::REQUEST_TIMEOUT,
        WorkerError::RequestBody(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// The cause for the log, without the output of PHP, which was logged before.
fn cause(error: &WorkerError) -> String {
    match error {
        WorkerError::Boot { .. } => "the application does not boot".to_owned(),
        error => error.to_string(),
    }
}
