//! One request to a group of origins, and the error response if no node responded.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use apus_codec::proxy_protocol::Header;
use apus_http::fields::cookie_value;
use apus_http::{Body, Request, Response, Source, StatusCode};
use apus_net::client::{ClientRequest, ClientRequestHead, Stderr};
use apus_upstream::plan::{GroupPlan, HashKey, Strategy};
use apus_upstream::{Context, Delivered, Upstreams, WorkerGroup, hash_key, is_idempotent};

use super::hold::Hold;
use super::refusal::{self, Log};

/// A group of origins, to one worker.
pub struct Exchange {
    pub(super) log: Log,
    group: Option<Rc<WorkerGroup>>,
    stderr: Option<Stderr>,
}

impl Exchange {
    /// The group of this name. Without it every answer is a 503.
    pub fn new(upstreams: &Upstreams, name: &Arc<str>) -> Self {
        Self {
            log: Log::new(Arc::clone(name)),
            group: upstreams.group(name),
            stderr: None,
        }
    }

    /// Has somebody told what FastCGI applications write to their standard error.
    pub fn with_stderr(self, stderr: Stderr) -> Self {
        Self {
            stderr: Some(stderr),
            ..self
        }
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.log.group
    }

    /// The content of a request, taken in if `hold` says so.
    ///
    /// # Errors
    /// It broke off: the answer to that.
    pub async fn content(
        &self,
        request: &mut Request,
        hold: Option<&Hold>,
    ) -> Result<Body, Response> {
        let body = request.take_body();
        match hold {
            None => Ok(body),
            Some(hold) => hold
                .take_in(body)
                .await
                .map_err(|error| refusal::content(&error)),
        }
    }

    /// What a node of the group answers, and which it was.
    ///
    /// # Errors
    /// None did: the answer of our own.
    pub async fn ask(
        &self,
        request: &Request,
        head: &Rc<ClientRequestHead>,
        body: Body,
    ) -> Result<(Delivered, Source), Response> {
        let Some(group) = &self.group else {
            tracing::error!(group = self.name(), "there is no such group of origins");
            return Err(Response::new(StatusCode::SERVICE_UNAVAILABLE));
        };
        let outgoing = ClientRequest {
            head: Rc::clone(head),
            body,
            interim: Some(request.interim().clone()),
            timeouts: group.timeouts(),
            stderr: self.stderr.clone(),
        };
        let context = group.plan(|plan| Context {
            key: hash_key_of(plan, request, head),
            sticky: plan
                .sticky
                .as_ref()
                .and_then(|sticky| cookie_value(request.headers(), &sticky.name))
                .and_then(|value| std::str::from_utf8(value).ok()),
            client: Some(Header::of(request)),
            idempotent: is_idempotent(&head.method),
            deadline: None,
        });
        let asked_at = Instant::now();
        let delivered = group
            .send(outgoing, context)
            .await
            .map_err(|failed| refusal::failed(&self.log, &failed))?;
        let source = Source {
            address: Arc::clone(&delivered.node.address),
            status: delivered.response.status,
            duration: asked_at.elapsed(),
        };
        refusal::note(&self.log, &delivered.attempts, Some(&delivered.node));
        Ok((delivered, source))
    }
}

/// What consistent hashing goes by; `None` where the group has none, or the request no such thing.
pub(super) fn hash_key_of(
    plan: &GroupPlan,
    request: &Request,
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
        HashKey::Header(name) => request.headers().get(name).map(hash_key),
        HashKey::Cookie(name) => cookie_value(request.headers(), name).map(hash_key),
    }
}
