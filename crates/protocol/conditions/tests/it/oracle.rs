//! Random conditions mean the same compiled and by an interpreter of what was meant.

use apus_conditions::{ConditionIndex, Definitions, FactStage};

use crate::TestFacts;

/// What was meant.
enum Meant {
    Any(Vec<Meant>),
    All(Vec<Meant>),
    Not(Box<Meant>),
    Flag(&'static str),
    Is(&'static str, &'static str),
    Begins(&'static str, &'static str),
    Above(&'static str, u64),
    Within([u8; 4], u8),
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn meant(&mut self, depth: u64) -> Meant {
        let parts = |random: &mut Self| {
            (0..random.below(3) + 1)
                .map(|_| random.meant(depth - 1))
                .collect()
        };
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => Meant::Flag(self.of(&["tag.a", "tag.b", "tls"])),
            1 => Meant::Is(self.of(&["method", "header.x"]), self.of(&["GET", "PUT"])),
            2 => Meant::Begins(
                self.of(&["path", "header.x"]),
                self.of(&["/a", "/a/b", "G"]),
            ),
            3 => Meant::Above("content_length", self.below(4)),
            4 => Meant::Within([10, self.below(2) as u8, 0, 0], self.of(&[8, 15, 16, 32])),
            5 | 6 => Meant::Any(parts(self)),
            7 => Meant::All(parts(self)),
            _ => Meant::Not(Box::new(self.meant(depth - 1))),
        }
    }

    fn facts(&mut self) -> TestFacts {
        let mut facts = TestFacts::with(&[
            ("method", self.of(&["GET", "PUT"])),
            ("path", self.of(&["/", "/a", "/a/b/c"])),
        ]);
        for _ in 0..self.below(3) {
            let value = self.of(&["GET", "/a", "PUT"]);
            facts
                .texts
                .entry("header.x".to_owned())
                .or_default()
                .push(value.to_owned());
        }
        for flag in ["tag.a", "tag.b", "tls"] {
            if self.below(2) == 0 {
                facts.flags.push(flag.to_owned());
            }
        }
        if self.below(2) == 0 {
            facts
                .numbers
                .insert("content_length".to_owned(), self.below(5));
        }
        facts.client = Some([10, self.below(3) as u8, 0, self.below(2) as u8].into());
        facts
    }
}

impl Meant {
    fn text(&self) -> String {
        let joined = |parts: &[Self], word: &str| {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| format!("({})", part.text()))
                .collect();
            parts.join(word)
        };
        match self {
            Self::Any(parts) => joined(parts, " or "),
            Self::All(parts) => joined(parts, " and "),
            Self::Not(inner) => format!("not ({})", inner.text()),
            Self::Flag(name) => (*name).to_owned(),
            Self::Is(fact, value) => format!("{fact} == \"{value}\""),
            Self::Begins(fact, value) => format!("{fact} starts_with \"{value}\""),
            Self::Above(fact, value) => format!("{fact} > {value}"),
            Self::Within([a, b, c, d], bits) => format!("client in {a}.{b}.{c}.{d}/{bits}"),
        }
    }

    fn holds(&self, facts: &TestFacts) -> bool {
        let texts = |fact: &str| facts.texts.get(fact).cloned().unwrap_or_default();
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(facts)),
            Self::All(parts) => parts.iter().all(|part| part.holds(facts)),
            Self::Not(inner) => !inner.holds(facts),
            Self::Flag(name) => facts.flags.iter().any(|flag| flag == name),
            Self::Is(fact, value) => texts(fact).iter().any(|text| text == value),
            Self::Begins(fact, value) => texts(fact).iter().any(|text| text.starts_with(value)),
            Self::Above(fact, value) => facts
                .numbers
                .get(*fact)
                .is_some_and(|number| number > value),
            Self::Within(network, bits) => {
                let Some(std::net::IpAddr::V4(client)) = facts.client else {
                    return false;
                };
                let differing = client.to_bits() ^ u32::from_be_bytes(*network);
                differing.leading_zeros() >= u32::from(*bits)
            }
        }
    }
}

#[test]
fn a_condition_means_the_same_compiled_and_interpreted() {
    let mut random = Random(7);
    let (mut compiled, mut impossible) = (0, 0);
    for _ in 0..3000 {
        let meant = random.meant(4);
        let text = meant.text();
        match Definitions::default().compile(&text, FactStage::Response) {
            Ok(condition) => {
                compiled += 1;
                for _ in 0..20 {
                    let facts = random.facts();
                    assert_eq!(
                        condition.holds(&facts),
                        meant.holds(&facts),
                        "{text}: {facts:?}"
                    );
                }
            }
            // A part that can never be true was never true.
            Err(mistakes) => {
                impossible += 1;
                assert!(
                    mistakes
                        .iter()
                        .all(|mistake| mistake.message.contains("never true")),
                    "{text}: {mistakes:?}"
                );
            }
        }
    }
    assert!(
        compiled > 2000 && impossible > 10,
        "{compiled} {impossible}"
    );
}

#[test]
fn the_candidates_of_an_index_are_all_that_hold_and_few_others() {
    let mut random = Random(11);
    let mut excluded = 0;
    for _ in 0..300 {
        let conditions: Vec<_> = (0..40)
            .filter_map(|_| {
                let text = random.meant(3).text();
                Definitions::default()
                    .compile(&text, FactStage::Response)
                    .ok()
            })
            .collect();
        let index = ConditionIndex::new(conditions.iter().map(Some));
        let mut found = Vec::new();
        for _ in 0..20 {
            let facts = random.facts();
            index.candidates(&facts, &mut found);
            assert!(found.is_sorted_by(|one, two| one < two), "{found:?}");
            excluded += conditions.len() - found.len();
            for (number, condition) in conditions.iter().enumerate() {
                assert!(
                    found.contains(&number) || !condition.holds(&facts),
                    "{condition:?}: {facts:?}"
                );
            }
        }
    }
    assert!(excluded > 10_000, "{excluded}");
}

#[test]
fn an_index_finds_prefixes_of_prefixes_patterns_networks_and_expressions() {
    let conditions: Vec<_> = [
        "path starts_with \"/a\"",
        "path starts_with \"/a/b\"",
        "path starts_with \"/a/bc\"",
        "path matches \"/a/b/*.php\"",
        "path matches \"*.php\"",
        "path == \"/a/b/x\"",
        "client in 10.0.0.0/8 and method == \"GET\"",
        "header.x ~ \"^[0-9]+$\"",
        "header.x in [\"1\", \"2\"] or path == \"/z\"",
        "not path starts_with \"/a\"",
        "path starts_with \"/\" and header.x == \"9\"",
        "header.x contains \"b\" or header.x contains \"bcd\"",
        "header.x ~ \"(?i)^ABC\" and header.x contains \"bcd\"",
    ]
    .iter()
    .map(|text| {
        Definitions::default()
            .compile(text, FactStage::Request)
            .unwrap()
    })
    .collect();
    let index = ConditionIndex::new(conditions.iter().map(Some).chain([None]));
    let mut found = Vec::new();
    for (path, client, field, expected) in [
        ("/a/b/x", "192.0.2.1", "a", &[0, 1, 3, 4, 5, 9, 13][..]),
        (
            "/a/b/x.php",
            "192.0.2.1",
            "1",
            &[0, 1, 3, 4, 5, 7, 8, 9, 13],
        ),
        ("/a/bcd", "192.0.2.1", "9", &[0, 1, 2, 4, 7, 9, 10, 13]),
        ("/z", "10.1.2.3", "a", &[4, 6, 8, 9, 13]),
        ("/", "192.0.2.1", "a", &[4, 9, 13]),
        ("/", "192.0.2.1", "abc", &[4, 9, 11, 12, 13]),
        ("/", "192.0.2.1", "xbcdx", &[4, 9, 11, 13]),
    ] {
        let facts = TestFacts {
            client: client.parse().ok(),
            ..TestFacts::with(&[("path", path), ("header.x", field)])
        };
        index.candidates(&facts, &mut found);
        assert_eq!(found, expected, "{path} {client} {field}");
    }
}
