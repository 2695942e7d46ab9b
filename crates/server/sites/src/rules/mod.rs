//! Rules: what happens to a request or a response that a condition holds for.

mod action;
mod counters;
mod hold;
mod layer;
mod run;

use std::fmt;
use std::sync::Arc;

use apus_access::Bans;
use apus_conditions::Condition;

pub use action::{InvalidRule, RuleAction};
pub use counters::{RuleCount, RuleCounters};
pub(crate) use hold::Hold;
pub(crate) use run::{ChangesByRules, RuleResult, RuleScope, WorkerRules};

/// Rules in their order, and chains of rules that they may jump to.
///
/// A rule whose condition holds does what its actions say, and the next rule follows, until one of them allows the request,
/// responds, closes the connection, or leaves its chain.
#[derive(Clone)]
pub struct Rules(Arc<RuleSet>);

struct RuleSet {
    /// Where they stand: `global`, a site, or a site and a location.
    place: Arc<str>,
    rules: Vec<Rule>,
    chains: Vec<(Arc<str>, Vec<Rule>)>,
    counters: RuleCounters,
    /// Where a layer of an application bans clients.
    bans: Option<Arc<Bans>>,
}

/// A condition, and what happens if it holds.
#[derive(Clone, Debug)]
pub struct Rule {
    name: Arc<str>,
    condition: Option<Condition>,
    actions: Vec<RuleAction>,
    is_for_responses: bool,
    is_dry_run: bool,
}

impl Rules {
    /// No rules; the place is for `apus status` and `apus explain`.
    pub fn new(place: &str) -> Self {
        Self(Arc::new(RuleSet {
            place: place.into(),
            rules: Vec::new(),
            chains: Vec::new(),
            counters: RuleCounters::default(),
            bans: None,
        }))
    }

    /// Adds a rule behind the others.
    #[must_use]
    pub fn rule(self, rule: Rule) -> Self {
        self.changed(|set| set.rules.push(rule))
    }

    /// Adds a chain, which rules jump to by its name.
    #[must_use]
    pub fn chain(self, name: &str, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.changed(|set| set.chains.push((name.into(), rules.into_iter().collect())))
    }

    /// Counts with these counters, which other rules of the same names have, too: those of a configuration before, say.
    #[must_use]
    pub fn counters(self, counters: &RuleCounters) -> Self {
        let counters = counters.clone();
        self.changed(|set| set.counters = counters)
    }

    /// Bans clients here, where the rules are a layer: banned clients get 403 before any rule is asked. Sites have bans of their own.
    #[must_use]
    pub fn bans(self, bans: &Arc<Bans>) -> Self {
        let bans = Arc::clone(bans);
        self.changed(|set| set.bans = Some(bans))
    }

    fn changed(self, change: impl FnOnce(&mut RuleSet)) -> Self {
        let mut set = Arc::try_unwrap(self.0).unwrap_or_else(|shared| RuleSet {
            place: shared.place.clone(),
            rules: shared.rules.clone(),
            chains: shared.chains.clone(),
            counters: shared.counters.clone(),
            bans: shared.bans.clone(),
        });
        change(&mut set);
        Self(Arc::new(set))
    }

    /// Where they stand.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// Whether a rule is for responses.
    pub(crate) fn are_for_responses(&self) -> bool {
        self.0.all().any(|rule| rule.is_for_responses)
    }

    /// Whether a rule asks for a challenge.
    pub fn challenge_clients(&self) -> bool {
        let mut actions = self.0.all().flat_map(|rule| &rule.actions);
        actions.any(|action| matches!(action, RuleAction::Challenge))
    }

    /// The names of all rules, those of chains behind the others, and how often each applied.
    pub fn counts(&self) -> Vec<RuleCount> {
        let rules = self.0.all();
        rules
            .map(|rule| self.0.counters.count(&self.0.place, rule))
            .collect()
    }
}

impl RuleSet {
    fn all(&self) -> impl Iterator<Item = &Rule> {
        let chains = self.chains.iter().flat_map(|(_, rules)| rules);
        self.rules.iter().chain(chains)
    }
}

impl Rule {
    /// A rule that always applies and does nothing yet. Its name is for `apus status` and `apus explain`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            condition: None,
            actions: Vec::new(),
            is_for_responses: false,
            is_dry_run: false,
        }
    }

    /// Applies the rule only where a condition holds.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// Adds an action behind the others.
    #[must_use]
    pub fn then(mut self, action: RuleAction) -> Self {
        self.actions.push(action);
        self
    }

    /// Applies the rule to responses.
    #[must_use]
    pub fn on_response(mut self) -> Self {
        self.is_for_responses = true;
        self
    }

    /// Counts and logs where the rule would apply, and does nothing.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("place", &self.0.place)
            .field("rules", &self.0.rules)
            .field("chains", &self.0.chains)
            .finish_non_exhaustive()
    }
}
