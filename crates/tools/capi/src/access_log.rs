//! Access logs: a function of the program, or a file, sees each request that has ended.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;

use apus::{Completion, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory};
use apus_sites::{Observer, OnCompletion, RequestObservation, WorkerObserver};

use crate::handles::ApusOutcome;
use crate::request::ApusHttpVersion;
use crate::text::ApusStr;
use crate::user::UserPointer;

/// A request that has ended, for the access log. Valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusAccessEntry {
    /// The method.
    pub method: ApusStr,
    /// The path, as it came.
    pub path: ApusStr,
    /// The query without its question mark, if there is one.
    pub query: ApusStr,
    /// The host that the request names.
    pub host: ApusStr,
    /// The address of the client.
    pub client: ApusStr,
    /// The field User-Agent.
    pub user_agent: ApusStr,
    /// The field Referer.
    pub referer: ApusStr,
    /// The version of HTTP.
    pub version: ApusHttpVersion,
    /// The status of the response; 499 if the client was gone before there was one.
    pub status: i32,
    /// The bytes of the body that were sent.
    pub body_bytes: u64,
    /// The time from the first byte of the request to the last one of the response, in microseconds.
    pub duration_us: u64,
    /// How it ended.
    pub outcome: ApusOutcome,
}

/// Takes a request that has ended, on its worker.
pub type ApusAccessFn = Option<extern "C" fn(entry: *const ApusAccessEntry, user: *mut c_void)>;

/// The function of the program as an observer.
#[derive(Clone, Copy)]
pub(crate) struct AccessFunction {
    pub(crate) function: extern "C" fn(*const ApusAccessEntry, *mut c_void),
    pub(crate) user: UserPointer,
}

impl Observer for AccessFunction {
    fn worker(&self) -> Rc<dyn WorkerObserver> {
        Rc::new(*self)
    }
}

/// What a request was, until it has ended.
struct ObservedRequest {
    method: apus::Method,
    path: Box<str>,
    query: Option<Box<str>>,
    host: Option<Box<str>>,
    client: Option<String>,
    user_agent: Option<Box<[u8]>>,
    referer: Option<Box<[u8]>>,
    version: ApusHttpVersion,
}

impl WorkerObserver for AccessFunction {
    fn begin(&self, request: &Request) -> Option<OnCompletion> {
        let observed = ObservedRequest {
            method: request.method().clone(),
            path: request.path().into(),
            query: request.query().map(Box::from),
            host: request.host().map(Box::from),
            client: request.client().ip.map(|ip| ip.to_string()),
            user_agent: request.headers().get("user-agent").map(Box::from),
            referer: request.headers().get("referer").map(Box::from),
            version: request.version().into(),
        };
        let Self { function, user } = *self;
        Some(Box::new(move |completion: &Completion| {
            let text = |text: Option<&str>| ApusStr::of_option(text.map(str::as_bytes));
            let entry = ApusAccessEntry {
                method: ApusStr::of(observed.method.as_str().as_bytes()),
                path: ApusStr::of(observed.path.as_bytes()),
                query: text(observed.query.as_deref()),
                host: text(observed.host.as_deref()),
                client: text(observed.client.as_deref()),
                user_agent: ApusStr::of_option(observed.user_agent.as_deref()),
                referer: ApusStr::of_option(observed.referer.as_deref()),
                version: observed.version,
                status: completion.status.as_u16().into(),
                body_bytes: completion.body_bytes,
                duration_us: u64::try_from(completion.duration.as_micros()).unwrap_or(u64::MAX),
                outcome: completion.outcome.into(),
            };
            function(&raw const entry, user.0);
        }))
    }
}

/// A service whose requests are observed.
pub(crate) struct ObservedFactory<F> {
    pub(crate) inner: F,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

struct ObservedService {
    inner: Rc<dyn Service>,
    observers: Vec<Rc<dyn WorkerObserver>>,
}

impl Service for ObservedService {
    fn call(&self, request: Request) -> ResponseFuture {
        let begun = self.observers.iter();
        let begun: Vec<_> = begun
            .filter_map(|observer| RequestObservation::begin(&**observer, &request))
            .collect();
        self.inner.call(request).map(move |mut response: Response| {
            for observation in begun {
                observation.attach(&mut response);
            }
            response
        })
    }
}

impl<F: ServiceFactory> ServiceFactory for ObservedFactory<F> {
    fn service(&self) -> Rc<dyn Service> {
        let inner = self.inner.service();
        if self.observers.is_empty() {
            inner
        } else {
            Rc::new(ObservedService {
                inner,
                observers: self.observers.iter().map(|one| one.worker()).collect(),
            })
        }
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.inner.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}
