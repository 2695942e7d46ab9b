//! Maintenance: 503 with `Retry-After` (RFC 9110 sections 15.6.4 and 10.2.3) to all clients but those of some networks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_handler::{Error, Middleware, Next};
use apus_http::{Network, Request, Response, ResponseFuture, StatusCode, header};

/// The wait that clients are asked for while the end of the maintenance is unknown.
const RETRY_AFTER: u64 = 300;

/// The tokens of ACME (RFC 8555 section 8.3), without which a certificate expires during a long maintenance.
const ACME_CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The maintenance of a site by `Site::maintenance`, of an application as a layer.
///
/// Challenges of ACME pass. Connections that have left HTTP, such as WebSockets, stay.
#[derive(Clone, Debug)]
pub struct Maintenance {
    /// What holds unless the switch says otherwise.
    state: MaintenanceState,
    allow: Arc<[Network]>,
    page: Option<Arc<str>>,
    switch: MaintenanceSwitch,
}

/// Whether there is maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceState {
    /// There is none.
    Off,
    /// There is, until it is turned off.
    On,
    /// There is until this time, and none afterwards.
    Until(SystemTime),
}

/// Turns the maintenance of a site on and off while it is served. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct MaintenanceSwitch(Arc<AtomicU64>);

/// The switch says nothing.
const UNSET: u64 = 0;
const OFF: u64 = 1;
const ON: u64 = 2;
/// Seconds since 1970 from here on.
const FIRST_TIME: u64 = 3;

impl Default for Maintenance {
    fn default() -> Self {
        Self::new()
    }
}

impl Maintenance {
    /// Maintenance without an end that is known.
    pub fn new() -> Self {
        Self {
            state: MaintenanceState::On,
            allow: Arc::default(),
            page: None,
            switch: MaintenanceSwitch::default(),
        }
    }

    /// Sets whether there is maintenance.
    #[must_use]
    pub fn state(mut self, state: MaintenanceState) -> Self {
        self.state = state;
        self
    }

    /// Lets the clients of these networks pass, such as the operators.
    #[must_use]
    pub fn allow(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.allow = networks.into_iter().collect();
        self
    }

    /// The path of a page for the others, if it is of a site. By default it is the error page of the site for 503.
    #[must_use]
    pub fn page(mut self, path: &str) -> Self {
        self.page = Some(path.into());
        self
    }

    /// Uses a switch, which takes precedence over [`Maintenance::state`] while it is set.
    #[must_use]
    pub fn switch(mut self, switch: &MaintenanceSwitch) -> Self {
        self.switch = switch.clone();
        self
    }

    /// The path of [`Maintenance::page`].
    pub fn page_path(&self) -> Option<&str> {
        self.page.as_deref()
    }

    /// The state in force, by the switch or without it.
    pub fn current(&self) -> MaintenanceState {
        self.switch
            .state()
            .unwrap_or(self.state)
            .at(SystemTime::now())
    }

    /// How long a client of this request should wait until it tries again; `None` if the request passes.
    pub fn retry_after(&self, request: &Request) -> Option<Duration> {
        // The time is not looked at where there is no maintenance.
        let state = self.switch.state().unwrap_or(self.state);
        if state == MaintenanceState::Off {
            return None;
        }
        let now = SystemTime::now();
        let wait = match state.at(now) {
            MaintenanceState::Off => return None,
            MaintenanceState::On => RETRY_AFTER,
            MaintenanceState::Until(end) => {
                let left = end.duration_since(now).unwrap_or_default();
                left.as_secs().saturating_add(1)
            }
        };
        let client = request.client().peer();
        let passes = self.allow.iter().any(|network| network.contains(&client))
            || request
                .normal_path()
                .is_ok_and(|path| path.starts_with(ACME_CHALLENGES));
        (!passes).then(|| Duration::from_secs(wait))
    }

    /// The response to a request, without a body; `None` if the request passes.
    pub fn response(&self, request: &Request) -> Option<Response> {
        let wait = self.retry_after(request)?;
        let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE);
        response
            .headers_mut()
            .append(&header::RETRY_AFTER, &wait.as_secs().into());
        Some(response)
    }
}

impl MaintenanceState {
    /// The state at a time: maintenance that has ended is off.
    #[must_use]
    pub fn at(self, now: SystemTime) -> Self {
        match self {
            Self::Until(end) if end <= now => Self::Off,
            other => other,
        }
    }
}

impl MaintenanceSwitch {
    /// Sets what holds from now on; `None`: what [`Maintenance::state`] says.
    pub fn set(&self, state: Option<MaintenanceState>) {
        let code = match state {
            None => UNSET,
            Some(MaintenanceState::Off) => OFF,
            Some(MaintenanceState::On) => ON,
            Some(MaintenanceState::Until(end)) => {
                let end = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                end.as_secs().max(FIRST_TIME)
            }
        };
        self.0.store(code, Ordering::Relaxed);
    }

    /// What was set.
    #[inline]
    pub fn state(&self) -> Option<MaintenanceState> {
        match self.0.load(Ordering::Relaxed) {
            UNSET => None,
            OFF => Some(MaintenanceState::Off),
            ON => Some(MaintenanceState::On),
            end => Some(MaintenanceState::Until(
                UNIX_EPOCH + Duration::from_secs(end),
            )),
        }
    }
}

/// As a layer it responds with an error page of the application.
impl Middleware<()> for Maintenance {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let Some(wait) = self.retry_after(&request) else {
            return next.call(request);
        };
        let error = Error::unavailable("there is maintenance; please come back later")
            .header(header::RETRY_AFTER, wait.as_secs().into());
        next.rendering(&request).respond(error).into()
    }
}
