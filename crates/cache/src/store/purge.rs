//! Purging: rules with a number each, met by objects when they are next looked at.
//!
//! A purge walks over nothing. It notes what it is about and takes the next number; every object
//! knows the number that was current when its fill was asked for, and is checked against the rules
//! behind it once. So purging a site of a million objects costs what purging one costs, and one
//! that is being filled meanwhile does not escape.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::key::{Hash, Key};

/// What a purge is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Only objects of the site with this name; of every site without one.
    pub site: Option<Box<str>>,
    /// Which of them.
    pub what: Purged,
    /// Whether objects only become stale, so that they are validated before they are used again,
    /// and may still serve while that fails (a soft purge). Else they are gone.
    pub soft: bool,
}

/// Which objects a purge is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purged {
    /// All of them.
    All,
    /// Those with this primary key, in all variants.
    Key(Box<[u8]>),
    /// Those whose primary key begins with this.
    Prefix(Box<[u8]>),
    /// Those with this tag (surrogate key).
    Tag(Box<[u8]>),
}

/// What the purges so far mean for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Untouched,
    Stale,
    Gone,
}

/// What of an object a purge looks at.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a Key,
    pub(crate) tags: &'a [Box<[u8]>],
    /// The number that was current when its fill, or its last validation, was asked for.
    pub(crate) filled_at: u64,
}

/// More rules than this are summed up in a wider one: what it costs is stale objects, never wrong
/// ones.
const MOST_RULES: usize = 65_536;

/// Tells objects that no rule can be about from those that one may be about, by their marks.
#[derive(Debug)]
pub(crate) struct Sieve {
    marks: HashSet<u32>,
    all: bool,
}

impl Sieve {
    pub(crate) fn catches(&self, marks: &[u32]) -> bool {
        self.all || marks.iter().any(|mark| self.marks.contains(mark))
    }
}

/// For each rule that there may be about an object, other than by prefix, a few bits of it.
pub(crate) fn marks(key: &Key, tags: &[Box<[u8]>]) -> Box<[u32]> {
    let tags = tags.iter().map(|tag| (TAG, &**tag));
    let exact = [(ALL, &b""[..]), (KEY, key.bytes())];
    let about_site = |(kind, bytes)| {
        let scopes = [None, Some(&**key.site())];
        scopes.map(|scope| mark(about(scope, kind, bytes)))
    };
    exact.into_iter().chain(tags).flat_map(about_site).collect()
}

fn mark(rule: Hash) -> u32 {
    (rule.0 >> 32) as u32
}

/// All rules that objects may still have to meet.
#[derive(Debug)]
pub(crate) struct Purges {
    current: AtomicU64,
    rules: RwLock<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    /// For all, keys and tags: by what they are about.
    exact: HashMap<Hash, Times>,
    prefixes: Vec<PrefixRule>,
}

/// The numbers of the last purges about one thing; zero for none.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    hard: u64,
    soft: u64,
}

#[derive(Debug)]
struct PrefixRule {
    site: Option<Box<str>>,
    prefix: Box<[u8]>,
    times: Times,
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

    /// Adds a purge, and returns its number. From now on it holds.
    pub(crate) fn add(&self, purge: &Purge) -> u64 {
        let mut rules = self.write();
        let number = self.current().saturating_add(1);
        rules.add(purge, number);
        rules.bound();
        self.current.store(number, Ordering::Release);
        number
    }

    /// What the purges since `subject.filled_at` mean for it, and the number up to which that was
    /// looked at.
    pub(crate) fn verdict(&self, subject: Subject<'_>) -> (Verdict, u64) {
        let rules = self.read();
        let current = self.current();
        if current <= subject.filled_at {
            return (Verdict::Untouched, current);
        }
        (rules.verdict(subject), current)
    }

    /// Makes the numbers of further purges greater than `number`.
    pub(crate) fn begin_at(&self, number: u64) {
        self.current.store(number, Ordering::Release);
    }

    /// Adds a purge that was made before a restart.
    pub(crate) fn restore(&self, purge: &Purge, number: u64) {
        let mut rules = self.write();
        rules.add(purge, number);
        rules.bound();
    }

    /// Forgets the rules up to `number`: every object that they are about has met them.
    pub(crate) fn retire(&self, number: u64) {
        let mut rules = self.write();
        rules.exact.retain(|_, times| times.last() > number);
        rules.prefixes.retain(|rule| rule.times.last() > number);
    }

    /// Which of many objects have to be looked at, for all rules there are now.
    pub(crate) fn sieve(&self) -> Sieve {
        let rules = self.read();
        Sieve {
            marks: rules.exact.keys().map(|hash| mark(*hash)).collect(),
            all: !rules.prefixes.is_empty(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Rules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn add(&mut self, purge: &Purge, number: u64) {
        let site = purge.site.as_deref();
        let times = match &purge.what {
            Purged::All => self.exact.entry(about(site, ALL, b"")).or_default(),
            Purged::Key(key) => self.exact.entry(about(site, KEY, key)).or_default(),
            Purged::Tag(tag) => self.exact.entry(about(site, TAG, tag)).or_default(),
            Purged::Prefix(prefix) => {
                let same = |rule: &PrefixRule| rule.site == purge.site && rule.prefix == *prefix;
                let at = self.prefixes.iter().position(same).unwrap_or_else(|| {
                    self.prefixes.push(PrefixRule {
                        site: purge.site.clone(),
                        prefix: prefix.clone(),
                        times: Times::default(),
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

    fn verdict(&self, subject: Subject<'_>) -> Verdict {
        let site = subject.key.site();
        let mut worst = Verdict::Untouched;
        let mut meet = |times: &Times| {
            if times.hard > subject.filled_at {
                worst = Verdict::Gone;
            } else if times.soft > subject.filled_at {
                worst = worst.max(Verdict::Stale);
            }
        };
        for scope in [None, Some(&**site)] {
            let tags = subject.tags.iter().map(|tag| (TAG, &**tag));
            let exact = [(ALL, &b""[..]), (KEY, subject.key.bytes())];
            for (kind, bytes) in exact.into_iter().chain(tags) {
                if let Some(times) = self.exact.get(&about(scope, kind, bytes)) {
                    meet(times);
                }
            }
        }
        for rule in &self.prefixes {
            let of_site = rule.site.as_ref().is_none_or(|name| **name == **site);
            if of_site && subject.key.bytes().starts_with(&rule.prefix) {
                meet(&rule.times);
            }
        }
        worst
    }

    /// When there are too many, puts one about everything in the place of the older half.
    fn bound(&mut self) {
        if self.exact.len().saturating_add(self.prefixes.len()) <= MOST_RULES {
            return;
        }
        let everything = about(None, ALL, b"");
        let mut all = self.exact.remove(&everything).unwrap_or_default();
        let times = self
            .exact
            .values()
            .chain(self.prefixes.iter().map(|rule| &rule.times));
        let mut numbers: Vec<u64> = times.map(Times::last).collect();
        numbers.sort_unstable();
        let limit = numbers.get(numbers.len() / 2).copied().unwrap_or_default();
        let mut keep = |times: &Times| {
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

impl Times {
    fn last(&self) -> u64 {
        self.hard.max(self.soft)
    }
}

const ALL: &[u8] = b"all";
const KEY: &[u8] = b"key";
const TAG: &[u8] = b"tag";

fn about(site: Option<&str>, kind: &[u8], bytes: &[u8]) -> Hash {
    match site {
        Some(site) => Hash::of(&[kind, bytes, site.as_bytes()]),
        None => Hash::of(&[kind, bytes]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key(site: &str, bytes: &str) -> Key {
        Key::new(&Arc::from(site), bytes.as_bytes())
    }

    fn purge(site: Option<&str>, what: Purged, soft: bool) -> Purge {
        let site = site.map(Box::from);
        Purge { site, what, soft }
    }

    fn verdict(purges: &Purges, key: &Key, tags: &[&str], filled_at: u64) -> Verdict {
        let tags: Vec<Box<[u8]>> = tags.iter().map(|tag| tag.as_bytes().into()).collect();
        let subject = Subject {
            key,
            tags: &tags,
            filled_at,
        };
        purges.verdict(subject).0
    }

    #[test]
    fn a_purge_meets_what_was_filled_before_it_and_nothing_else() {
        let purges = Purges::new(0);
        let (one, other) = (key("a", "https://a/x/1"), key("a", "https://a/y/1"));
        purges.add(&purge(
            None,
            Purged::Prefix((*b"https://a/x").into()),
            false,
        ));
        assert_eq!(verdict(&purges, &one, &[], 0), Verdict::Gone);
        assert_eq!(verdict(&purges, &one, &[], 1), Verdict::Untouched);
        assert_eq!(verdict(&purges, &other, &[], 0), Verdict::Untouched);
        purges.add(&purge(Some("a"), Purged::Tag((*b"news").into()), true));
        assert_eq!(
            verdict(&purges, &other, &["old", "news"], 1),
            Verdict::Stale
        );
        assert_eq!(verdict(&purges, &other, &["old"], 1), Verdict::Untouched);
        assert_eq!(
            verdict(&purges, &key("b", "k"), &["news"], 1),
            Verdict::Untouched
        );
        purges.add(&purge(Some("a"), Purged::All, false));
        assert_eq!(verdict(&purges, &other, &["news"], 1), Verdict::Gone);
        assert_eq!(verdict(&purges, &key("b", "k"), &[], 0), Verdict::Untouched);
        purges.add(&purge(None, Purged::Key((*b"k").into()), true));
        assert_eq!(verdict(&purges, &key("b", "k"), &[], 3), Verdict::Stale);
    }

    #[test]
    fn a_hard_purge_is_not_softened_by_a_later_soft_one() {
        let purges = Purges::new(0);
        purges.add(&purge(None, Purged::All, false));
        purges.add(&purge(None, Purged::All, true));
        assert_eq!(verdict(&purges, &key("a", "k"), &[], 0), Verdict::Gone);
        assert_eq!(verdict(&purges, &key("a", "k"), &[], 1), Verdict::Stale);
    }

    #[test]
    fn too_many_rules_become_a_wider_one_that_spares_nothing() {
        let purges = Purges::new(0);
        let tag = |number: usize| format!("tag-{number}");
        for number in 0..MOST_RULES + 10 {
            let what = Purged::Tag(tag(number).as_bytes().into());
            purges.add(&purge(None, what, number % 2 == 0));
        }
        let rules = purges.read().exact.len();
        assert!(rules <= MOST_RULES);
        for number in [0, 1, 1000, MOST_RULES] {
            let met = verdict(&purges, &key("a", "k"), &[&tag(number)], number as u64);
            assert!(met >= Verdict::Stale);
        }
        let last = purges.current();
        assert_eq!(
            verdict(&purges, &key("a", "k"), &["tag-0"], last),
            Verdict::Untouched
        );
    }
}
