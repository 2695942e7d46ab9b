//! The challenge of a site.

use apus_conditions::FactStage;
use apus_sites::{BrowserChallenge, ChallengeKey, ChallengeLevel, Rules};

use super::conditions::Conditions;
use super::tls;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::challenge::{ChallengePreset, ClientChallenge};
use crate::source::Setting;
use crate::value::{FilePath, Switch};

/// The challenge by the keys of a site. Rules that ask for one have one also where the site has no such key.
pub(super) fn resolve<'r>(
    raw: Option<&Setting<Switch<ClientChallenge>>>,
    mut rules: impl Iterator<Item = &'r Rules>,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<BrowserChallenge> {
    match raw.and_then(|raw| raw.table(&raw.span, reader)) {
        Some(keys) => challenge(&keys, conditions, reader),
        None => rules
            .any(Rules::challenge_clients)
            .then(BrowserChallenge::new),
    }
}

fn challenge(
    keys: &ClientChallenge,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<BrowserChallenge> {
    let mut challenge = match keys.preset.as_ref().map(|preset| preset.value) {
        None => BrowserChallenge::new(),
        Some(ChallengePreset::UnderAttack) => BrowserChallenge::under_attack(),
    };
    if let Some(level) = ChallengeLevel::from_number(keys.level.0) {
        challenge = challenge.level(level);
    }
    let levels: Vec<i64> = keys.levels.0.iter().map(|weight| weight.value.0).collect();
    match <[i64; 3]>::try_from(levels) {
        Ok(levels) if levels.is_sorted() => challenge = challenge.levels(levels),
        _ => {
            let expected = "expected three weights, as [10, 20, 30], none below the one before";
            reader.report(Finding::error(
                &keys.levels.span,
                "no weights of three levels",
                expected,
            ));
            return None;
        }
    }
    for weight in &keys.weights.0 {
        let add = weight.add.value.0;
        challenge = match &weight.when {
            None => challenge.weight(add),
            Some(when) => {
                let condition = conditions.compile(when, FactStage::Request, reader)?;
                challenge.weight_when(condition, add)
            }
        };
    }
    if let Some(rate) = &keys.rate {
        if rate.is_bytes {
            let expected = "expected requests in a time, as \"200/s\"";
            reader.report(Finding::error(&rate.span, "a rate of bytes", expected));
            return None;
        }
        challenge = challenge.rate(rate.units, rate.period);
    }
    if let Some(errors) = &keys.errors {
        challenge = challenge.errors(u8::try_from(errors.0).unwrap_or(100));
    }
    if let Some(load) = &keys.load {
        challenge = challenge.load(u32::try_from(load.0).unwrap_or(u32::MAX));
    }
    if let Some(except) = &keys.except {
        let condition = conditions.compile(except, FactStage::Request, reader)?;
        challenge = challenge.except(condition);
    }
    if let Some(file) = &keys.key_file {
        challenge = challenge.key(key(file, reader)?);
    }
    let bits = |bits: u64| u8::try_from(bits).unwrap_or(u8::MAX);
    if keys.difficulty.0 > keys.max_difficulty.0 {
        reader.report(
            Finding::error(
                &keys.difficulty.span,
                "`difficulty` is above `max_difficulty`",
                "expected no more bits than those",
            )
            .related(&keys.max_difficulty.span, "the most bits"),
        );
        return None;
    }
    Some(
        challenge
            .allow(keys.allow.0.iter().map(|network| network.value.0))
            .bots(*keys.bots)
            .lifetime(keys.lifetime.0)
            .difficulty(bits(keys.difficulty.0), bits(keys.max_difficulty.0)),
    )
}

fn key(file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) -> Option<ChallengeKey> {
    let secret = tls::file(file, reader)?;
    let secret = secret.trim_ascii();
    if secret.len() < 32 {
        reader.report(
            Finding::error(
                &file.span,
                format!("the secret has {} bytes", secret.len()),
                "expected at least 32 in this file",
            )
            .help("make one by: openssl rand -base64 48"),
        );
        return None;
    }
    tls::warn_of_readers(file, reader);
    Some(ChallengeKey::new(secret))
}
