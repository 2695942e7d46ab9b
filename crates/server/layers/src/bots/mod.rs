//! `Bots`: which bot a request is from, by its signature.

mod signature;
mod structured_field;

use std::sync::Arc;
use std::time::Duration;

use apus_conditions::{BotClaim, BotProof};
use apus_handler::middleware::{Middleware, Next};
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, ResponseFuture};
use tokio::sync::watch;

use crate::auth::{KeySet, KnownKeys, RemoteKeySet};
use signature::{BotSignature, SignatureFields};

/// How long a request waits for the keys of a bot.
const WAIT: Duration = Duration::from_secs(1);

/// Why a claim is not proven.
const UNKNOWN_KEY: &str = "its key is not known";

/// The bots that a server knows, for `Sites::bots`, or as a layer.
///
/// The bot of a request is found out once, before anything else is decided about it, and is the fact `bot` of conditions and of limits
/// ([`BotClaim`]). A request that proves nothing goes on as any other.
#[derive(Clone, Debug, Default)]
pub struct Bots(Arc<Vec<KnownBot>>);

/// A bot, and how its requests are known.
#[derive(Clone, Debug)]
pub struct KnownBot {
    name: Arc<str>,
    keys: Option<BotKeys>,
}

#[derive(Clone, Debug)]
enum BotKeys {
    Fixed(KeySet),
    Remote(RemoteKeySet),
}

/// What has to be known before the bot of a request is.
#[derive(Debug)]
pub struct BotWait(Vec<watch::Receiver<()>>);

/// What the fields of a request say.
enum SignedBy {
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
        Arc::make_mut(&mut self.0).push(bot);
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds out which bot a request is from, and notes it in the request. Something may have to be known first: then the request waits
    /// for that, and [`Self::conclude`] is next.
    pub fn identify(&self, request: &mut Request) -> Option<BotWait> {
        match self.by_signature(request) {
            SignedBy::Nobody => None,
            SignedBy::Wait(wait, _) => Some(wait),
            SignedBy::Claim(claim, why) => {
                note(request, claim, why);
                None
            }
        }
    }

    /// As [`Self::identify`], with what is known now.
    pub fn conclude(&self, request: &mut Request) {
        match self.by_signature(request) {
            SignedBy::Claim(claim, why) => note(request, claim, why),
            SignedBy::Wait(_, Some(claim)) => note(request, claim, UNKNOWN_KEY),
            SignedBy::Wait(_, None) | SignedBy::Nobody => {}
        }
    }

    /// The bot whose key has signed a request. One signature is verified, of the first key that is known.
    fn by_signature(&self, request: &Request) -> SignedBy {
        if request.headers().get("signature-input").is_none() {
            return SignedBy::Nobody;
        }
        let Some(fields) = SignatureFields::of(request) else {
            return SignedBy::Nobody;
        };
        let mut waits = Vec::new();
        let mut unknown = None;
        let signatures = fields.signatures();
        for signature in &signatures {
            for bot in &*self.0 {
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
                        return SignedBy::Claim(bot.claim(proof), why);
                    }
                }
            }
        }
        let claim = unknown.map(|bot| bot.claim(BotProof::Unknown));
        match claim {
            claim if !waits.is_empty() => SignedBy::Wait(BotWait(waits), claim),
            Some(claim) => SignedBy::Claim(claim, UNKNOWN_KEY),
            None => SignedBy::Nobody,
        }
    }
}

impl KnownBot {
    fn claim(&self, proof: BotProof) -> BotClaim {
        BotClaim {
            name: Arc::clone(&self.name),
            proof,
        }
    }
}

/// Adds what was found to a request.
fn note(request: &mut Request, claim: BotClaim, why: &str) {
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
