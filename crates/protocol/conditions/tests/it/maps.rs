//! Maps: which key decides, mistakes, and random maps beside an interpreter of their entries.

use std::net::IpAddr;

use apus_conditions::{Definitions, FactStage, InvalidMap, MapMistake, RequestMap, RequestMaps};

use crate::TestFacts;

fn map(name: &str, from: &str, entries: &[(&str, &str)]) -> RequestMap {
    let map = RequestMap::new(name, from).unwrap();
    map.entries(entries.iter().copied()).unwrap()
}

fn maps(maps: impl IntoIterator<Item = RequestMap>) -> RequestMaps {
    RequestMaps::new(maps).unwrap()
}

#[track_caller]
fn check(maps: &RequestMaps, facts: &[(&str, &str)], expected: Option<&str>) {
    assert_eq!(
        maps.value("a", &TestFacts::with(facts)),
        expected,
        "{facts:?}"
    );
}

#[test]
fn the_whole_text_decides_before_regular_expressions_in_their_order() {
    let entries = [
        ("~^test-", "first"),
        ("~*^TEST-", "second"),
        ("test-1", "whole"),
        ("\\~x", "tilde"),
        ("\\\\y", "backslash"),
        ("", "none"),
    ];
    let map = map("a", "header.key", &entries).default_value("default");
    let maps = maps([map]);
    for (value, expected) in [
        ("test-1", "whole"),
        ("test-2", "first"),
        ("Test-2", "second"),
        ("TEST-1", "second"),
        ("~x", "tilde"),
        ("\\y", "backslash"),
        ("other", "default"),
        ("", "none"),
    ] {
        check(&maps, &[("header.key", value)], Some(expected));
    }
    check(&maps, &[], Some("none"));
    let several = [("header.key", "test-1"), ("header.key", "test-1")];
    check(&maps, &several, Some("default"));
}

#[test]
fn without_a_key_and_a_default_there_is_no_value() {
    let maps = maps([map("a", "header.key", &[("x", "y")])]);
    check(&maps, &[], None);
    check(&maps, &[("header.key", "z")], None);
    check(&maps, &[("header.key", "x"), ("header.key", "x")], None);
    assert_eq!(maps.value("b", &TestFacts::default()), None);
}

#[test]
fn of_hosts_the_name_decides_before_the_longest_wildcard() {
    let entries = [
        ("~^api[0-9]+\\.", "regex"),
        ("www.example.*", "trailing"),
        ("*.example.com", "leading"),
        ("*.eu.example.com", "longer"),
        ("www.eu.example.com", "name"),
        (".example.org", "both"),
        ("~*^UPPER\\.", "upper"),
    ];
    let maps = maps([map("a", "host", &entries)]);
    for (host, expected) in [
        ("www.eu.example.com", Some("name")),
        ("x.eu.example.com", Some("longer")),
        ("www.example.com", Some("leading")),
        ("www.example.net", Some("trailing")),
        ("api7.test", Some("regex")),
        ("example.org", Some("both")),
        ("www.example.org", Some("both")),
        ("upper.test", Some("upper")),
        ("example.com", None),
    ] {
        check(&maps, &[("host", host)], expected);
    }
}

#[test]
fn of_paths_the_path_counts_and_not_its_script() {
    let maps = maps([map("a", "path", &[("/a.php", "script"), ("~^/a", "path")])]);
    check(
        &maps,
        &[("path", "/a.php/x"), ("path", "/a.php")],
        Some("path"),
    );
    check(&maps, &[("path", "/a.php")], Some("script"));
}

#[test]
fn networks_have_values_also_for_unix_sockets() {
    let entries = [
        ("10.0.0.0/8", "inside"),
        ("10.1.0.0/16", "lab"),
        ("10.1.2.3", "desk"),
        ("2001:db8::/32", "six"),
        ("unix:", "local"),
    ];
    let maps = maps([map("a", "client", &entries).default_value("outside")]);
    for (client, expected) in [
        (Some("10.2.0.1"), "inside"),
        (Some("10.1.0.1"), "lab"),
        (Some("10.1.2.3"), "desk"),
        (Some("::ffff:10.1.2.3"), "desk"),
        (Some("2001:db8::1"), "six"),
        (Some("192.0.2.1"), "outside"),
        (None, "local"),
    ] {
        let facts = TestFacts {
            client: client.map(|text| text.parse().unwrap()),
            ..TestFacts::default()
        };
        assert_eq!(maps.value("a", &facts), Some(expected), "{client:?}");
    }
}

#[test]
fn a_map_takes_its_value_from_another_one() {
    let maps = maps([
        map(
            "a",
            "map.plan",
            &[("gold", "fast"), ("~^s", "slow"), ("", "none")],
        ),
        map("plan", "header.key", &[("ada", "gold"), ("bob", "silver")]),
    ]);
    check(&maps, &[("header.key", "ada")], Some("fast"));
    check(&maps, &[("header.key", "bob")], Some("slow"));
    check(&maps, &[], Some("none"));
}

#[test]
fn refuses_what_is_no_map() {
    let of = |name: &str, from: &str| RequestMap::new(name, from).err();
    assert_eq!(of("a-b", "host"), Some(InvalidMap::Name));
    assert_eq!(of("", "host"), Some(InvalidMap::Name));
    let unknown = InvalidMap::UnknownFact("hots".to_owned());
    assert_eq!(of("a", "hots"), Some(unknown));
    for fact in [
        "status",
        "tls",
        "content_length",
        "time",
        "weekday",
        "response.x",
        "share.client",
    ] {
        assert_eq!(of("a", fact), Some(InvalidMap::NoText(fact.to_owned())));
    }
    let entry = |from: &str, key: &str| {
        let map = RequestMap::new("a", from).unwrap();
        let entries = [("/a", "1"), (key, "2")];
        let entries = if from == "path" {
            &entries[..]
        } else {
            &entries[1..]
        };
        let made = map.entries(entries.iter().copied());
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    for (from, key, expected) in [
        ("path", "/a", "twice"),
        ("path", "x", "begins with"),
        ("header.a", "~(", "regular expression"),
        ("protocol", "h9", "`protocol` is one of"),
        ("client", "10.0.0.0/33", "10.0.0.0/33"),
        ("client", "~x", "~x"),
        ("host", "a b", "a b"),
    ] {
        let error = entry(from, key);
        assert!(error.contains(expected), "{from}, {key}: {error}");
    }
    // The same network in another form.
    let made = RequestMap::new("a", "client").unwrap();
    let made = made.entries([("10.1.0.0/8", "a"), ("10.0.0.0/8", "b")]);
    assert!(made.unwrap_err().to_string().contains("twice"));
    let again = RequestMap::new("a", "client").unwrap();
    assert!(
        again
            .entries([("10.1.0.0/8", "a"), ("10.0.0.0/8", "a")])
            .is_ok()
    );
}

#[test]
fn refuses_maps_that_lead_nowhere_or_back() {
    let fault = |made: Vec<RequestMap>| RequestMaps::new(made).err().map(|error| error.0);
    let circle = |name: &str| (name.into(), MapMistake::Circle);
    assert_eq!(
        fault(vec![map("a", "map.b", &[])]),
        Some(vec![("a".into(), MapMistake::UnknownMap("b".to_owned()))])
    );
    let of_two = vec![
        map("c", "host", &[]),
        map("a", "map.b", &[]),
        map("b", "map.a", &[]),
    ];
    assert_eq!(fault(of_two), Some(vec![circle("a"), circle("b")]));
    assert_eq!(fault(vec![map("a", "map.a", &[])]), Some(vec![circle("a")]));
    assert_eq!(
        fault(vec![map("a", "host", &[]), map("a", "path", &[])]),
        Some(vec![("a".into(), MapMistake::SameName)])
    );
    // Each is small enough, and all are not.
    let patterns: Vec<String> = (0..80)
        .map(|number| format!("~{number}\\pL{{20}}"))
        .collect();
    let entries: Vec<(&str, &str)> = patterns.iter().map(|text| (&**text, "x")).collect();
    let large = map("a", "referer", &entries);
    assert_eq!(
        fault(vec![large]),
        Some(vec![("a".into(), MapMistake::TooLarge)])
    );
}

#[test]
fn conditions_compare_maps_with_values_that_they_have() {
    let fixed = map("plan", "header.key", &[("ada", "gold")]).default_value("free");
    let changing = map("list", "user", &[("ada", "gold")]).changing();
    let later = map("later", "map.list", &[("gold", "x")]);
    let mut definitions = Definitions::default();
    definitions.define_maps(&maps([fixed, changing, later]));
    let compile = |text: &str, stage| {
        let compiled = definitions.compile(text, stage);
        compiled.map_err(|mistakes| mistakes[0].message.clone())
    };
    let request = FactStage::Request;
    assert!(compile("map.plan == \"gold\"", request).is_ok());
    assert!(
        compile(
            "map.plan in [\"gold\", \"free\"] and not map.plan ~ \"x\"",
            request
        )
        .is_ok()
    );
    let never = compile("map.plan == \"golld\"", request).unwrap_err();
    assert_eq!(
        never,
        "`map.plan` is never `golld`; its values are free, gold"
    );
    let unknown = compile("map.plam == \"gold\"", request).unwrap_err();
    assert!(unknown.contains("did you mean `map.plan`?"), "{unknown}");
    // The user is known later.
    for name in ["list", "later"] {
        let text = format!("map.{name} == \"x\"");
        let early = compile(&text, request).unwrap_err();
        assert!(early.contains("after the authentication"), "{early}");
        assert!(compile(&text, FactStage::Authentication).is_ok());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    fn of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.below(values.len())]
    }
}

const TEXTS: &[&str] = &["", "a", "b", "ab", "ba", "A", "~a"];
const PATTERNS: &[&str] = &["~a", "~^b", "~*A$", "~.."];
const NETWORKS: &[&str] = &[
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.1.1",
    "::/0",
    "::1",
];
const CLIENTS: &[&str] = &["10.0.0.1", "10.1.0.1", "10.1.1.1", "11.0.0.1", "::1", "::2"];

/// What the entries say, read one by one.
fn interpret<'a>(entries: &[(&'a str, &'a str)], text: Option<&str>) -> Option<&'a str> {
    let text = text.unwrap_or_default();
    let whole = entries
        .iter()
        .find(|(key, _)| !key.starts_with('~') && key.strip_prefix('\\').unwrap_or(key) == text);
    let matching = || {
        entries.iter().find(|(key, _)| match *key {
            _ if text.is_empty() => false,
            "~a" => text.contains('a'),
            "~^b" => text.starts_with('b'),
            "~*A$" => text.ends_with(['a', 'A']),
            "~.." => text.len() >= 2,
            _ => false,
        })
    };
    whole.or_else(matching).map(|(_, value)| *value)
}

fn interpret_networks<'a>(entries: &[(&'a str, &'a str)], client: &str) -> Option<&'a str> {
    let client: IpAddr = client.parse().unwrap();
    let found = entries.iter().filter_map(|(key, value)| {
        let (address, bits) = key.split_once('/').unwrap_or((key, "128"));
        let address: IpAddr = address.parse().unwrap();
        let bits: u32 = bits.parse().unwrap();
        let is_in = match (address, client) {
            (IpAddr::V4(one), IpAddr::V4(other)) => (0..bits.min(32))
                .all(|bit| (one.to_bits() ^ other.to_bits()) >> (31 - bit) & 1 == 0),
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (0..bits).all(|bit| (one.to_bits() ^ other.to_bits()) >> (127 - bit) & 1 == 0)
            }
            _ => false,
        };
        is_in.then_some((bits, *value))
    });
    found.max().map(|(_, value)| value)
}

#[test]
fn random_maps_mean_what_their_entries_say() {
    let mut random = Random(1);
    let mut found = 0;
    for _ in 0..800 {
        let is_network = random.below(3) == 0;
        let mut entries: Vec<(&str, &str)> = Vec::new();
        for _ in 0..random.below(7) {
            let key = match (is_network, random.below(2)) {
                (true, _) => random.of(NETWORKS),
                (false, 0) => random.of(PATTERNS),
                (false, _) => match random.of(TEXTS) {
                    "~a" => "\\~a",
                    text => text,
                },
            };
            if entries.iter().all(|(other, _)| *other != key) {
                entries.push((key, random.of(&["1", "2", "3"])));
            }
        }
        let from = if is_network { "client" } else { "header.x" };
        let default = (random.below(2) == 0).then_some("default");
        let made = map("a", from, &entries);
        let made = match default {
            Some(value) => made.default_value(value),
            None => made,
        };
        let maps = maps([made]);
        for _ in 0..6 {
            let (facts, expected) = if is_network {
                let client = random.of(CLIENTS);
                let facts = TestFacts {
                    client: Some(client.parse().unwrap()),
                    ..TestFacts::default()
                };
                (facts, interpret_networks(&entries, client))
            } else {
                let text = (random.below(5) > 0).then(|| random.of(TEXTS));
                let facts = text.map(|text| TestFacts::with(&[("header.x", text)]));
                (facts.unwrap_or_default(), interpret(&entries, text))
            };
            found += usize::from(expected.is_some());
            assert_eq!(
                maps.value("a", &facts),
                expected.or(default),
                "{entries:?}, {facts:?}"
            );
        }
    }
    assert!(found > 1000, "{found}");
}
