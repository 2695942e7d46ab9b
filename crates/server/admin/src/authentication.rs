//! Who asks the API.

use std::sync::Arc;
use std::time::Duration;

use apus_control::{OperatorAccount, OperatorAccounts, OperatorRole, TokenDigest};
use apus_http::{HeaderValue, Request, Response, StatusCode};
use apus_layers::auth::password;
use serde_json::{Value, json};

use crate::reply::{json_response, problem};
use crate::sessions::{AdminSessions, NewSession, SessionOwner};

/// The name in the audit log of who logged in by a code of the control socket.
const OPERATOR: &str = "the operator";

/// Finds who asks, and lets people log in.
#[derive(Clone, Debug)]
pub(crate) struct Authentication {
    accounts: Arc<OperatorAccounts>,
    sessions: Arc<AdminSessions>,
    /// Which accounts these are, of those that there have been.
    generation: u64,
}

/// What a stream was begun with.
#[derive(Debug)]
pub(crate) struct StreamAccess {
    sessions: Arc<AdminSessions>,
    generation: u64,
    /// `None`: the token of an account, or a certificate.
    session: Option<TokenDigest>,
}

impl StreamAccess {
    /// Whether the stream may go on: the session has not ended, and the accounts are those with which it began. When they change, who is
    /// still known begins again.
    pub(crate) fn is_valid(&self) -> bool {
        let session = self.session.as_ref();
        self.sessions.generation() == self.generation
            && session.is_none_or(|digest| self.sessions.find(digest).is_some())
    }
}

/// Who asks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) role: OperatorRole,
    /// The sites that it is for; `None`: all, and the server.
    pub(crate) sites: Option<Vec<String>>,
    /// How long the session lasts; `None`: a token, which lasts until it is removed from the file.
    left: Option<Duration>,
}

impl Caller {
    fn of(account: &OperatorAccount, left: Option<Duration>) -> Self {
        Self {
            name: account.name.clone(),
            role: account.role,
            sites: account.sites.clone(),
            left,
        }
    }

    /// An account with a token, for tests.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: OperatorRole::Read,
            sites: None,
            left: None,
        }
    }

    /// Whether it is for this site.
    pub(crate) fn is_for(&self, site: &str) -> bool {
        let Some(sites) = &self.sites else {
            return true;
        };
        sites.iter().any(|own| own == site)
    }

    /// What it may do.
    pub(crate) fn description(&self) -> Value {
        json!({
            "name": self.name,
            "role": self.role,
            "sites": self.sites,
            "seconds_left": self.left.map(|left| left.as_secs()),
        })
    }
}

impl Authentication {
    pub(crate) fn new(accounts: OperatorAccounts, sessions: Arc<AdminSessions>) -> Self {
        Self {
            accounts: Arc::new(accounts),
            generation: sessions.begin_generation(),
            sessions,
        }
    }

    /// What lets a stream go on that this request begins.
    pub(crate) fn stream_access(&self, request: &Request, caller: &Caller) -> StreamAccess {
        let session = token_of(request).filter(|_| caller.left.is_some());
        StreamAccess {
            sessions: Arc::clone(&self.sessions),
            generation: self.generation,
            session,
        }
    }

    /// Who asks; `None`: nobody who is known.
    pub(crate) fn caller(&self, request: &Request) -> Option<Caller> {
        let Some(digest) = token_of(request) else {
            let digest = certificate_of(request)?;
            let account = self.accounts.of_certificate(&digest)?;
            return Some(Caller::of(account, None));
        };
        if let Some(account) = self.accounts.of_token(&digest) {
            return Some(Caller::of(account, None));
        }
        let (owner, left) = self.sessions.find(&digest)?;
        let caller = self.caller_of(&owner, left);
        if caller.is_none() {
            self.sessions.end(&digest);
        }
        caller
    }

    fn caller_of(&self, owner: &SessionOwner, left: Duration) -> Option<Caller> {
        match owner {
            SessionOwner::ControlSocket => Some(Caller {
                name: OPERATOR.to_owned(),
                role: OperatorRole::Configure,
                sites: None,
                left: Some(left),
            }),
            SessionOwner::Account(name, hash) => {
                let account = self.accounts.named(name)?;
                let is_same = TokenDigest::of(account.password.as_ref()?) == *hash;
                is_same.then(|| Caller::of(account, Some(left)))
            }
        }
    }

    /// Ends the session of the request.
    pub(crate) fn log_out(&self, request: &Request) {
        if let Some(digest) = token_of(request) {
            self.sessions.end(&digest);
        }
    }

    /// Begins a session for who has sent a code, or a name and a password.
    pub(crate) async fn log_in(&self, client: &Request, body: &Value) -> Response {
        let client = client.client().ip;
        if let Some(wait) = self.sessions.wait(client) {
            let response = problem(
                StatusCode::TOO_MANY_REQUESTS,
                "too many log-ins of this address have failed",
            );
            let seconds = wait.as_secs().saturating_add(1).to_string();
            return match HeaderValue::from_bytes(seconds.as_bytes()) {
                Ok(seconds) => response.with_header(&apus_http::header::RETRY_AFTER, &seconds),
                Err(_) => response,
            };
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let owner = if let Some(code) = text("code") {
            let is_known = self.sessions.take_code(code);
            is_known.then_some(SessionOwner::ControlSocket)
        } else if let (Some(name), Some(entered)) = (text("name"), text("password")) {
            let account = self.accounts.named(name);
            let stored = account.and_then(|account| account.password.clone());
            match password::verify(client, entered, stored.clone()).await {
                Ok(true) => stored
                    .map(|hash| SessionOwner::Account(name.to_owned(), TokenDigest::of(&hash))),
                Ok(false) => None,
                Err(error) => {
                    return problem(error.status_code(), "passwords cannot be compared now");
                }
            }
        } else {
            return problem(
                StatusCode::UNPROCESSABLE_ENTITY,
                "expected `code`, or `name` and `password`",
            );
        };
        let Some(owner) = owner else {
            self.sessions.count_failure(client);
            let from = client.map(|client| client.to_string());
            tracing::warn!(
                client = from.as_deref().unwrap_or("unix:"),
                "a log-in at `admin_listen` failed"
            );
            return problem(
                StatusCode::UNAUTHORIZED,
                "the code has been used or is too old, or the name and the password do not belong together",
            );
        };
        match self.sessions.begin(owner.clone()) {
            Ok(session) => self.welcome(&owner, session),
            Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    fn welcome(&self, owner: &SessionOwner, session: NewSession) -> Response {
        let caller = self.caller_of(owner, session.lasts);
        let mut description = caller
            .map(|caller| caller.description())
            .unwrap_or_default();
        if let Some(fields) = description.as_object_mut() {
            fields.insert("token".to_owned(), session.token.into());
        }
        json_response(&description)
    }
}

/// The digest of the client certificate of a request.
///
/// A browser presents it by itself, also when a page of another site asks. It says then that the request is not of a page of this
/// site, and the certificate does not count.
fn certificate_of(request: &Request) -> Option<TokenDigest> {
    let mut sites = request.headers().get_all("sec-fetch-site");
    if sites.any(|site| !matches!(site, b"same-origin" | b"none")) {
        return None;
    }
    let tls = request.connection().tls.as_ref()?;
    let certificate = tls.client_certificate.as_ref()?;
    Some(TokenDigest::of_certificate(&certificate.der))
}

/// The digest of the token of a request.
fn token_of(request: &Request) -> Option<TokenDigest> {
    let field = request.headers().get_str("authorization")?;
    let (scheme, token) = field.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| TokenDigest::of(token.trim()))
}
