//! `Bots`: which bot a request is from, by its signature, or by the name of its address.

mod address_names;
mod counts;
mod host_pattern;
mod signature;
mod structured_field;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apus_conditions::{BotClaim, BotProof};
use apus_handler::middleware::{Middleware, Next};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, ResponseFuture};
use tokio::sync::watch;

use crate::auth::{KeySet, KnownKeys, RemoteKeySet};
use address_names::{AddressNames, NameAnswer, Names};
use counts::BotCounters;
pub use counts::BotCounts;
pub use host_pattern::{HostPattern, InvalidHostPattern};
use signature::{BotSignature, SignatureFields};

/// How long a request waits for the keys of a bot, or for the name of its address.
const WAIT: Duration = Duration::from_secs(1);

/// The bytes of a `User-Agent` that are looked at.
const MAX_USER_AGENT: usize = 1024;

/// Why a claim is not true.
const OTHER_NAME: &str = "its address has no name of a host of the bot";

/// Why a claim is not proven.
const TOO_LATE: &str = "its keys, or the name of its address, are not there in time";
const UNKNOWN_KEY: &str = "its key is not known";

/// The bots that a server knows, for `Sites::bots`, or as a layer.
///
/// The bot of a request is found out once, before anything else is decided about it, and is the fact `bot` of conditions and of limits
/// ([`BotClaim`]). A request that proves nothing goes on as any other.
#[derive(Clone, Default)]
pub struct Bots(Arc<BotsState>);

#[derive(Clone, Default)]
struct BotsState {
    bots: Vec<KnownBot>,
    /// The name servers; without any, those of the system.
    servers: Vec<SocketAddr>,
    /// Made when it is first used, as all bots have to be known.
    names: OnceLock<Arc<AddressNames>>,
}

/// A bot, and how its requests are known.
#[derive(Clone, Debug)]
pub struct KnownBot {
    name: Arc<str>,
    keys: Option<BotKeys>,
    hosts: Vec<HostPattern>,
    user_agent: Box<str>,
    /// Those of the bot of this name in the configuration before, if there was one.
    counters: OnceLock<Arc<BotCounters>>,
}

#[derive(Clone, Debug)]
enum BotKeys {
    Fixed(KeySet),
    Remote(RemoteKeySet),
}

/// What has to be known before the bot of a request is.
#[derive(Debug)]
pub struct BotWait(Vec<watch::Receiver<()>>);

/// What is found out about a request.
enum BotFinding {
    Nobody,
    Claim(BotClaim, &'static str),
    Wait(BotWait, Option<BotClaim>),
}

impl KnownBot {
    /// A bot without a proof yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            keys: None,
            hosts: Vec::new(),
            user_agent: name.into(),
            counters: OnceLock::new(),
        }
    }

    /// Its requests are signed with one of these keys of Ed25519 (Web Bot Auth, RFC 9421).
    #[must_use]
    pub fn key_set(mut self, keys: KeySet) -> Self {
        self.keys = Some(BotKeys::Fixed(keys));
        self
    }

    /// Its requests are signed with one of the keys of Ed25519 of its directory (Web Bot Auth, RFC 9421).
    #[must_use]
    pub fn remote_key_set(mut self, keys: RemoteKeySet) -> Self {
        self.keys = Some(BotKeys::Remote(keys));
        self
    }

    /// Its requests come from addresses with such a name, which has the address (reverse and forward DNS).
    #[must_use]
    pub fn host(mut self, pattern: HostPattern) -> Self {
        self.hosts.push(pattern);
        self
    }

    /// Only the addresses of requests are looked up whose `User-Agent` has this text, in any case; by default the name of the bot.
    #[must_use]
    pub fn user_agent(mut self, part: &str) -> Self {
        self.user_agent = part.into();
        self
    }

    /// Whether a request says that it is from this bot, whose address has a name.
    fn is_named_by(&self, request: &Request) -> bool {
        let part = self.user_agent.as_bytes();
        let mut lines = request.headers().get_all("user-agent");
        !self.hosts.is_empty()
            && !part.is_empty()
            && lines.any(|line| {
                let line = line.get(..MAX_USER_AGENT).unwrap_or(line);
                let mut parts = line.windows(part.len());
                parts.any(|found| found.eq_ignore_ascii_case(part))
            })
    }

    /// The bot, if it has the key of a signature.
    fn find(&self, signature: &BotSignature<'_>) -> Found {
        let (Some(keys), Some(id)) = (&self.keys, signature.key_id()) else {
            return Found::Nothing;
        };
        if id == Bots::TEST_KEY {
            return Found::Nothing;
        }
        let public = |keys: &KeySet| {
            let key = keys.ed25519(id)?;
            let now = apus_clock::unix_time().as_secs();
            // A key that is not in use makes no signature.
            Some(if key.is_for(now) {
                key.public.clone()
            } else {
                Box::default()
            })
        };
        match keys {
            BotKeys::Fixed(keys) => public(keys).map_or(Found::Nothing, Found::Key),
            BotKeys::Remote(remote) => {
                // A key is looked for where the bot says that it is: others may have a copy in their directory.
                let is_named = signature.agent().map(|agent| agent.is_at(remote.url()));
                if is_named == Some(false) {
                    return Found::Nothing;
                }
                let keys = match remote.keys() {
                    KnownKeys::Keys(keys) => keys,
                    KnownKeys::Wait(attempt) => return Found::Wait(attempt),
                    KnownKeys::None if is_named.is_some() => return Found::Unknown,
                    KnownKeys::None => return Found::Nothing,
                };
                match public(&keys) {
                    Some(key) => Found::Key(key),
                    None if is_named.is_none() => Found::Nothing,
                    // It may be a new key.
                    None => remote.refresh().map_or(Found::Unknown, Found::Wait),
                }
            }
        }
    }
}

/// What a bot has for a signature.
enum Found {
    Nothing,
    /// The bot is named, but there is no such key.
    Unknown,
    Wait(watch::Receiver<()>),
    Key(Box<[u8]>),
}

impl BotWait {
    /// Waits, for a second at most.
    pub async fn end(self) {
        let all = async {
            for mut attempt in self.0 {
                // It has no values: its sender is dropped at the end.
                while attempt.changed().await.is_ok() {}
            }
        };
        let _ = tokio::time::timeout(WAIT, all).await;
    }
}

impl Bots {
    /// The thumbprint of the key of RFC 9421 appendix B.1.4, with which everybody can sign. No bot has it.
    pub const TEST_KEY: &str = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";

    /// No bots.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a bot.
    #[must_use]
    pub fn bot(mut self, bot: KnownBot) -> Self {
        let state = Arc::make_mut(&mut self.0);
        state.bots.push(bot);
        state.names = OnceLock::new();
        self
    }

    /// Asks these name servers for the names of addresses; by default those of the system.
    #[must_use]
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let state = Arc::make_mut(&mut self.0);
        state.servers = servers.into_iter().collect();
        state.names = OnceLock::new();
        self
    }

    /// What was found out about requests so far, for each bot.
    pub fn counts(&self) -> Vec<BotCounts> {
        let counts = self.0.bots.iter().map(|bot| {
            let fetched = match &bot.keys {
                Some(BotKeys::Remote(keys)) => Some(keys.counts()),
                Some(BotKeys::Fixed(_)) | None => None,
            };
            bot.counters().counts(&bot.name, fetched)
        });
        counts.collect()
    }

    /// Continues with what was counted before, and with the names of addresses that were found before, if they were looked up for the
    /// same hosts.
    pub fn continue_from(&self, before: &Self) {
        for bot in &self.0.bots {
            let mut known = before.0.bots.iter();
            if let Some(known) = known.find(|known| known.name == bot.name) {
                let _ = bot.counters.set(Arc::clone(known.counters()));
            }
        }
        if let (Some(known), Some(names)) = (before.0.names.get(), self.names())
            && known.is_like(names)
        {
            names.continue_from(known);
        }
    }

    /// The names of addresses; `None` if no bot has any.
    fn names(&self) -> Option<&Arc<AddressNames>> {
        let state = &*self.0;
        let patterns = || state.bots.iter().flat_map(|bot| &bot.hosts).cloned();
        patterns().next()?;
        let make = || {
            Arc::new(AddressNames::new(
                state.servers.clone(),
                patterns().collect(),
            ))
        };
        Some(state.names.get_or_init(make))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.bots.is_empty()
    }

    /// Finds out which bot a request is from, and notes it in the request. Something may have to be known first: then the request waits
    /// for that, and [`Self::conclude`] is next.
    pub fn identify(&self, request: &mut Request) -> Option<BotWait> {
        match self.find(request) {
            BotFinding::Nobody => None,
            BotFinding::Wait(wait, _) => Some(wait),
            BotFinding::Claim(claim, why) => {
                self.note(request, claim, why);
                None
            }
        }
    }

    /// As [`Self::identify`], with what is known now.
    pub fn conclude(&self, request: &mut Request) {
        match self.find(request) {
            BotFinding::Claim(claim, why) => self.note(request, claim, why),
            BotFinding::Wait(_, Some(claim)) => self.note(request, claim, TOO_LATE),
            BotFinding::Wait(_, None) | BotFinding::Nobody => {}
        }
    }

    /// Counts what was found, and adds it to a request.
    fn note(&self, request: &mut Request, claim: BotClaim, why: &str) {
        let mut bots = self.0.bots.iter();
        if let Some(bot) = bots.find(|bot| Arc::ptr_eq(&bot.name, &claim.name)) {
            bot.counters().count(claim.proof);
        }
        trace::note(request, || {
            let name = &claim.name;
            let what = match claim.proof {
                BotProof::Verified => format!("is from the bot {name}"),
                BotProof::Refuted => format!("is not from the bot {name}, as it says"),
                BotProof::Unknown => format!("may be from the bot {name}"),
            };
            Step::new(StepKind::Access, what, why)
        });
        request.extensions_mut().insert(claim);
    }

    /// The bot of a request. What is proven counts; else what the signature says.
    fn find(&self, request: &Request) -> BotFinding {
        let by_signature = self.by_signature(request);
        if by_signature.is_proven() {
            return by_signature;
        }
        let by_name = self.by_name(request);
        if by_name.is_proven() {
            return by_name;
        }
        match (by_signature, by_name) {
            (BotFinding::Wait(mut wait, claim), BotFinding::Wait(other, of_name)) => {
                wait.0.extend(other.0);
                BotFinding::Wait(wait, claim.or(of_name))
            }
            (BotFinding::Wait(wait, claim), BotFinding::Claim(other, _))
            | (BotFinding::Claim(other, _), BotFinding::Wait(wait, claim)) => {
                let refuted = Some(other).filter(|other| other.proof == BotProof::Refuted);
                BotFinding::Wait(wait, refuted.or(claim))
            }
            (BotFinding::Nobody, by_name) => by_name,
            (by_signature, _) => by_signature,
        }
    }

    /// The bot that a request says it is from, if the address of the client has its name.
    fn by_name(&self, request: &Request) -> BotFinding {
        let Some(names) = self.names() else {
            return BotFinding::Nobody;
        };
        let mut claimed = self.0.bots.iter().filter(|bot| bot.is_named_by(request));
        let (Some(first), Some(address)) = (claimed.next(), request.client().ip) else {
            return BotFinding::Nobody;
        };
        match names.of(address) {
            NameAnswer::Wait(lookup) => {
                let claim = first.claim(BotProof::Unknown);
                BotFinding::Wait(BotWait(vec![lookup]), Some(claim))
            }
            NameAnswer::Known(Names::Unknown) => {
                BotFinding::Claim(first.claim(BotProof::Unknown), "DNS does not respond")
            }
            NameAnswer::Known(Names::None) => {
                BotFinding::Claim(first.claim(BotProof::Refuted), OTHER_NAME)
            }
            NameAnswer::Known(Names::Confirmed(names)) => {
                let has_name = |bot: &&KnownBot| {
                    let mut names = names.iter();
                    names.any(|name| bot.hosts.iter().any(|host| host.matches(name)))
                };
                match std::iter::once(first).chain(claimed).find(has_name) {
                    Some(bot) => BotFinding::Claim(
                        bot.claim(BotProof::Verified),
                        "its address has the name of a host of the bot",
                    ),
                    None => BotFinding::Claim(first.claim(BotProof::Refuted), OTHER_NAME),
                }
            }
        }
    }

    /// The bot whose key has signed a request. One signature is verified, of the first key that is known.
    fn by_signature(&self, request: &Request) -> BotFinding {
        if request.headers().get("signature-input").is_none() {
            return BotFinding::Nobody;
        }
        let Some(fields) = SignatureFields::of(request) else {
            return BotFinding::Nobody;
        };
        let mut waits = Vec::new();
        let mut unknown = None;
        let signatures = fields.signatures();
        for signature in &signatures {
            for bot in &self.0.bots {
                match bot.find(signature) {
                    Found::Nothing => {}
                    Found::Unknown => unknown = Some(bot),
                    Found::Wait(attempt) => {
                        if signature.agent().is_some() {
                            unknown = Some(bot);
                        }
                        waits.push(attempt);
                    }
                    Found::Key(key) => {
                        let now = apus_clock::unix_time().as_secs();
                        let (proof, why) = if !signature.is_in_force(now) {
                            (BotProof::Refuted, "its signature is not in force")
                        } else if signature.is_of(&key, request) {
                            (BotProof::Verified, "its key has signed the request")
                        } else {
                            (BotProof::Refuted, "the signature is not of its key")
                        };
                        return BotFinding::Claim(bot.claim(proof), why);
                    }
                }
            }
        }
        let claim = unknown.map(|bot| bot.claim(BotProof::Unknown));
        match claim {
            claim if !waits.is_empty() => BotFinding::Wait(BotWait(waits), claim),
            Some(claim) => BotFinding::Claim(claim, UNKNOWN_KEY),
            None => BotFinding::Nobody,
        }
    }
}

impl BotFinding {
    fn is_proven(&self) -> bool {
        matches!(self, Self::Claim(claim, _) if claim.proof == BotProof::Verified)
    }
}

impl KnownBot {
    fn counters(&self) -> &Arc<BotCounters> {
        self.counters.get_or_init(Arc::default)
    }

    fn claim(&self, proof: BotProof) -> BotClaim {
        BotClaim {
            name: Arc::clone(&self.name),
            proof,
        }
    }
}

impl fmt::Debug for Bots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bots")
            .field("bots", &self.0.bots)
            .field("servers", &self.0.servers)
            .finish()
    }
}

impl Middleware<()> for Bots {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        match self.identify(&mut request) {
            None => next.call(request),
            Some(wait) => {
                let bots = self.clone();
                ResponseFuture::later(async move {
                    wait.end().await;
                    bots.conclude(&mut request);
                    next.run(request).await
                })
            }
        }
    }
}
