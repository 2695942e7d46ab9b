//! The metrics of rules, limits, challenges, bans and glitches.

use apus_access::LimitCounts;
use apus_config::ServerPlan;
use apus_http::Glitch;
use apus_layers::BotCounts;
use apus_metrics::{LabelValue, MetricDefinition, MetricSamples};
use apus_sites::{ChallengeStates, Glitches, RuleCount};

static RULES: MetricDefinition = MetricDefinition::counter(
    "apus_rule_matches",
    "How often the condition of a rule held; `place` is where the rule stands.",
)
.labels(&["place", "rule", "dry_run"]);
static LIMITS: MetricDefinition = MetricDefinition::counter(
    "apus_limit_decisions",
    "What limits decided about requests; `would_delay` and `would_refuse` in a dry run.",
)
.labels(&["site", "location", "limit", "decision"]);
static CHALLENGES: MetricDefinition = MetricDefinition::counter(
    "apus_challenges",
    "Challenges of browsers by level, and what came of them.",
)
.labels(&["site", "level", "result"]);
static BOTS: MetricDefinition = MetricDefinition::counter(
    "apus_bot_requests",
    "Requests that say they are from a bot: `verified`, `false`, or `unproven` because that could not be found out in time.",
)
.labels(&["bot", "result"]);
static BOT_FETCHES: MetricDefinition = MetricDefinition::counter(
    "apus_bot_key_fetches",
    "How often the keys of a bot were fetched, and could not be.",
)
.labels(&["bot", "result"]);
static BANS: MetricDefinition =
    MetricDefinition::gauge("apus_bans", "Bans of clients, without those of lists.");
static LISTED: MetricDefinition =
    MetricDefinition::gauge("apus_ban_list_networks", "Networks of the lists of bans.");
static BANNED_REQUESTS: MetricDefinition = MetricDefinition::counter(
    "apus_banned_requests",
    "Requests of banned clients that came over connections of others, such as proxies.",
);
static GLITCHES: MetricDefinition =
    MetricDefinition::counter("apus_glitches", "What clients did wrong, by kind.")
        .labels(&["kind"]);
static GLITCH_CLIENTS: MetricDefinition = MetricDefinition::gauge(
    "apus_glitch_clients",
    "Clients whose glitches are counted now.",
);

pub(super) static POLICY_METRICS: &[&MetricDefinition] = &[
    &RULES,
    &LIMITS,
    &CHALLENGES,
    &BOTS,
    &BOT_FETCHES,
    &BANS,
    &LISTED,
    &BANNED_REQUESTS,
    &GLITCHES,
    &GLITCH_CLIENTS,
];

/// Adds how often rules applied.
pub(crate) fn add_rules(counts: &[RuleCount], samples: &mut MetricSamples) {
    let rules = samples.of(&RULES);
    for count in counts {
        let dry_run = if count.is_dry_run { "true" } else { "false" };
        let labels = [(&count.place).into(), (&count.rule).into(), dry_run.into()];
        rules.add(labels, count.applied);
    }
}

/// Adds the decisions of limits.
pub(crate) fn add_limits(config: &ServerPlan, samples: &mut MetricSamples) {
    let limits = samples.of(&LIMITS);
    for (site, location, limit) in config.limits() {
        let place = [site, location].map(|text| LabelValue::from(text.unwrap_or("").to_owned()));
        let name = LabelValue::from(limit.name().to_owned());
        let LimitCounts {
            allowed,
            delayed,
            refused,
            would_delay,
            would_refuse,
        } = limit.counts();
        for (decision, count) in [
            ("allow", allowed.saturating_sub(delayed)),
            ("delay", delayed),
            ("refuse", refused),
            ("would_delay", would_delay),
            ("would_refuse", would_refuse),
        ] {
            let [site, location] = place.clone();
            limits.add([site, location, name.clone(), decision.into()], count);
        }
    }
}

/// Adds the challenges of sites.
pub(crate) fn add_challenges(
    config: &ServerPlan,
    states: &ChallengeStates,
    samples: &mut MetricSamples,
) {
    let challenges = samples.of(&CHALLENGES);
    for site in config.sites.iter().filter(|site| site.challenge.is_some()) {
        let counts = states.of(&site.name).counts();
        let name = LabelValue::from(site.name.clone());
        let levels = ["1", "2", "3"]
            .into_iter()
            .zip(counts.sent)
            .zip(counts.passed);
        for ((level, sent), passed) in levels {
            challenges.add([name.clone(), level.into(), "sent".into()], sent);
            challenges.add([name.clone(), level.into(), "passed".into()], passed);
        }
        // They are not counted by level.
        challenges.add([name.clone(), "".into(), "failed".into()], counts.failed);
        challenges.add([name, "".into(), "refused".into()], counts.refused);
    }
}

/// Adds what was found out about requests that say they are from bots.
pub(crate) fn add_bots(bots: &[BotCounts], samples: &mut MetricSamples) {
    for bot in bots {
        let name = || LabelValue::from(&bot.name);
        let requests = samples.of(&BOTS);
        for (result, count) in [
            ("verified", bot.verified),
            ("false", bot.refuted),
            ("unproven", bot.unproven),
        ] {
            requests.add([name(), result.into()], count);
        }
        if let Some(fetched) = bot.fetched {
            let done = fetched.fetches.saturating_sub(fetched.failures);
            let fetches = samples.of(&BOT_FETCHES);
            fetches.add([name(), "fetched".into()], done);
            fetches.add([name(), "failed".into()], fetched.failures);
        }
    }
}

/// Adds how many bans there are, how many networks lists have, and how many requests were refused for them.
pub(crate) fn add_bans(bans: usize, listed: usize, refused: u64, samples: &mut MetricSamples) {
    samples.add(&BANS, bans);
    samples.add(&LISTED, listed);
    samples.add(&BANNED_REQUESTS, refused);
}

/// Adds what clients did wrong.
pub(crate) fn add_glitches(glitches: &Glitches, samples: &mut MetricSamples) {
    let kinds = samples.of(&GLITCHES);
    for glitch in Glitch::ALL {
        kinds.add([glitch.name().into()], glitches.counted(glitch));
    }
    samples.add(&GLITCH_CLIENTS, glitches.clients());
}
