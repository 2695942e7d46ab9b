//! Requests to a group of origins, and the error response if no node responds.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use apus_client::{ClientRequest, ClientRequestHead, ProxyHead, RequestTemplate, Stderr};
use apus_codec::proxy_protocol::ProxyHeader;
use apus_http::fields::cookie_value;
use apus_http::{Body, Headers, Request, Response, ResponseOrigin, StatusCode};
use apus_upstream::plan::{GroupPlan, HashKey, Strategy};
use apus_upstream::{
    RequestContext, UpstreamError, UpstreamExchange, UpstreamResponse, Upstreams, WorkerGroup,
    hash_key, is_idempotent,
};

use super::error_response::{self, GroupLog, LoggedAttempts};
use super::hold::HoldSettings;
use super::recorded_attempts;
use super::request_label::{self, RequestLabel};

/// The client of a group of origins on one worker.
pub struct UpstreamClient {
    pub(super) log: Rc<GroupLog>,
    group: Option<Rc<WorkerGroup>>,
    stderr: Option<Stderr>,
}

impl UpstreamClient {
    /// Creates a client of the group of this name. Without such a group every response is a 503.
    pub fn new(upstreams: &Upstreams, name: &Arc<str>) -> Self {
        Self {
            log: Rc::new(GroupLog::new(Arc::clone(name))),
            group: upstreams.group(name),
            stderr: None,
        }
    }

    /// Sets the name of the site for log lines.
    pub fn of_site(self, site: &str) -> Self {
        let log = GroupLog::new(Arc::clone(&self.log.group)).of_site(site);
        Self {
            log: Rc::new(log),
            ..self
        }
    }

    /// Passes what FastCGI applications write to their standard error to `stderr`.
    pub fn with_stderr(self, stderr: Stderr) -> Self {
        Self {
            stderr: Some(stderr),
            ..self
        }
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.log.group
    }

    /// Takes the body of a request, and buffers it if there are settings for that.
    ///
    /// # Errors
    /// The body broke off: the error response.
    pub async fn request_body(
        &self,
        request: &mut Request,
        hold: Option<&HoldSettings>,
    ) -> Result<Body, Response> {
        let body = request.take_body();
        match hold {
            None => Ok(body),
            Some(hold) => Self::hold_body(body, hold).await,
        }
    }

    /// Buffers the body of a request.
    ///
    /// # Errors
    /// The body broke off: the error response.
    pub(super) async fn hold_body(body: Body, hold: &HoldSettings) -> Result<Body, Response> {
        let buffered = hold.buffer(body).await;
        buffered.map_err(|error| error_response::incomplete_body(&error))
    }

    /// Sends a request to the group. Returns the response, and its source for the access log.
    ///
    /// # Errors
    /// No node responded: the error response.
    pub async fn send(
        &self,
        request: &Request,
        head: &Rc<ClientRequestHead>,
        body: Body,
    ) -> Result<(UpstreamResponse, ResponseOrigin), Response> {
        let exchange = self.begin(request, request.headers(), head, body)?;
        self.finish(request, exchange.await)
    }

    /// Sends a request to the group, whose response is for [`Self::finish`]. `headers` come from the client.
    ///
    /// # Errors
    /// There is no such group: the error response.
    pub(super) fn begin(
        &self,
        request: &Request,
        headers: &Headers,
        head: &Rc<ClientRequestHead>,
        body: Body,
    ) -> Result<UpstreamExchange, Response> {
        let Some(group) = &self.group else {
            tracing::error!(group = self.name(), "there is no such group of origins");
            return Err(Response::new(StatusCode::SERVICE_UNAVAILABLE));
        };
        let outgoing = ClientRequest {
            template: RequestTemplate {
                head: Rc::clone(head),
                interim: Some(request.interim().clone()),
                timeouts: group.timeouts(),
                stderr: self.stderr.clone(),
            },
            body,
        };
        let context = group.plan(|plan| RequestContext {
            key: hash_key_of(plan, request, headers, head),
            sticky: plan
                .sticky
                .as_ref()
                .and_then(|sticky| cookie_value(headers, &sticky.name))
                .and_then(|value| std::str::from_utf8(value).ok()),
            client: (plan.proxy_head != ProxyHead::None).then(|| ProxyHeader::of(request)),
            idempotent: is_idempotent(&head.method),
            deadline: None,
        });
        Ok(group.send(outgoing, context))
    }

    /// Logs the attempts of a request. Returns the response, and its source for the access log.
    ///
    /// # Errors
    /// No node responded: the error response.
    pub(super) fn finish(
        &self,
        request: &Request,
        result: Result<UpstreamResponse, UpstreamError>,
    ) -> Result<(UpstreamResponse, ResponseOrigin), Response> {
        if let Some(record) = request.record() {
            recorded_attempts::note(record, &result);
        }
        let no_response =
            |error: UpstreamError| error_response::no_response(&self.log, request, &error);
        let mut upstream = result.map_err(no_response)?;
        let source = ResponseOrigin {
            address: Arc::clone(&upstream.node.address),
            status: upstream.response.status,
            duration: upstream.took,
        };
        let attempts = LoggedAttempts {
            failed: &upstream.attempts,
            last: Some(&upstream.node),
        };
        error_response::log_attempts(&self.log, &attempts, &|| RequestLabel::of(request));
        if matches!(upstream.response.body, Body::Stream(_)) {
            let body = std::mem::take(&mut upstream.response.body);
            let (log, node) = (Rc::clone(&self.log), Rc::clone(&upstream.node));
            let label = RequestLabel::of(request);
            let record = request.record().cloned();
            upstream.response.body = request_label::reported(body, record, move |error| {
                error_response::log_broken_body(&log, &node, &label, error);
            });
        }
        Ok((upstream, source))
    }
}

/// Returns the key of consistent hashing; `None` if the group has another strategy, or the request has no such
/// key.
pub(super) fn hash_key_of(
    plan: &GroupPlan,
    request: &Request,
    headers: &Headers,
    head: &ClientRequestHead,
) -> Option<u64> {
    let Strategy::ConsistentHash(key) = &plan.strategy else {
        return None;
    };
    match key {
        HashKey::Address => {
            let address = request.client().ip?.to_canonical();
            Some(match address {
                IpAddr::V4(address) => hash_key(&address.octets()),
                IpAddr::V6(address) => hash_key(&address.octets()),
            })
        }
        HashKey::Uri => Some(hash_key(head.target.as_bytes())),
        HashKey::Header(name) => headers.get(name).map(hash_key),
        HashKey::Cookie(name) => cookie_value(headers, name).map(hash_key),
    }
}
