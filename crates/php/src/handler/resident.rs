//! One request and its answer by way of a worker that has the application in memory.

use std::time::Instant;

use crate::plan::Mode;
use crate::wire::Message;
use crate::{Failure, Pool, WorkerRequest};
use apus_http::{Body, BodyError, HeaderValue, Request, Response, Source, StatusCode, header};

use super::socket;
use apus_proxy::log_rate::LogRate;

/// The workers of an application.
pub(super) struct Resident {
    pool: Pool,
    rate: LogRate,
    /// The program that the application is, by its path below the root; `None`: all programs are.
    script: Option<Box<[u8]>>,
}

impl Resident {
    /// With workers that answer for this program, or that include whatever program a request means.
    pub(super) fn new(pool: Pool, front_controller: Option<&str>) -> Self {
        let script = match pool.plan().mode {
            Mode::Classic => None,
            Mode::Worker | Mode::Native => front_controller.map(|path| path.as_bytes().into()),
        };
        Self {
            pool,
            rate: LogRate::default(),
            script,
        }
    }

    /// Whether a worker answers a request for this program.
    pub(super) fn answers(&self, script: &[u8], request: &Request) -> bool {
        let is_upload = || {
            let kind = request.headers().get("content-type").unwrap_or_default();
            kind.get(..MULTIPART.len())
                .is_some_and(|kind| kind.eq_ignore_ascii_case(MULTIPART))
        };
        match &self.script {
            Some(own) => **own == *script,
            // Programs may ask PHP whether a file was uploaded, which here only FastCGI makes it know.
            None => !is_upload() || self.pool.takes_uploads(),
        }
    }

    /// The answer of a worker to a message with the variables of the request.
    ///
    /// # Errors
    /// None gave one: the answer of our own.
    pub(super) async fn answer(
        &self,
        request: &Request,
        message: Message,
        body: Body,
    ) -> Result<Response, Response> {
        let asked_at = Instant::now();
        if let Some(upgrade) = socket::upgrade(request, &self.pool) {
            return socket::open(&self.pool, upgrade, message.into_event())
                .await
                .map_err(|failure| self.refuse(request, &failure));
        }
        let asked = WorkerRequest {
            message,
            method: request.method().clone(),
            id: request.id(),
            body,
        };
        let answer = match self.pool.send(asked).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.refuse(request, &failure)),
        };
        let source = Source {
            address: self.pool.plan().name.clone(),
            status: answer.status,
            duration: asked_at.elapsed(),
        };
        let mut response = Response::with_shared_headers(
            answer.status,
            std::rc::Rc::new(answer.headers),
            answer.body,
        );
        response.set_source(source);
        Ok(response)
    }

    fn refuse(&self, request: &Request, failure: &Failure) -> Response {
        let status = status(failure);
        if let Failure::Content(error) = failure {
            tracing::debug!(%error, "a client did not send its request whole");
        } else if let Some(withheld) = self.rate.allows(Instant::now()) {
            tracing::error!(
                pool = &*self.pool.plan().name,
                method = request.method().as_str(),
                path = request.path(),
                request_id = format_args!("{:016x}", request.id()),
                status = status.as_u16(),
                cause = %cause(failure),
                withheld,
                "no answer from a worker"
            );
        }
        let mut response = match failure {
            // Who works on the application sees what is wrong with it.
            Failure::Boot { message, .. } if self.pool.plan().development => {
                Response::text(status, message.to_string())
            }
            _ => Response::new(status),
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = match failure {
                Failure::Boot { retry_after, .. } => retry_after.as_secs().saturating_add(1),
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

fn status(failure: &Failure) -> StatusCode {
    match failure {
        Failure::QueueFull | Failure::QueueTimedOut | Failure::Boot { .. } | Failure::Stopping => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Failure::Refused(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Failure::Oversized => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Failure::Content(BodyError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        Failure::Content(BodyError::TimedOut) => StatusCode::REQUEST_TIMEOUT,
        Failure::Content(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// What PHP said was logged when it did.
fn cause(failure: &Failure) -> String {
    match failure {
        Failure::Boot { .. } => "the application does not boot".to_owned(),
        failure => failure.to_string(),
    }
}
