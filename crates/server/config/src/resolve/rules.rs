//! Rules of the server, of a site and of a location.

use apus_conditions::FactStage;
use apus_http::StatusCode;
use apus_sites::{Rule, RuleAction, Rules};

use super::conditions::Conditions;
use super::responses::{field_changes, return_handler};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::rules::{self as keys, RuleStage};
use crate::source::{Setting, SourceSpan};
use crate::value::{List, Map, Text};

/// What the rules of a place may use.
#[derive(Clone, Copy)]
pub(super) struct RulePlace<'a> {
    pub(super) conditions: &'a Conditions,
    /// The chains that they may jump to.
    pub(super) chains: &'a Map<Text, List<keys::Rule>>,
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
        let changes = field_changes(keys.request_headers.as_ref(), reader);
        actions.extend(changes.into_iter().map(RuleAction::RequestField));
        let changes = field_changes(keys.headers.as_ref(), reader);
        actions.extend(changes.into_iter().map(RuleAction::ResponseField));
        if !*keys.log {
            actions.push(RuleAction::NoLog);
        }
        if let Some(target) = &keys.rewrite {
            match RuleAction::rewrite(&target.0) {
                Ok(action) => actions.push(action),
                Err(error) => {
                    reader.report(Finding::error(&target.span, error.to_string(), "here"));
                    return None;
                }
            }
        }
        if let Some(chain) = &keys.jump {
            self.check_chain(chain, reader)?;
            actions.push(RuleAction::Jump(chain.0.as_str().into()));
        }
        if let Some(time) = &keys.ban {
            actions.push(RuleAction::Ban(time.value.0));
            if *keys.on == RuleStage::Request && keys.deny.is_none() && keys.r#return.is_none() {
                actions.push(RuleAction::deny(StatusCode::FORBIDDEN));
            }
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
        if *keys.allow {
            actions.push(RuleAction::Allow);
        }
        if *keys.leave {
            actions.push(RuleAction::Leave);
        }
        check_combination(keys, reader)?;
        Some(actions)
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

/// Reports keys that exclude one another, and those that are not for responses.
fn check_combination(keys: &keys::Rule, reader: &mut ConfigReader<'_>) -> Option<()> {
    let ends: Vec<(&str, &SourceSpan)> = [
        ("deny", keys.deny.as_ref().map(|key| &key.span)),
        ("return", keys.r#return.as_ref().map(|key| &key.span)),
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
    if *keys.on == RuleStage::Response {
        let for_requests = [
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
