//! The API: who may do what, over HTTP with JSON.

use apus_control::{ControlQueue, ServerHistory};
use apus_handler::extract::{form_values, json_body};
use apus_http::{
    HeaderValue, Method, Request, RequestRecords, Response, ResponseFuture, StatusCode, header,
};
use serde_json::{Map, Value, json};

use crate::authentication::{Authentication, Caller};
use crate::history::HistoryReader;
use crate::operations::{AdminOperation, MAX_BODY, OPERATIONS, OperationKind, Sent, description};
use crate::reply::{ask, json_response, problem};
use crate::request_tail::{self, RequestTail};

/// How all paths begin, with the version of the API.
pub(crate) const API_PREFIX: &str = "/api/v1/";

/// Responds to requests whose paths begin with [`API_PREFIX`].
#[derive(Clone, Debug)]
pub(crate) struct Api {
    queue: ControlQueue,
    authentication: Authentication,
    history: HistoryReader,
    tail: RequestTail,
}

impl Api {
    pub(crate) fn new(
        queue: ControlQueue,
        authentication: Authentication,
        (history, records): (ServerHistory, RequestRecords),
    ) -> Self {
        Self {
            queue,
            authentication,
            history: HistoryReader::new(history),
            tail: RequestTail::new(records),
        }
    }

    pub(crate) fn respond(&self, request: Request) -> ResponseFuture {
        let api = self.clone();
        ResponseFuture::later(async move {
            match api.answer(request).await {
                Ok(response) => response,
                Err(problem) => *problem,
            }
        })
    }

    async fn answer(&self, request: Request) -> Result<Response, Box<Response>> {
        let path = request.path().strip_prefix(API_PREFIX).unwrap_or_default();
        let path = format!("/{path}");
        let method = match request.method() {
            &Method::HEAD => "GET".to_owned(),
            method => method.to_string(),
        };
        match (method.as_str(), path.as_str()) {
            ("GET", "/openapi.json") => return Ok(json_response(&description())),
            ("POST", "/session") => {
                let head = request.without_body();
                let body = body(request, MAX_BODY).await?;
                return Ok(self.authentication.log_in(&head, &body).await);
            }
            _ => {}
        }
        // Who has no account does not learn which paths there are.
        let Some(caller) = self.authentication.caller(&request) else {
            return Err(unauthorized());
        };
        if path == "/session" {
            return match method.as_str() {
                "GET" => Ok(json_response(&caller.description())),
                "DELETE" => {
                    self.authentication.log_out(&request);
                    Ok(json_response(&json!({})))
                }
                _ => Err(wrong_method(request.method(), "GET, HEAD, POST, DELETE")),
            };
        }
        let at_path = OPERATIONS.iter().filter(|operation| operation.path == path);
        let at_path: Vec<_> = at_path.collect();
        if at_path.is_empty() {
            let detail =
                "there is nothing at this path; /api/v1/openapi.json describes what there is";
            return Err(Box::new(problem(StatusCode::NOT_FOUND, detail)));
        }
        let Some(operation) = at_path.iter().find(|operation| operation.method == method) else {
            let methods: Vec<_> = at_path.iter().map(|operation| operation.method).collect();
            return Err(wrong_method(request.method(), &methods.join(", ")));
        };
        self.perform(operation, &caller, request).await
    }

    async fn perform(
        &self,
        operation: &AdminOperation,
        caller: &Caller,
        request: Request,
    ) -> Result<Response, Box<Response>> {
        let forbidden = |detail: &str| Err(Box::new(problem(StatusCode::FORBIDDEN, detail)));
        if caller.role < operation.role {
            let (own, needed) = (caller.role.name(), operation.role.name());
            return forbidden(&format!(
                "this needs the role `{needed}`, and the account has `{own}`"
            ));
        }
        let unprocessable =
            |detail: String| Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, &detail));
        let from = request.client().ip.map(|ip| format!(" from {ip}"));
        let by = format!("{}{}", caller.name, from.unwrap_or_default());
        if matches!(operation.kind, OperationKind::Live) {
            operation
                .arguments(query(&request))
                .map_err(unprocessable)?;
            let access = self.authentication.stream_access(&request, caller);
            return self.history.live(caller, access);
        }
        if matches!(operation.kind, OperationKind::Tail) {
            let arguments = operation.arguments(query(&request));
            let filter = arguments.and_then(|arguments| request_tail::filter(&arguments));
            let filter = filter.map_err(unprocessable)?;
            let access = self.authentication.stream_access(&request, caller);
            return self.tail.follow(filter, caller, access);
        }
        let sent = if matches!(operation.method, "GET" | "DELETE") {
            query(&request)
        } else {
            Sent::Body(body(request, operation.max_body()).await?)
        };
        let mut arguments = operation.arguments(sent).map_err(unprocessable)?;
        if matches!(operation.kind, OperationKind::History) {
            return self.history.columns(&arguments, caller).await;
        }
        let is_of_sites = matches!(operation.kind, OperationKind::OfSites(_));
        let shows_sites = is_of_sites || operation.path == "/sites";
        if is_of_sites {
            arguments.insert("sites".to_owned(), json!(caller.sites));
        }
        if caller.sites.is_some() && !shows_sites {
            match operation.site(&arguments) {
                Some(site) if caller.is_for(site) => {}
                Some(_) => return forbidden("the account is not for this site"),
                None => return forbidden("the account is for some sites, and this is for all"),
            }
        }
        let control_request = operation.request(arguments).map_err(unprocessable)?;
        let mut answer = ask(&self.queue, control_request, by).await?;
        if is_of_sites && answer.is_null() {
            let detail = "there is nothing of this kind, or not any more";
            return Err(Box::new(problem(StatusCode::NOT_FOUND, detail)));
        }
        if let OperationKind::Parts(parts) = operation.kind {
            let mut take = |part: &str| answer.get_mut(part).map(Value::take).unwrap_or_default();
            let parts = parts.iter().map(|part| ((*part).to_owned(), take(part)));
            answer = Value::Object(Map::from_iter(parts));
        }
        keep_sites(&mut answer, caller);
        Ok(json_response(&answer))
    }
}

/// Removes the sites that an account is not for from a list of sites.
fn keep_sites(answer: &mut Value, caller: &Caller) {
    let Some(Value::Array(sites)) = answer.get_mut("sites") else {
        return;
    };
    sites.retain(|site| {
        let name = site.get("name").and_then(Value::as_str);
        caller.is_for(name.unwrap_or_default())
    });
}

fn query(request: &Request) -> Sent {
    let values = form_values(request.query().unwrap_or_default().as_bytes());
    let pairs = values
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
    Sent::Query(pairs.collect())
}

/// The JSON of a body; null if there is none.
async fn body(request: Request, max_bytes: u64) -> Result<Value, Box<Response>> {
    if !request.has_body() {
        return Ok(Value::Null);
    }
    let bytes = match json_body(request, max_bytes).await {
        Ok(bytes) => bytes,
        Err(rejection) => {
            let status = apus_handler::Error::from(rejection).status_code();
            let detail = match status {
                StatusCode::UNSUPPORTED_MEDIA_TYPE => "the content type must be application/json",
                StatusCode::PAYLOAD_TOO_LARGE => {
                    &format!("the body is longer than {} KB", max_bytes / 1024)
                }
                _ => "the body was not received whole",
            };
            return Err(Box::new(problem(status, detail)));
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        let detail = format!("the body is not JSON: {error}");
        Box::new(problem(StatusCode::BAD_REQUEST, &detail))
    })
}

fn unauthorized() -> Box<Response> {
    let detail = "expected `Authorization: Bearer` with the token of an account or of a session; `apus admin login` lets the user of the server log in";
    let response = problem(StatusCode::UNAUTHORIZED, detail);
    let scheme = HeaderValue::from_static("Bearer");
    Box::new(response.with_header(&header::WWW_AUTHENTICATE, &scheme))
}

fn wrong_method(method: &Method, allowed: &str) -> Box<Response> {
    let response = problem(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("the methods here are {allowed}, and not {method}"),
    );
    Box::new(match HeaderValue::from_bytes(allowed.as_bytes()) {
        Ok(allowed) => response.with_header(&header::ALLOW, &allowed),
        Err(_) => response,
    })
}
