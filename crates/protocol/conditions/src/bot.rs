//! `BotClaim`: the bot that a request says it is from, and whether that is proven.

use std::sync::Arc;

use apus_http::Request;

/// The bot that a request says it is from: an extension of the request, which whoever checks it adds before rules and layers are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotClaim {
    /// The name of the bot in the configuration.
    pub name: Arc<str>,
    /// What is known about it.
    pub proof: BotProof,
}

/// What is known about the claim of a request to be from a bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BotProof {
    /// It is true: the signature is of a key of the bot, or the address has a name of its operator.
    Verified,
    /// It is false.
    Refuted,
    /// It could not be checked: there are no keys, or no answers of DNS.
    Unknown,
}

impl BotClaim {
    /// What a request says of itself, if that was looked at.
    pub fn of(request: &Request) -> Option<&Self> {
        if request.extensions().is_empty() {
            return None;
        }
        request.extensions().get()
    }

    /// The name of the bot that a request is proven to be from.
    pub fn verified(request: &Request) -> Option<&str> {
        Self::of(request)
            .filter(|claim| claim.proof == BotProof::Verified)
            .map(|claim| &*claim.name)
    }
}
