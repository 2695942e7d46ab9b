//! `BrowserChallenge`: a small page that browsers pass by themselves and most programs do not.

mod page;
mod pressure;
mod spent;
mod state;
mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use apus_conditions::{BotClaim, Condition, RequestFacts};
use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, Rendering};
use apus_http::fields::cookies;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{
    ErrorFormat, Method, Network, Request, Response, ResponseFuture, StatusCode, header,
};
use apus_tokens::NoRandomness;

use crate::client_network::client_network;
use page::PageSubject;
use pressure::{HOLD, Pressure, PressureThresholds};
pub use state::{ChallengeCounts, ChallengeState, ChallengeStates};
pub use token::{ChallengeKey, ChallengeLevel};
use token::{Clearance, ClientOfSite, TICKET_LIFETIME, Ticket, is_answer};

/// The field of a response by which an application asks for a challenge.
const FIELD: &str = "x-apus-challenge";

/// The cookie with a ticket, and behind a dot its answer.
const TICKET_COOKIE: &str = "apus_challenge";

/// The cookie of those who have passed.
const CLEARANCE_COOKIE: &str = "apus_clearance";

/// What each passed threshold of the site adds.
const THRESHOLD_WEIGHT: i64 = 10;

/// Paths that are never challenged: what programs have to reach by the standards that define them (RFC 8615, RFC 9309), and the icon.
const EXEMPT: [&[u8]; 2] = [b"/robots.txt", b"/favicon.ico"];
const EXEMPT_PREFIX: &[u8] = b"/.well-known/";

/// The challenge of a site by `Site::challenge`, of an application as a layer.
///
/// A browser whose weight reaches a level gets a page with a signed ticket instead of what it asked for. It answers by itself, and gets
/// a clearance, a cookie that is valid for its address, the site and a time. Other clients get an explanation.
///
/// An application asks for a challenge by the field `X-Apus-Challenge: required`, or with a level from 1 to 3, in its response.
#[derive(Clone)]
pub struct BrowserChallenge {
    settings: Arc<ChallengeSettings>,
    state: Arc<ChallengeState>,
}

#[derive(Clone)]
struct ChallengeSettings {
    site: Arc<str>,
    level: ChallengeLevel,
    /// What every request weighs.
    base: i64,
    weights: Vec<(Option<Condition>, i64)>,
    /// The weights from which on a request needs the levels 1, 2 and 3.
    levels: [i64; 3],
    thresholds: PressureThresholds,
    allow: Arc<[Network]>,
    /// Whether bots pass that have proven who they are.
    bots: bool,
    except: Option<Condition>,
    lifetime: Duration,
    difficulty: u8,
    max_difficulty: u8,
    key: Option<ChallengeKey>,
}

/// Who asks for a challenge besides the weight of the request.
#[derive(Clone, Copy, Debug)]
pub struct ChallengeDemand<'a> {
    /// The lowest level that is enough; `None` is the one of the settings.
    pub level: Option<ChallengeLevel>,
    /// Its name for `apus explain`.
    pub by: &'a str,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum ChallengeDecision {
    /// It goes on, and its response gets these `Set-Cookie` lines.
    Pass(Vec<String>),
    /// Its client gets this response.
    Respond(Response),
}

/// The level that the client of a request has passed, for later checks of the same request.
#[derive(Clone, Copy, Debug)]
struct PassedLevel(ChallengeLevel);

/// Why a request needs a level.
struct ChallengeNeed {
    level: ChallengeLevel,
    why: String,
    /// Whether it needs none without the pressure on the site.
    is_by_pressure: bool,
}

impl Default for BrowserChallenge {
    fn default() -> Self {
        Self::new()
    }
}

impl BrowserChallenge {
    /// A challenge that only rules and applications ask for.
    pub fn new() -> Self {
        Self {
            settings: Arc::new(ChallengeSettings {
                site: "".into(),
                level: ChallengeLevel::Refresh,
                base: 0,
                weights: Vec::new(),
                levels: [10, 20, 30],
                thresholds: PressureThresholds::default(),
                allow: Arc::default(),
                bots: true,
                except: None,
                lifetime: Duration::from_secs(86_400),
                difficulty: 13,
                max_difficulty: 18,
                key: None,
            }),
            state: Arc::default(),
        }
    }

    /// A challenge for everybody: the second level, and the third while a fifth of the responses are errors.
    pub fn under_attack() -> Self {
        Self::new().weight(20).errors(20)
    }

    fn changed(mut self, change: impl FnOnce(&mut ChallengeSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// The name that clearances are for: two sites with one key need different ones.
    #[must_use]
    pub fn site(self, name: &str) -> Self {
        self.changed(|settings| settings.site = name.into())
    }

    /// The level that rules and applications ask for; the first by default.
    #[must_use]
    pub fn level(self, level: ChallengeLevel) -> Self {
        self.changed(|settings| settings.level = level)
    }

    /// Adds to the weight of every request.
    #[must_use]
    pub fn weight(self, add: i64) -> Self {
        self.changed(|settings| settings.base = settings.base.saturating_add(add))
    }

    /// Adds to the weight of requests that a condition holds for; takes away if negative.
    #[must_use]
    pub fn weight_when(self, condition: Condition, add: i64) -> Self {
        self.changed(|settings| settings.weights.push((Some(condition), add)))
    }

    /// The weights from which on a request needs the levels 1, 2 and 3; 10, 20 and 30 by default.
    #[must_use]
    pub fn levels(self, weights: [i64; 3]) -> Self {
        self.changed(|settings| settings.levels = weights)
    }

    /// Adds 10 to the weight of all requests for a minute after there were more requests than these in this time.
    #[must_use]
    pub fn rate(self, requests: u32, time: Duration) -> Self {
        self.changed(|settings| settings.thresholds.rate = Some((requests, time)))
    }

    /// Adds 10 to the weight of all requests for a minute after this percentage of responses or more were errors.
    #[must_use]
    pub fn errors(self, percent: u8) -> Self {
        self.changed(|settings| settings.thresholds.errors = Some(percent))
    }

    /// Adds 10 to the weight of all requests for a minute after the load of the machine was this percentage of its cores or more.
    #[must_use]
    pub fn load(self, percent: u32) -> Self {
        self.changed(|settings| settings.thresholds.load = Some(percent))
    }

    /// Lets the clients of these networks pass.
    #[must_use]
    pub fn allow(self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.changed(|settings| settings.allow = networks.into_iter().collect())
    }

    /// Whether bots pass that have proven who they are (`Bots`); they do by default.
    #[must_use]
    pub fn bots(self, pass: bool) -> Self {
        self.changed(|settings| settings.bots = pass)
    }

    /// Lets requests pass that a condition holds for.
    #[must_use]
    pub fn except(self, condition: Condition) -> Self {
        self.changed(|settings| settings.except = Some(condition))
    }

    /// How long a clearance is valid; a day by default.
    #[must_use]
    pub fn lifetime(self, time: Duration) -> Self {
        self.changed(|settings| settings.lifetime = time)
    }

    /// The zero bits that the third level asks for, at ease and at most under pressure; 13 and 18 by default. One more doubles the work.
    #[must_use]
    pub fn difficulty(self, bits: u8, max: u8) -> Self {
        self.changed(|settings| {
            settings.difficulty = bits;
            settings.max_difficulty = max.max(bits);
        })
    }

    /// Signs with this key, which other servers may have, too. By default it is random, and clearances end with the process.
    #[must_use]
    pub fn key(self, key: ChallengeKey) -> Self {
        self.changed(|settings| settings.key = Some(key))
    }

    /// Continues with the counters, the used tickets and the random key of a challenge before.
    #[must_use]
    pub fn state(mut self, state: &Arc<ChallengeState>) -> Self {
        self.state = Arc::clone(state);
        self
    }

    /// Decides on a request. Without a demand, its weight decides, and it is counted.
    pub fn check(
        &self,
        request: &mut Request,
        demand: Option<ChallengeDemand<'_>>,
    ) -> ChallengeDecision {
        if self.is_exempt(request) {
            return ChallengeDecision::Pass(Vec::new());
        }
        let now = u64::try_from(apus_clock::unix_time().as_millis()).unwrap_or(u64::MAX);
        let pressure = self.pressure(demand.is_none());
        let need = match demand {
            Some(demand) => Some(ChallengeNeed {
                level: demand.level.unwrap_or(self.settings.level),
                why: format!("{} asks for it", demand.by),
                is_by_pressure: false,
            }),
            None => self.weigh(request, pressure),
        };
        match self.decide(request, need, (pressure, now)) {
            Ok(decision) => decision,
            Err(error) => {
                tracing::error!(site = &*self.settings.site, %error, "cannot make a challenge");
                ChallengeDecision::Respond(Response::new(StatusCode::SERVICE_UNAVAILABLE))
            }
        }
    }

    /// Counts the response of a handler, and replaces it where the application asks for a challenge that the client has not passed. The
    /// second value is whether it was replaced.
    pub fn complete(&self, request: &mut Request, mut response: Response) -> (Response, bool) {
        if !self.settings.thresholds.are_none() {
            let is_error = response.status().as_u16() >= 400;
            self.state.pressure.count_response(is_error);
        }
        let Some(value) = response.headers().get_str(FIELD) else {
            return (response, false);
        };
        let level = value.trim().parse().ok();
        let demand = ChallengeDemand {
            level: level.and_then(ChallengeLevel::from_number),
            by: "the application",
        };
        match self.check(request, Some(demand)) {
            ChallengeDecision::Respond(response) => (response, true),
            ChallengeDecision::Pass(_) => {
                response.headers_mut().remove(FIELD);
                (response, false)
            }
        }
    }

    fn is_exempt(&self, request: &Request) -> bool {
        let settings = &*self.settings;
        let path = request.normal_path().unwrap_or_default();
        EXEMPT.contains(&path)
            || path.starts_with(EXEMPT_PREFIX)
            || (!settings.allow.is_empty() && {
                let client = request.client().peer();
                let mut networks = settings.allow.iter();
                networks.any(|network| network.contains(&client))
            })
            || (settings.bots && BotClaim::verified(request).is_some())
            || (settings.except.as_ref())
                .is_some_and(|condition| condition.holds(&RequestFacts::new(request)))
    }

    fn pressure(&self, counts: bool) -> Pressure {
        let settings = &*self.settings;
        if settings.thresholds.are_none() {
            return Pressure::default();
        }
        let now = u64::try_from(apus_clock::monotonic().as_millis()).unwrap_or(u64::MAX);
        let site = &self.state.pressure;
        if counts && site.count_request(&settings.thresholds, now, load) {
            let Pressure {
                by_rate,
                by_errors,
                by_load,
                ..
            } = site.at(now);
            tracing::warn!(
                site = &*settings.site,
                by_rate,
                by_errors,
                by_load,
                "a site is under pressure: its challenge weighs requests by 10 more for each threshold"
            );
        }
        site.at(now)
    }

    /// The level that the weight of a request asks for.
    fn weigh(&self, request: &Request, pressure: Pressure) -> Option<ChallengeNeed> {
        let settings = &*self.settings;
        let facts = RequestFacts::new(request);
        let mut weight = settings.base;
        for (condition, add) in &settings.weights {
            if condition
                .as_ref()
                .is_none_or(|condition| condition.holds(&facts))
            {
                weight = weight.saturating_add(*add);
            }
        }
        let of_pressure = i64::from(pressure.count()).saturating_mul(THRESHOLD_WEIGHT);
        let total = weight.saturating_add(of_pressure);
        let level = |weight: i64| {
            let mut levels = ChallengeLevel::ALL.into_iter().zip(settings.levels).rev();
            levels
                .find(|(_, from)| weight >= *from)
                .map(|(level, _)| level)
        };
        Some(ChallengeNeed {
            level: level(total)?,
            why: format!("it weighs {total}, {of_pressure} of that by the thresholds of the site"),
            is_by_pressure: level(weight).is_none(),
        })
    }

    fn decide(
        &self,
        request: &mut Request,
        need: Option<ChallengeNeed>,
        (pressure, now): (Pressure, u64),
    ) -> Result<ChallengeDecision, NoRandomness> {
        let key = self.key_in_force()?;
        let site = Arc::clone(&self.settings.site);
        let client = ClientOfSite {
            site: &site,
            client: request.client().ip.map_or(u128::MAX, client_network),
        };
        let passed = request.extensions().get::<PassedLevel>();
        let mut passed = passed.map(|level| level.0);
        if passed.is_none() {
            passed = clearance(request, key, client, now);
            let ticket = answered_ticket(request, key, client);
            // A browser may still send the cookie of a ticket with which it has passed.
            let ticket = ticket.filter(|(ticket, _)| passed < Some(ticket.level));
            if let Some((ticket, is_right)) = ticket.map(|(ticket, answer)| {
                (
                    ticket,
                    is_answer(&ticket, &answer.0, answer.1.as_deref(), now),
                )
            }) {
                if is_right
                    && ticket.is_valid_at(now)
                    && self.state.spent.spend(ticket.id(), ticket.issued, now)
                {
                    self.state.counts.passed(ticket.level);
                    let cookies = self.cookies(request, &ticket, (key, client));
                    request.extensions_mut().insert(PassedLevel(ticket.level));
                    trace::note(request, || {
                        let what = format!("passes the challenge of level {}", ticket.level as u8);
                        Step::new(StepKind::Handler, what, "the answer to its ticket is right")
                    });
                    if is_browser(request) && is_safe(request) {
                        return Ok(ChallengeDecision::Respond(redirect(request, &cookies)));
                    }
                    return Ok(ChallengeDecision::Pass(cookies));
                }
                self.state.counts.failed();
            }
            if let Some(level) = passed {
                request.extensions_mut().insert(PassedLevel(level));
            }
        }
        let is_marked = page::is_marked(request);
        let need = need.filter(|need| passed < Some(need.level));
        let Some(need) = need else {
            return Ok(if is_marked && is_safe(request) {
                ChallengeDecision::Respond(redirect(request, &[]))
            } else {
                ChallengeDecision::Pass(Vec::new())
            });
        };
        trace::note(request, || {
            let what = format!("challenge of level {}", need.level as u8);
            Step::new(StepKind::Handler, what, need.why.clone())
        });
        if !is_browser(request) {
            self.state.counts.refused();
            return Ok(ChallengeDecision::Respond(refusal(&need)));
        }
        let nonce = apus_tokens::nonce()?;
        let status = status(&need);
        if is_marked
            && cookies(request.headers())
                .all(|cookie| cookie.name != Some(TICKET_COOKIE.as_bytes()))
        {
            let response = page::page(request, &PageSubject::NoCookies, status, &nonce);
            return Ok(ChallengeDecision::Respond(with_wait(response, &need)));
        }
        let settings = &*self.settings;
        let bits = settings.difficulty.saturating_add(pressure.doublings);
        let bits = bits.min(settings.max_difficulty);
        let text = Ticket::new(need.level, bits, now)?.to_text(key, client);
        let subject = PageSubject::Ticket {
            text: &text,
            level: need.level,
            bits,
        };
        self.state.counts.sent(need.level);
        let mut response = with_wait(page::page(request, &subject, status, &nonce), &need);
        if need.level == ChallengeLevel::Refresh {
            let line = cookie_line(request, TICKET_COOKIE, &text, TICKET_LIFETIME / 1000);
            // The text is Base64.
            let _ = response.headers_mut().try_append("set-cookie", line);
        }
        Ok(ChallengeDecision::Respond(response))
    }

    fn key_in_force(&self) -> Result<&ChallengeKey, NoRandomness> {
        match &self.settings.key {
            Some(key) => Ok(key),
            None => self.state.random_key(),
        }
    }

    /// The cookies of a client that has passed.
    fn cookies(
        &self,
        request: &Request,
        ticket: &Ticket,
        (key, client): (&ChallengeKey, ClientOfSite<'_>),
    ) -> Vec<String> {
        let lifetime = self.settings.lifetime.as_secs();
        let clearance = Clearance {
            level: ticket.level,
            // From the ticket on, so that the same ticket never leads to another clearance.
            expires: (ticket.issued / 1000).saturating_add(lifetime),
        };
        let text = clearance.to_text(key, client);
        vec![
            cookie_line(request, CLEARANCE_COOKIE, &text, lifetime),
            cookie_line(request, TICKET_COOKIE, "", 0),
        ]
    }
}

/// The highest level of the clearances of a request.
fn clearance(
    request: &Request,
    key: &ChallengeKey,
    client: ClientOfSite<'_>,
    now: u64,
) -> Option<ChallengeLevel> {
    let cookies = cookies(request.headers());
    let own = cookies.filter(|cookie| cookie.name == Some(CLEARANCE_COOKIE.as_bytes()));
    own.filter_map(|cookie| Clearance::of_text(cookie.value, key, client, now))
        .map(|clearance| clearance.level)
        .max()
}

/// The text of a ticket, and its answer if there is one.
type AnsweredText = (Vec<u8>, Option<Vec<u8>>);

/// The first ticket of a request that is one for its client.
fn answered_ticket(
    request: &Request,
    key: &ChallengeKey,
    client: ClientOfSite<'_>,
) -> Option<(Ticket, AnsweredText)> {
    let mut cookies = cookies(request.headers());
    cookies.find_map(|cookie| {
        if cookie.name != Some(TICKET_COOKIE.as_bytes()) {
            return None;
        }
        let mut parts = cookie.value.splitn(2, |byte| *byte == b'.');
        let text = parts.next()?;
        let answer = parts.next().map(<[u8]>::to_vec);
        let ticket = Ticket::of_text(text, key, client)?;
        Some((ticket, (text.to_vec(), answer)))
    })
}

/// Whether a request has no effect, so that it can be sent again.
pub(super) fn is_safe(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Whether a request is one for a page, by a browser.
fn is_browser(request: &Request) -> bool {
    let headers = request.headers();
    let mut ranges = headers
        .get_all("accept")
        .flat_map(|line| line.split(|byte| *byte == b','))
        .filter_map(|range| range.split(|byte| *byte == b';').next());
    let mut destinations = headers.get_all("sec-fetch-dest");
    ranges.any(|range| range.trim_ascii().eq_ignore_ascii_case(b"text/html"))
        && destinations.all(|destination| matches!(destination, b"document" | b"iframe" | b"frame"))
}

fn cookie_line(request: &Request, name: &str, value: &str, seconds: u64) -> String {
    let secure = if request.is_secure() { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// Sends a browser to what it asked for.
fn redirect(request: &Request, cookies: &[String]) -> Response {
    let mut response = Response::new(StatusCode::SEE_OTHER);
    let headers = response.headers_mut();
    // The target was received in a request, so that it is a valid value; cookies are Base64.
    let _ = headers.try_insert("location", page::clean_target(request));
    page::never_store(headers);
    for line in cookies {
        let _ = headers.try_append("set-cookie", line);
    }
    response
}

/// 429 while the site has too many requests, else 403.
fn status(need: &ChallengeNeed) -> StatusCode {
    if need.is_by_pressure {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::FORBIDDEN
    }
}

fn with_wait(mut response: Response, need: &ChallengeNeed) -> Response {
    if need.is_by_pressure {
        let headers = response.headers_mut();
        headers.insert(&header::RETRY_AFTER, &(HOLD / 1000).into());
    }
    response
}

/// What a program gets.
fn refusal(need: &ChallengeNeed) -> Response {
    let detail = "this site asks clients to pass a check that only browsers pass: open it in a browser, \
                  or ask its operator to exempt this client";
    let error = Error::new(status(need), detail).with("challenge-level", need.level as u8);
    let mut response = Rendering::for_client(Some(ErrorFormat::Json)).respond(error);
    page::never_store(response.headers_mut());
    with_wait(response, need)
}

/// The load of the machine in the last minute, in percent of its cores.
fn load() -> u32 {
    // The system counts in parts of 65,536.
    let load = rustix::system::sysinfo().loads[0].saturating_mul(100) >> 16;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = load.checked_div(u64::try_from(cores).unwrap_or(1));
    load.and_then(|load| u32::try_from(load).ok())
        .unwrap_or(u32::MAX)
}

/// As a layer it takes the field of the application out of its responses.
impl Middleware<()> for BrowserChallenge {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let lines = match self.check(&mut request, None) {
            ChallengeDecision::Respond(response) => return response.into(),
            ChallengeDecision::Pass(lines) => lines,
        };
        let mut copy = request.without_body();
        *copy.extensions_mut() = request.extensions().clone();
        let challenge = self.clone();
        next.call(request).map(move |response| {
            let (mut response, is_replaced) = challenge.complete(&mut copy, response);
            if !is_replaced {
                for line in lines {
                    // The lines are Base64.
                    let _ = response.headers_mut().try_append("set-cookie", line);
                }
            }
            response
        })
    }
}

impl fmt::Debug for BrowserChallenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl fmt::Debug for ChallengeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserChallenge")
            .field("site", &self.site)
            .field("level", &self.level)
            .field("base", &self.base)
            .field("weights", &self.weights)
            .field("levels", &self.levels)
            .field("thresholds", &self.thresholds)
            .field("allow", &self.allow)
            .field("bots", &self.bots)
            .field("except", &self.except)
            .field("lifetime", &self.lifetime)
            .field("difficulty", &(self.difficulty, self.max_difficulty))
            .field("key", &self.key)
            .finish()
    }
}
