//! Rules of the server, of a site and of a location.

use apus_conditions::FactStage;
use apus_http::StatusCode;
use apus_sites::{InvalidRule, Rule, RuleAction, Rules};

use super::conditions::Conditions;
use super::limits::ResolvedLimit;
use super::responses::{field_changes, return_handler};
use super::templates::check_text;
use super::upstream_choices::RuleChoices;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::Location;
use crate::raw::rules::{self as keys, RuleStage};
use crate::source::{Setting, SourceSpan};
use crate::value::{List, Map, Text};

/// The keys of a rule that do something.
const ACTIONS: [&str; 19] = [
    "tag",
    "set",
    "request_headers",
    "headers",
    "log",
    "cache",
    "rewrite",
    "location",
    "upstream",
    "limit",
    "jump",
    "ban",
    "delay",
    "challenge",
    "deny",
    "return",
    "close",
    "allow",
    "leave",
];

/// What the rules of a place may use.
pub(super) struct RulePlace<'a> {
    pub(super) conditions: &'a Conditions,
    /// The chains that they may jump to.
    pub(super) chains: &'a Map<Text, List<keys::Rule>>,
    /// The locations of their site, which they may name; rules of the whole server have none.
    pub(super) locations: Option<&'a [Setting<Location>]>,
    /// What they choose; rules of the whole server choose no group.
    pub(super) choices: Option<&'a RuleChoices<'a>>,
    /// The limits that they may name.
    pub(super) limits: Vec<ResolvedLimit>,
}

impl RulePlace<'_> {
    /// The rules of a place; `None` if it has none.
    pub(super) fn resolve(
        &self,
        name: &str,
        rules: &List<keys::Rule>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Rules> {
        if rules.0.is_empty() {
            return None;
        }
        let made = self.rules(&rules.0, None, reader);
        let mut made = made.into_iter().fold(Rules::new(name), Rules::rule);
        for (chain, rules) in &self.chains.0 {
            let rules = self.rules(&rules.0, Some(&chain.0), reader);
            made = made.chain(&chain.0, rules);
        }
        Some(made)
    }

    fn rules(
        &self,
        rules: &[Setting<keys::Rule>],
        chain: Option<&str>,
        reader: &mut ConfigReader<'_>,
    ) -> Vec<Rule> {
        let mut made = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let number = index.saturating_add(1);
            let name = match (&rule.name, chain) {
                (Some(name), _) => name.0.clone(),
                (None, Some(chain)) => format!("{chain} {number}"),
                (None, None) => format!("rule {number}"),
            };
            // Only rules for requests jump, so that no chain is asked about a response.
            if chain.is_some() && *rule.on == RuleStage::Response {
                reader.report(Finding::error(
                    &rule.on.span,
                    "a rule of a chain is for requests",
                    "chains are asked with the head of the request",
                ));
                continue;
            }
            if let Some(rule) = self.rule(&name, rule, reader) {
                made.push(rule);
            }
        }
        made
    }

    fn rule(
        &self,
        name: &str,
        keys: &Setting<keys::Rule>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Rule> {
        let (mut rule, stage) = match *keys.on {
            RuleStage::Request => (Rule::new(name), FactStage::Request),
            RuleStage::Response => (Rule::new(name).on_response(), FactStage::Response),
        };
        if let Some(when) = &keys.when {
            rule = rule.when(self.conditions.compile(when, stage, reader)?);
        }
        if *keys.dry_run {
            rule = rule.dry_run();
        }
        let actions = self.actions(keys, reader)?;
        if actions.is_empty() {
            if reader.has_wrong(&keys.span, &ACTIONS) {
                return None;
            }
            reader.report(Finding::error(
                &keys.span,
                "the rule does nothing",
                "expected an action, as `deny = 403` or `tag = \"name\"`",
            ));
            return None;
        }
        Some(actions.into_iter().fold(rule, Rule::then))
    }

    /// The actions, in the order of the keys.
    fn actions(&self, keys: &keys::Rule, reader: &mut ConfigReader<'_>) -> Option<Vec<RuleAction>> {
        let mut actions: Vec<RuleAction> = Vec::new();
        for tag in &keys.tag.0 {
            actions.push(RuleAction::Tag(tag.0.as_str().into()));
        }
        for (name, value) in &keys.set.0 {
            check_text(&value.0, &value.span, reader);
            match RuleAction::set(&name.0, &value.0) {
                Ok(action) => actions.push(action),
                Err(error) => {
                    let place = match error {
                        InvalidRule::VariableName => &name.span,
                        _ => &value.span,
                    };
                    reader.report(Finding::error(place, error.to_string(), "here"));
                    return None;
                }
            }
        }
        let changes = field_changes(keys.request_headers.as_ref(), reader);
        actions.extend(changes.into_iter().map(RuleAction::RequestField));
        let changes = field_changes(keys.headers.as_ref(), reader);
        actions.extend(changes.into_iter().map(RuleAction::ResponseField));
        if !*keys.log {
            actions.push(RuleAction::NoLog);
        }
        if !*keys.cache {
            actions.push(RuleAction::NoCache);
        }
        if let Some(target) = &keys.rewrite {
            check_text(&target.0, &target.span, reader);
            match RuleAction::rewrite(&target.0) {
                Ok(action) => actions.push(action),
                Err(error) => {
                    reader.report(Finding::error(&target.span, error.to_string(), "here"));
                    return None;
                }
            }
        }
        if let Some(location) = &keys.location {
            actions.push(self.location(location, reader)?);
        }
        if let Some(upstream) = &keys.upstream {
            let Some(choices) = self.choices else {
                reader.report(Finding::error(
                    &upstream.span,
                    "`upstream` is for rules of a site or a location",
                    "this rule is for all sites",
                ));
                return None;
            };
            actions.push(RuleAction::Upstream(choices.group(&upstream.span)?.into()));
        }
        if let Some(limit) = &keys.limit {
            actions.push(self.limit(limit, reader)?);
        }
        if let Some(chain) = &keys.jump {
            self.check_chain(chain, reader)?;
            actions.push(RuleAction::Jump(chain.0.as_str().into()));
        }
        if let Some(time) = &keys.ban {
            actions.push(RuleAction::Ban(time.value.0));
            if *keys.on == RuleStage::Request
                && keys.deny.is_none()
                && keys.r#return.is_none()
                && !*keys.close
            {
                actions.push(RuleAction::deny(StatusCode::FORBIDDEN));
            }
        }
        if let Some(time) = &keys.delay {
            actions.push(RuleAction::Delay(time.value.0));
        }
        if *keys.challenge {
            actions.push(RuleAction::Challenge);
        }
        if let Some(status) = &keys.deny {
            if !(400..600).contains(&status.value.0.as_u16()) {
                reader.report(
                    Finding::error(&status.span, "no status of an error", "expected 400 to 599")
                        .help("`return` responds with any status"),
                );
                return None;
            }
            actions.push(RuleAction::deny(status.value.0));
        }
        if let Some(response) = &keys.r#return {
            actions.push(RuleAction::Respond(return_handler(response, reader)?));
        }
        if *keys.close {
            actions.push(RuleAction::Close);
        }
        if *keys.allow {
            actions.push(RuleAction::Allow);
        }
        if *keys.leave {
            actions.push(RuleAction::Leave);
        }
        check_combination(keys, reader)?;
        Some(actions)
    }

    /// The location that serves the request.
    fn location(&self, name: &Setting<Text>, reader: &mut ConfigReader<'_>) -> Option<RuleAction> {
        let Some(locations) = self.locations else {
            reader.report(Finding::error(
                &name.span,
                "`location` is for rules of a site or a location",
                "this rule is for all sites",
            ));
            return None;
        };
        let path = |location: &Setting<Location>| location.path.value.0.to_string();
        let Some(location) = locations.iter().find(|other| path(other) == *name.0) else {
            let known = locations.iter().map(path).collect();
            return report_unknown(("location", "path"), name, known, reader);
        };
        if let Some(alias) = &location.alias {
            reader.report(
                Finding::error(
                    &name.span,
                    "the location has an `alias`, so that it serves only paths below its own",
                    "expected a location without one",
                )
                .related(&alias.span, "here")
                .help("`rewrite` gives the request a path of that location"),
            );
            return None;
        }
        Some(RuleAction::Location(name.0.as_str().into()))
    }

    /// The limit that the request counts against.
    fn limit(&self, name: &Setting<Text>, reader: &mut ConfigReader<'_>) -> Option<RuleAction> {
        let mut limits = self.limits.iter();
        let Some(limit) = limits.find(|limit| limit.handle.name() == name.0) else {
            let known = self.limits.iter();
            let known = known.filter(|limit| limit.by_rules.is_some());
            let known = known.map(|limit| limit.handle.name().to_owned()).collect();
            return report_unknown(("limit", "name"), name, known, reader);
        };
        if limit.by_rules.is_none() {
            reader.report(
                Finding::error(
                    &name.span,
                    "the limit applies to all requests",
                    "expected one with `by_rules = true`",
                )
                .help("write by_rules = true in the limit"),
            );
            return None;
        }
        Some(RuleAction::Layer(limit.layer.clone()))
    }

    fn check_chain(&self, chain: &Setting<Text>, reader: &mut ConfigReader<'_>) -> Option<()> {
        let mut known = self.chains.0.iter().map(|(name, _)| name.0.as_str());
        if known.any(|known| known == chain.0.as_str()) {
            return Some(());
        }
        let known: Vec<_> = self
            .chains
            .0
            .iter()
            .map(|(name, _)| name.0.as_str())
            .collect();
        let expected = if known.is_empty() {
            "no chain is defined here".to_owned()
        } else {
            format!("expected one of {}", known.join(", "))
        };
        let message = format!("there is no chain `{}`", shown(&chain.0));
        reader.report(Finding::error(&chain.span, message, expected));
        None
    }
}

/// Reports a name that nothing here has.
fn report_unknown<T>(
    (what, key): (&str, &str),
    name: &Setting<Text>,
    known: Vec<String>,
    reader: &mut ConfigReader<'_>,
) -> Option<T> {
    let expected = if known.is_empty() {
        format!("expected the `{key}` of a {what}, and there is none")
    } else {
        format!("expected one of {}", known.join(", "))
    };
    let message = format!("there is no {what} `{}`", shown(&name.0));
    reader.report(Finding::error(&name.span, message, expected));
    None
}

/// Reports keys that exclude one another, and those that are not for responses.
fn check_combination(keys: &keys::Rule, reader: &mut ConfigReader<'_>) -> Option<()> {
    let ends: Vec<(&str, &SourceSpan)> = [
        ("deny", keys.deny.as_ref().map(|key| &key.span)),
        ("return", keys.r#return.as_ref().map(|key| &key.span)),
        ("close", keys.close.value.then_some(&keys.close.span)),
        ("allow", keys.allow.value.then_some(&keys.allow.span)),
        ("leave", keys.leave.value.then_some(&keys.leave.span)),
    ]
    .into_iter()
    .filter_map(|(name, span)| Some((name, span?)))
    .collect();
    let with_ban = keys.allow.value.then_some(&keys.allow.span);
    if let (Some(ban), Some(allow)) = (&keys.ban, with_ban) {
        reader.report(
            Finding::error(
                allow,
                "`ban` and `allow` exclude each other",
                "expected one of them",
            )
            .related(&ban.span, "the other one"),
        );
        return None;
    }
    if let [(one, first), (other, second), ..] = &*ends {
        reader.report(
            Finding::error(
                second,
                format!("`{one}` and `{other}` exclude each other"),
                "expected one of them",
            )
            .related(first, "the other one"),
        );
        return None;
    }
    check_ended(keys, reader)?;
    if *keys.on == RuleStage::Response {
        let for_requests = [
            ("cache", (!*keys.cache).then_some(&keys.cache.span)),
            ("location", keys.location.as_ref().map(|key| &key.span)),
            ("upstream", keys.upstream.as_ref().map(|key| &key.span)),
            ("limit", keys.limit.as_ref().map(|key| &key.span)),
            ("tag", keys.tag.given.then_some(&keys.tag.span)),
            (
                "request_headers",
                keys.request_headers.as_ref().map(|key| &key.span),
            ),
            ("rewrite", keys.rewrite.as_ref().map(|key| &key.span)),
            ("jump", keys.jump.as_ref().map(|key| &key.span)),
        ];
        for (name, span) in for_requests {
            if let Some(span) = span {
                reader.report(Finding::error(
                    span,
                    format!("`{name}` is for requests"),
                    "this rule is for responses",
                ));
                return None;
            }
        }
    }
    Some(())
}

/// Reports keys for requests that are served, beside one that ends the way of the request.
fn check_ended(keys: &keys::Rule, reader: &mut ConfigReader<'_>) -> Option<()> {
    let end = [
        ("deny", keys.deny.as_ref().map(|key| &key.span)),
        ("return", keys.r#return.as_ref().map(|key| &key.span)),
        ("close", keys.close.value.then_some(&keys.close.span)),
    ];
    let end = end.into_iter().find_map(|(name, span)| Some((name, span?)));
    let Some((end, span_of_end)) = end else {
        return Some(());
    };
    let closes = end == "close";
    let unused = [
        ("cache", (!*keys.cache).then_some(&keys.cache.span)),
        ("location", keys.location.as_ref().map(|key| &key.span)),
        ("upstream", keys.upstream.as_ref().map(|key| &key.span)),
        ("limit", keys.limit.as_ref().map(|key| &key.span)),
        (
            "headers",
            keys.headers
                .as_ref()
                .filter(|_| closes)
                .map(|key| &key.span),
        ),
    ];
    for (name, span) in unused {
        if let Some(span) = span {
            reader.report(
                Finding::error(
                    span,
                    format!("`{name}` has no effect"),
                    format!("`{end}` ends the way of the request"),
                )
                .related(span_of_end, "here"),
            );
            return None;
        }
    }
    Some(())
}
