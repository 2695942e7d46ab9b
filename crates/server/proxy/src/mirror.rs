//! Copies of requests for another group of origins, whose responses are discarded.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::{ClientRequest, ClientRequestHead, FailureCause, RequestTemplate};
use apus_codec::proxy_protocol::ProxyHeader;
use apus_http::{Body, Method, Request};
use apus_upstream::{RequestContext, UpstreamErrorKind, Upstreams, WorkerGroup, is_idempotent};

use super::client::hash_key_of;
use super::error_response::{self, GroupLog, LoggedAttempts};
use super::request_label::RequestLabel;
use super::tee::{self, CopyStatus};

/// Which requests another group gets copies of, and the limits of the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSettings {
    /// The name of the group.
    pub group: Box<str>,
    /// The scheme of the copies: `http` or `https`.
    pub scheme: &'static str,
    /// The percentage of requests that are copied.
    pub percent: u32,
    /// Whether requests with unsafe methods are copied, too (RFC 9110 section 9.2.1). Their effect then takes
    /// place twice.
    pub unsafe_methods: bool,
    /// The most copies in flight, for each worker. Further requests are not copied.
    pub max_requests: usize,
    /// The most bytes of a streamed body that a copy may be behind the request itself. If it is more, the copy
    /// is aborted.
    pub memory: usize,
    /// The longest time of a copy, with its response.
    pub timeout: Duration,
}

/// The mirror of one proxy on one worker.
pub(super) struct RequestMirror {
    settings: MirrorSettings,
    group: Rc<WorkerGroup>,
    log: GroupLog,
    /// Hundredths of the next copy.
    due: Cell<u32>,
    in_flight: Cell<usize>,
}

/// A copy of a request.
struct MirroredRequest {
    request: ClientRequest,
    key: Option<u64>,
    client: ProxyHeader,
    label: RequestLabel,
    /// The status of the copy of the body, if the body is streamed.
    body_status: Option<CopyStatus>,
    _slot: MirrorSlot,
}

/// One of the copies that may be in flight.
struct MirrorSlot(Rc<RequestMirror>);

impl RequestMirror {
    /// Creates a mirror of the requests of a site; `None` if there is no such group.
    pub(super) fn new(
        upstreams: &Upstreams,
        settings: &MirrorSettings,
        site: &str,
    ) -> Option<Rc<Self>> {
        let Some(group) = upstreams.group(&settings.group) else {
            tracing::error!(
                group = &*settings.group,
                "there is no such group of origins"
            );
            return None;
        };
        Some(Rc::new(Self {
            log: GroupLog::new((&*settings.group).into()).of_site(site),
            settings: settings.clone(),
            group,
            due: Cell::default(),
            in_flight: Cell::default(),
        }))
    }

    /// Sends a copy of a request, if one is due. Returns the body of the request itself, which never waits for
    /// the copy.
    pub(super) fn copy(
        self: &Rc<Self>,
        request: &Request,
        head: &Rc<ClientRequestHead>,
        body: Body,
    ) -> Body {
        if !self.is_due(head) {
            return body;
        }
        let Some(slot) = MirrorSlot::take(self) else {
            self.count_dropped("too many copies of requests are under way");
            return body;
        };
        let (body, copied_body, body_status) = tee::split(body, self.settings.memory);
        let copy = MirroredRequest {
            request: ClientRequest {
                template: RequestTemplate {
                    head: self.head(head),
                    interim: None,
                    timeouts: self.group.timeouts(),
                    stderr: None,
                },
                body: copied_body,
            },
            key: self
                .group
                .plan(|plan| hash_key_of(plan, request, &head.headers, head)),
            client: ProxyHeader::of(request),
            label: RequestLabel::of(request),
            body_status,
            _slot: slot,
        };
        let mirror = Rc::clone(self);
        // The task starts after this one has sent the request itself.
        tokio::task::spawn_local(async move { mirror.send(copy).await });
        body
    }

    fn is_due(&self, head: &ClientRequestHead) -> bool {
        let method = &head.method;
        if head.upgrade.is_some()
            || *method == Method::CONNECT
            || !(method.is_safe() || self.settings.unsafe_methods)
        {
            return false;
        }
        let due = self.due.get().saturating_add(self.settings.percent);
        self.due.set(due % 100);
        due >= 100
    }

    /// Returns the head of a copy.
    fn head(&self, head: &Rc<ClientRequestHead>) -> Rc<ClientRequestHead> {
        if head.scheme == self.settings.scheme && !head.expects_continue {
            return Rc::clone(head);
        }
        Rc::new(ClientRequestHead {
            scheme: self.settings.scheme,
            // Only the request itself waits for 100 (Continue).
            expects_continue: false,
            params: None,
            ..ClientRequestHead::clone(head)
        })
    }

    async fn send(&self, copy: MirroredRequest) {
        let context = RequestContext {
            key: copy.key,
            client: Some(copy.client),
            idempotent: is_idempotent(&copy.request.template.head.method),
            deadline: Instant::now().checked_add(self.settings.timeout),
            ..RequestContext::default()
        };
        match self.group.send(copy.request, context).await {
            Ok(mut upstream) => {
                let attempts = LoggedAttempts {
                    failed: &upstream.attempts,
                    last: Some(&upstream.node),
                };
                error_response::log_attempts(&self.log, &attempts, &|| copy.label.clone());
                // Reads the whole body, so that the connection can be used again.
                while let Some(frame) = upstream.response.body.frame().await {
                    if let Err(error) = frame {
                        tracing::debug!(
                            group = self.group.name(), %error,
                            "the response to a copy of a request broke off"
                        );
                        break;
                    }
                }
            }
            Err(error) => {
                let is_body_failure = matches!(
                    &error.kind,
                    UpstreamErrorKind::Node { failure, .. }
                        if matches!(failure.cause, FailureCause::Source(_))
                );
                let is_behind = copy.body_status.is_some_and(|status| status.is_cut_off());
                if is_body_failure && is_behind {
                    self.count_dropped("a copy of a request was too far behind")
                } else {
                    // Its client gets the response to the request itself.
                    let label = || copy.label.clone();
                    let _ = error_response::log_error(&self.log, &error, &label);
                }
            }
        }
    }

    fn count_dropped(&self, reason: &'static str) {
        self.group.count_dropped_copy();
        if let Some(withheld) = self.log.line() {
            tracing::warn!(group = self.group.name(), withheld, "{reason}");
        }
    }
}

impl MirrorSlot {
    fn take(mirror: &Rc<RequestMirror>) -> Option<Self> {
        let in_flight = mirror.in_flight.get();
        (in_flight < mirror.settings.max_requests).then(|| {
            mirror.in_flight.set(in_flight.saturating_add(1));
            Self(Rc::clone(mirror))
        })
    }
}

impl Drop for MirrorSlot {
    fn drop(&mut self) {
        let in_flight = &self.0.in_flight;
        in_flight.set(in_flight.get().saturating_sub(1));
    }
}
