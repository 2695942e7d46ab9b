//! Purging by numbered rules that apply to objects when they are next used.
//!
//! A purge does not iterate over objects. It adds a rule with the next number; every object has the
//! number that was current when its response was requested, and is checked once against the rules
//! with greater numbers. So purging a site of a million objects costs as much as purging one
//! object, and objects that are being filled do not escape.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::key::{KeyHash, StoreKey};

/// Which objects a purge removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// The site whose objects are purged; `None` for all sites.
    pub site: Option<Box<str>>,
    /// Which objects of the site.
    pub selector: PurgeSelector,
    /// Whether objects only become stale, so that they are validated before their next use and may
    /// still be sent if that fails (a soft purge). Otherwise they are removed.
    pub soft: bool,
}

/// Which objects are purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeSelector {
    /// All objects.
    All,
    /// The objects with this primary key, in all variants.
    Key(Box<[u8]>),
    /// The objects whose primary key begins with this.
    Prefix(Box<[u8]>),
    /// The objects with this tag (surrogate key).
    Tag(Box<[u8]>),
}

/// As text, for logs: `https://example.com/a`, `https://example.com/img/*`, `tag news` or `all`.
impl fmt::Display for PurgeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = |f: &mut fmt::Formatter<'_>, key: &[u8]| {
            let (scheme, rest) = match key.split_first() {
                Some((b's', rest)) => ("https://", rest),
                Some((b'h', rest)) => ("http://", rest),
                _ => ("", key),
            };
            write!(f, "{scheme}{}", rest.trim_ascii().escape_ascii())
        };
        match self {
            Self::All => f.write_str("all"),
            Self::Key(key) => uri(f, key),
            Self::Prefix(prefix) => {
                uri(f, prefix)?;
                f.write_str("*")
            }
            Self::Tag(tag) => write!(f, "tag {}", tag.escape_ascii()),
        }
    }
}

/// The number of objects that purges apply to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCount {
    /// The objects that were found.
    pub objects: u64,
    /// Whether there are no others.
    pub is_complete: bool,
}

/// The effect of the purges on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PurgeVerdict {
    Untouched,
    Stale,
    Gone,
}

/// The properties of an object that decide whether a purge applies to it.
#[derive(Clone, Copy)]
pub(crate) struct PurgeSubject<'a> {
    pub(crate) key: &'a StoreKey,
    pub(crate) tags: &'a [Box<[u8]>],
    /// The number of the last purge when it was requested or last validated.
    pub(crate) filled_at: u64,
}

/// If there are more rules, the older half is replaced by a wider one: it makes objects stale or
/// removes them unnecessarily, but misses none.
const MAX_RULES: usize = 65_536;

/// A filter for objects that no rule can apply to, by the fingerprints of the rules.
#[derive(Debug)]
pub(crate) struct PurgeFilter {
    fingerprints: HashSet<u32>,
    all: bool,
}

impl PurgeFilter {
    pub(crate) fn may_apply_to(&self, fingerprints: &[u32]) -> bool {
        self.all
            || fingerprints
                .iter()
                .any(|mark| self.fingerprints.contains(mark))
    }
}

/// The fingerprints of all rules, other than by prefix, that could apply to an object.
pub(crate) fn fingerprints(key: &StoreKey, tags: &[Box<[u8]>]) -> Box<[u32]> {
    let tags = tags.iter().map(|tag| (TAG, &**tag));
    let exact = [(ALL, &b""[..]), (KEY, key.bytes())];
    let about_site = |(kind, bytes)| {
        let scopes = [None, Some(&**key.site())];
        scopes.map(|scope| fingerprint(rule_hash(scope, kind, bytes)))
    };
    exact.into_iter().chain(tags).flat_map(about_site).collect()
}

fn fingerprint(rule: KeyHash) -> u32 {
    (rule.0 >> 32) as u32
}

/// All rules that may still apply to objects.
#[derive(Debug)]
pub(crate) struct Purges {
    current: AtomicU64,
    rules: RwLock<PurgeRules>,
}

#[derive(Debug, Default)]
struct PurgeRules {
    /// The rules for all objects, keys and tags.
    exact: HashMap<KeyHash, PurgeNumbers>,
    prefixes: Vec<PrefixRule>,
}

/// The numbers of the last purges by one rule; zero for none.
#[derive(Clone, Copy, Debug, Default)]
struct PurgeNumbers {
    hard: u64,
    soft: u64,
}

#[derive(Debug)]
struct PrefixRule {
    site: Option<Box<str>>,
    prefix: Box<[u8]>,
    times: PurgeNumbers,
}

impl Purges {
    /// No rules, with `current` as the number of the last purge.
    pub(crate) fn new(current: u64) -> Self {
        Self {
            current: AtomicU64::new(current),
            rules: RwLock::default(),
        }
    }

    /// The number of the last purge.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Adds a purge, and returns its number. It takes effect immediately.
    pub(crate) fn add(&self, purge: &PurgeRequest) -> u64 {
        let mut rules = self.write();
        let number = self.current().saturating_add(1);
        rules.add(purge, number);
        rules.limit();
        self.current.store(number, Ordering::Release);
        number
    }

    /// The effect of the purges since `subject.filled_at`, and the number of the last purge that
    /// was considered.
    pub(crate) fn verdict(&self, subject: PurgeSubject<'_>) -> (PurgeVerdict, u64) {
        let rules = self.read();
        let current = self.current();
        if current <= subject.filled_at {
            return (PurgeVerdict::Untouched, current);
        }
        (rules.verdict(subject), current)
    }

    /// Makes the numbers of later purges greater than `number`.
    pub(crate) fn begin_at(&self, number: u64) {
        self.current.store(number, Ordering::Release);
    }

    /// Adds a purge that was made before a restart.
    pub(crate) fn restore(&self, purge: &PurgeRequest, number: u64) {
        let mut rules = self.write();
        rules.add(purge, number);
        rules.limit();
    }

    /// Removes the rules up to `number`, after they were applied to every object.
    pub(crate) fn retire(&self, number: u64) {
        let mut rules = self.write();
        rules.exact.retain(|_, times| times.last() > number);
        rules.prefixes.retain(|rule| rule.times.last() > number);
    }

    /// A filter for the objects to which the current rules may apply.
    pub(crate) fn filter(&self) -> PurgeFilter {
        let rules = self.read();
        PurgeFilter {
            fingerprints: rules.exact.keys().map(|hash| fingerprint(*hash)).collect(),
            all: !rules.prefixes.is_empty(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, PurgeRules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, PurgeRules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PurgeRules {
    fn add(&mut self, purge: &PurgeRequest, number: u64) {
        let site = purge.site.as_deref();
        let times = match &purge.selector {
            PurgeSelector::All => self.exact.entry(rule_hash(site, ALL, b"")).or_default(),
            PurgeSelector::Key(key) => self.exact.entry(rule_hash(site, KEY, key)).or_default(),
            PurgeSelector::Tag(tag) => self.exact.entry(rule_hash(site, TAG, tag)).or_default(),
            PurgeSelector::Prefix(prefix) => {
                let same = |rule: &PrefixRule| rule.site == purge.site && rule.prefix == *prefix;
                let at = self.prefixes.iter().position(same).unwrap_or_else(|| {
                    self.prefixes.push(PrefixRule {
                        site: purge.site.clone(),
                        prefix: prefix.clone(),
                        times: PurgeNumbers::default(),
                    });
                    self.prefixes.len().saturating_sub(1)
                });
                match self.prefixes.get_mut(at) {
                    Some(rule) => &mut rule.times,
                    None => return,
                }
            }
        };
        if purge.soft {
            times.soft = number;
        } else {
            times.hard = number;
        }
    }

    fn verdict(&self, subject: PurgeSubject<'_>) -> PurgeVerdict {
        let site = subject.key.site();
        let mut effect = PurgeVerdict::Untouched;
        let mut apply = |times: &PurgeNumbers| {
            if times.hard > subject.filled_at {
                effect = PurgeVerdict::Gone;
            } else if times.soft > subject.filled_at {
                effect = effect.max(PurgeVerdict::Stale);
            }
        };
        // A look-up for each tag of the object, however many purges there were; only prefixes are compared one by one.
        for scope in [None, Some(&**site)] {
            let tags = subject.tags.iter().map(|tag| (TAG, &**tag));
            let exact = [(ALL, &b""[..]), (KEY, subject.key.bytes())];
            for (kind, bytes) in exact.into_iter().chain(tags) {
                if let Some(times) = self.exact.get(&rule_hash(scope, kind, bytes)) {
                    apply(times);
                }
            }
        }
        for rule in &self.prefixes {
            let of_site = rule.site.as_ref().is_none_or(|name| **name == **site);
            if of_site && subject.key.bytes().starts_with(&rule.prefix) {
                apply(&rule.times);
            }
        }
        effect
    }

    /// If there are too many rules, replaces the older half by one that applies to all objects.
    fn limit(&mut self) {
        if self.exact.len().saturating_add(self.prefixes.len()) <= MAX_RULES {
            return;
        }
        let everything = rule_hash(None, ALL, b"");
        let mut all = self.exact.remove(&everything).unwrap_or_default();
        let times = self
            .exact
            .values()
            .chain(self.prefixes.iter().map(|rule| &rule.times));
        let mut numbers: Vec<u64> = times.map(PurgeNumbers::last).collect();
        numbers.sort_unstable();
        let limit = numbers.get(numbers.len() / 2).copied().unwrap_or_default();
        let mut keep = |times: &PurgeNumbers| {
            let stays = times.last() > limit;
            if !stays {
                all.hard = all.hard.max(times.hard);
                all.soft = all.soft.max(times.soft);
            }
            stays
        };
        self.exact.retain(|_, times| keep(times));
        self.prefixes.retain(|rule| keep(&rule.times));
        self.exact.insert(everything, all);
    }
}

impl PurgeNumbers {
    fn last(&self) -> u64 {
        self.hard.max(self.soft)
    }
}

const ALL: &[u8] = b"all";
const KEY: &[u8] = b"key";
const TAG: &[u8] = b"tag";

fn rule_hash(site: Option<&str>, kind: &[u8], bytes: &[u8]) -> KeyHash {
    match site {
        Some(site) => KeyHash::of(&[kind, bytes, site.as_bytes()]),
        None => KeyHash::of(&[kind, bytes]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key(site: &str, bytes: &str) -> StoreKey {
        StoreKey::new(&Arc::from(site), bytes.as_bytes())
    }

    fn purge(site: Option<&str>, selector: PurgeSelector, soft: bool) -> PurgeRequest {
        let site = site.map(Box::from);
        PurgeRequest {
            site,
            selector,
            soft,
        }
    }

    fn verdict(purges: &Purges, key: &StoreKey, tags: &[&str], filled_at: u64) -> PurgeVerdict {
        let tags: Vec<Box<[u8]>> = tags.iter().map(|tag| tag.as_bytes().into()).collect();
        let subject = PurgeSubject {
            key,
            tags: &tags,
            filled_at,
        };
        purges.verdict(subject).0
    }

    #[test]
    fn a_purge_applies_to_matching_objects_that_were_requested_before_it() {
        let purges = Purges::new(0);
        let (one, other) = (key("a", "https://a/x/1"), key("a", "https://a/y/1"));
        purges.add(&purge(
            None,
            PurgeSelector::Prefix((*b"https://a/x").into()),
            false,
        ));
        assert_eq!(verdict(&purges, &one, &[], 0), PurgeVerdict::Gone);
        assert_eq!(verdict(&purges, &one, &[], 1), PurgeVerdict::Untouched);
        assert_eq!(verdict(&purges, &other, &[], 0), PurgeVerdict::Untouched);
        purges.add(&purge(
            Some("a"),
            PurgeSelector::Tag((*b"news").into()),
            true,
        ));
        assert_eq!(
            verdict(&purges, &other, &["old", "news"], 1),
            PurgeVerdict::Stale
        );
        assert_eq!(
            verdict(&purges, &other, &["old"], 1),
            PurgeVerdict::Untouched
        );
        assert_eq!(
            verdict(&purges, &key("b", "k"), &["news"], 1),
            PurgeVerdict::Untouched
        );
        purges.add(&purge(Some("a"), PurgeSelector::All, false));
        assert_eq!(verdict(&purges, &other, &["news"], 1), PurgeVerdict::Gone);
        assert_eq!(
            verdict(&purges, &key("b", "k"), &[], 0),
            PurgeVerdict::Untouched
        );
        purges.add(&purge(None, PurgeSelector::Key((*b"k").into()), true));
        assert_eq!(
            verdict(&purges, &key("b", "k"), &[], 3),
            PurgeVerdict::Stale
        );
    }

    #[test]
    fn a_hard_purge_is_not_softened_by_a_later_soft_one() {
        let purges = Purges::new(0);
        purges.add(&purge(None, PurgeSelector::All, false));
        purges.add(&purge(None, PurgeSelector::All, true));
        assert_eq!(verdict(&purges, &key("a", "k"), &[], 0), PurgeVerdict::Gone);
        assert_eq!(
            verdict(&purges, &key("a", "k"), &[], 1),
            PurgeVerdict::Stale
        );
    }

    #[test]
    fn too_many_rules_are_replaced_by_a_wider_one() {
        let purges = Purges::new(0);
        let tag = |number: usize| format!("tag-{number}");
        for number in 0..MAX_RULES + 10 {
            let selector = PurgeSelector::Tag(tag(number).as_bytes().into());
            purges.add(&purge(None, selector, number % 2 == 0));
        }
        let rules = purges.read().exact.len();
        assert!(rules <= MAX_RULES);
        for number in [0, 1, 1000, MAX_RULES] {
            let effect = verdict(&purges, &key("a", "k"), &[&tag(number)], number as u64);
            assert!(effect >= PurgeVerdict::Stale);
        }
        let last = purges.current();
        assert_eq!(
            verdict(&purges, &key("a", "k"), &["tag-0"], last),
            PurgeVerdict::Untouched
        );
    }
}
