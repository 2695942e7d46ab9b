//! Copies of requests for another group of origins, whose responses are discarded.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_codec::proxy_protocol::Header;
use apus_http::{Body, Method, Request};
use apus_net::client::{ClientRequest, ClientRequestHead, FailureCause};
use apus_upstream::{Context, FailedKind, Upstreams, WorkerGroup};

use super::exchange::hash_key_of;
use super::refusal::{self, Log};
use super::tee::{self, Watch};

/// Which requests another group gets copies of, and how much that may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The name of the group.
    pub group: Box<str>,
    /// `http` or `https`: the scheme that its origins are asked with.
    pub scheme: &'static str,
    /// Of how many in a hundred requests.
    pub percent: u32,
    /// Whether also of requests whose methods are not safe (RFC 9110 section 9.2.1): what they do is
    /// done once more then.
    pub unsafe_methods: bool,
    /// Copies that one worker has under way at once. Others are left out.
    pub max_requests: usize,
    /// Bytes of streamed content that a copy may be behind the request itself. One that falls farther
    /// behind is broken off.
    pub memory: usize,
    /// How long a copy may take, its answer included.
    pub timeout: Duration,
}

/// The copies of one proxy on one worker.
pub(super) struct Copies {
    settings: Mirror,
    group: Rc<WorkerGroup>,
    log: Log,
    /// Hundredths of a copy that are due.
    due: Cell<u32>,
    open: Cell<usize>,
}

/// A copy on its way.
struct Copy {
    request: ClientRequest,
    key: Option<u64>,
    client: Header,
    /// What the reader of the request's own content sees of it, if that is streamed.
    watch: Option<Watch>,
    _place: Place,
}

/// One of the copies that may be under way.
struct Place(Rc<Copies>);

impl Copies {
    /// `None` if there is no such group.
    pub(super) fn open(upstreams: &Upstreams, settings: &Mirror) -> Option<Rc<Self>> {
        let Some(group) = upstreams.group(&settings.group) else {
            tracing::error!(
                group = &*settings.group,
                "there is no such group of origins"
            );
            return None;
        };
        Some(Rc::new(Self {
            log: Log::new((&*settings.group).into()),
            settings: settings.clone(),
            group,
            due: Cell::default(),
            open: Cell::default(),
        }))
    }

    /// Sends a copy of a request, if one is due. Gives the content for the request itself, which waits
    /// for nothing.
    pub(super) fn of(
        self: &Rc<Self>,
        request: &Request,
        head: &Rc<ClientRequestHead>,
        body: Body,
    ) -> Body {
        if !self.is_due(head) {
            return body;
        }
        let Some(place) = Place::take(self) else {
            self.left_out("too many copies of requests are under way");
            return body;
        };
        let (body, content, watch) = tee::split(body, self.settings.memory);
        let copy = Copy {
            request: ClientRequest {
                head: self.head(head),
                body: content,
                interim: None,
                timeouts: self.group.timeouts(),
                stderr: None,
            },
            key: self.group.plan(|plan| hash_key_of(plan, request, head)),
            client: Header::of(request),
            watch,
            _place: place,
        };
        let copies = Rc::clone(self);
        // It begins when this request has gone.
        tokio::task::spawn_local(async move { copies.send(copy).await });
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

    /// The head of a copy.
    fn head(&self, head: &Rc<ClientRequestHead>) -> Rc<ClientRequestHead> {
        if head.scheme == self.settings.scheme && !head.expects_continue {
            return Rc::clone(head);
        }
        Rc::new(ClientRequestHead {
            scheme: self.settings.scheme,
            // It is the request itself that waits for the origin's word.
            expects_continue: false,
            params: None,
            ..ClientRequestHead::clone(head)
        })
    }

    async fn send(&self, copy: Copy) {
        let context = Context {
            key: copy.key,
            client: Some(copy.client),
            deadline: Instant::now().checked_add(self.settings.timeout),
            ..Context::default()
        };
        match self.group.send(copy.request, context).await {
            Ok(mut delivered) => {
                refusal::note(&self.log, &delivered.attempts, Some(&delivered.node));
                // Read to its end: the connection can be used again then.
                while let Some(frame) = delivered.response.body.frame().await {
                    if let Err(error) = frame {
                        tracing::debug!(
                            group = self.group.name(), %error,
                            "the answer to a copy of a request broke off"
                        );
                        break;
                    }
                }
            }
            Err(failed) => {
                let of_content = matches!(
                    &failed.kind,
                    FailedKind::Node { failure, .. } if matches!(failure.cause, FailureCause::Source(_))
                );
                let is_behind = copy.watch.is_some_and(|watch| watch.was_cut());
                match of_content && is_behind {
                    true => self.left_out("a copy of a request was too far behind"),
                    false => {
                        // Its client is answered by others.
                        let _ = refusal::tell_failed(&self.log, &failed);
                    }
                }
            }
        }
    }

    fn left_out(&self, why: &'static str) {
        self.group.count_dropped_copy();
        if let Some(withheld) = self.log.line() {
            tracing::warn!(group = self.group.name(), withheld, "{why}");
        }
    }
}

impl Place {
    fn take(copies: &Rc<Copies>) -> Option<Self> {
        let open = copies.open.get();
        (open < copies.settings.max_requests).then(|| {
            copies.open.set(open.saturating_add(1));
            Self(Rc::clone(copies))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
    }
}
