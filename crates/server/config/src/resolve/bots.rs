//! Bots that prove who they are, and where their keys are.

use apus_layers::auth::KeySet;
use apus_layers::{Bots, KnownBot};

use super::upstream::SiteUpstreams;
use super::{jwt, tls};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::plan::{BotPlan, UpstreamPlan};
use crate::raw;
use crate::source::Setting;
use crate::string_type::origin::GroupName;
use crate::value::FilePath;

/// The plan of bots, and the groups of origins that have their keys.
pub(super) fn plan(
    raw: &raw::Global,
    reader: &mut ConfigReader<'_>,
) -> (BotPlan, Vec<UpstreamPlan>) {
    let origins = SiteUpstreams::of_server("bots");
    let mut bots = Bots::new();
    let mut known: Vec<&Setting<GroupName>> = Vec::new();
    for raw in &raw.bots.0 {
        let name = &raw.name;
        if let Some(other) = known.iter().find(|other| other.0 == name.0) {
            let message = format!("two bots are called `{}`", shown(&name.0));
            let expected = "expected a name that no other bot has";
            reader.report(
                Finding::error(&name.span, message, expected).related(&other.span, "the other one"),
            );
            continue;
        }
        known.push(name);
        if let Some(bot) = bot(raw, &origins, reader) {
            bots = bots.bot(bot);
        }
    }
    let plan = BotPlan {
        bots,
        origin_handles: origins.origin_handles(),
        key_sets: origins.key_sets(),
    };
    (plan, origins.into_plans())
}

fn bot(
    raw: &Setting<raw::Bot>,
    origins: &SiteUpstreams<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<KnownBot> {
    let bot = KnownBot::new(&raw.name.0);
    match (&raw.directory, &raw.keys_file) {
        (Some(url), None) => Some(bot.remote_key_set(jwt::remote(url, origins, reader)?)),
        (None, Some(file)) => Some(bot.key_set(keys(file, reader)?)),
        _ if reader.has_wrong(&raw.span, &["directory", "keys_file"]) => None,
        _ => {
            let message = "the keys of a bot come from one place";
            let expected = "expected either `directory` or `keys_file`";
            reader.report(Finding::error(&raw.span, message, expected));
            None
        }
    }
}

/// The keys of a file.
fn keys(file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) -> Option<KeySet> {
    let text = tls::file(file, reader)?;
    let message = match KeySet::parse(&text) {
        Ok(keys) if keys.thumbprints().any(|id| id == Bots::TEST_KEY) => {
            "the key of RFC 9421, with which everybody can sign".to_owned()
        }
        Ok(keys) if keys.thumbprints().next().is_some() => return Some(keys),
        Ok(_) => "no key of the set is of Ed25519".to_owned(),
        Err(error) => error.to_string(),
    };
    reader.report(Finding::error(&file.span, message, "in this file"));
    None
}
