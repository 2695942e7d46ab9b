//! Bots that prove who they are, and by what.

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
    let resolver = raw.bots_resolver.as_ref();
    let mut bots = Bots::new().name_servers(resolver.map(|server| server.0));
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
    let has_hosts = raw.bots.0.iter().any(|bot| !bot.hosts.0.is_empty());
    if let Some(server) = resolver.filter(|_| !has_hosts) {
        let (message, help) = (
            "no bot has `hosts`",
            "this is for `[[global.bots]]` with `hosts`",
        );
        reader.report(Finding::warning(&server.span, message, help));
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
    let mut bot = KnownBot::new(&raw.name.0);
    for host in &raw.hosts.0 {
        bot = bot.host(host.value.0.clone());
    }
    if let Some(part) = &raw.user_agent {
        if raw.hosts.0.is_empty() {
            let expected = "expected `hosts`, the names of the addresses that are looked up";
            reader.report(Finding::error(
                &part.span,
                "`user_agent` without `hosts`",
                expected,
            ));
            return None;
        }
        bot = bot.user_agent(&part.0);
    }
    if let (Some(tls), None) = (&raw.tls, &raw.directory)
        && !reader.has_wrong(&raw.span, &["directory"])
    {
        let expected = "nothing is fetched";
        reader.report(Finding::error(
            &tls.span,
            "`tls` without `directory`",
            expected,
        ));
        return None;
    }
    let (message, expected) = match (&raw.directory, &raw.keys_file) {
        (Some(url), None) => {
            return Some(bot.remote_key_set(jwt::remote(
                (url, raw.tls.as_ref()),
                origins,
                reader,
            )?));
        }
        (None, Some(file)) => return Some(bot.key_set(keys(file, reader)?)),
        (None, None) if !raw.hosts.0.is_empty() => return Some(bot),
        _ if reader.has_wrong(&raw.span, &["directory", "keys_file", "hosts"]) => return None,
        (None, None) => (
            "nothing proves that a request is from this bot",
            "expected `directory`, `keys_file` or `hosts`",
        ),
        (Some(_), Some(_)) => (
            "the keys of a bot come from one place",
            "expected either `directory` or `keys_file`",
        ),
    };
    reader.report(Finding::error(&raw.span, message, expected));
    None
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
