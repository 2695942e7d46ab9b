//! What conditions mean.

use std::sync::Arc;

use apus_conditions::{
    ConditionList, Definitions, FactStage, NetworkSet, TableField, TableValues, TextSet,
};

use crate::TestFacts;

fn holds(text: &str, facts: &TestFacts) -> bool {
    let mut definitions = Definitions::default();
    let office = NetworkSet::new(["10.0.0.0/8", "unix:"].map(|network| network.parse().unwrap()));
    definitions.define_list("office", ConditionList::Networks(Arc::new(office)));
    let condition = definitions.compile(text, FactStage::Response);
    condition
        .unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))
        .holds(facts)
}

#[test]
fn texts_are_compared_byte_for_byte() {
    for (text, expected) in [
        ("method == \"GET\"", true),
        ("method == \"get\"", false),
        ("method != \"POST\"", true),
        ("method in [\"GET\", \"HEAD\"]", true),
        ("method in [\"PUT\"]", false),
        ("path matches \"/api/**\"", true),
        ("path matches [\"/a\", \"/api/*\"]", true),
        ("path matches \"/api\"", false),
        ("path starts_with \"/api/\"", true),
        ("path ends_with [\"/9\", \"/8\"]", false),
        ("path contains \"api\"", true),
        ("host matches \"*.example.com\"", true),
        ("host matches \"example.com\"", false),
        ("host == \"WWW.Example.com\"", true),
        ("user_agent ~ \"(?i)BOT\"", true),
        ("user_agent !~ \"BOT\"", true),
        ("user_agent ~ \"a\\\\.b \\\"c\\\"\"", false),
        ("query.page == \"1\"", true),
    ] {
        let facts = TestFacts::with(&[
            ("method", "GET"),
            ("path", "/api/1"),
            ("host", "www.example.com"),
            ("user_agent", "robots"),
            ("query.page", "1"),
        ]);
        assert_eq!(holds(text, &facts), expected, "{text}");
    }
}

#[test]
fn each_value_of_a_field_counts_and_a_missing_one_is_equal_to_nothing() {
    let facts = TestFacts::with(&[("header.x", "1"), ("header.x", "2"), ("header.empty", "")]);
    for (text, expected) in [
        ("header.x == \"1\"", true),
        ("header.x == \"2\"", true),
        ("header.X == \"2\"", true),
        ("header.x != \"1\"", false),
        ("header.x != \"3\"", true),
        ("header.x exists", true),
        ("header.y exists", false),
        ("header.y == \"\"", false),
        ("header.y != \"\"", true),
        ("header.empty == \"\"", true),
        ("header.empty exists", true),
        ("not header.y ~ \".*\"", true),
    ] {
        assert_eq!(holds(text, &facts), expected, "{text}");
    }
}

#[test]
fn clients_are_found_in_networks_and_lists() {
    let client = |address: &str| TestFacts {
        client: address.parse().ok(),
        ..TestFacts::default()
    };
    for (text, address, expected) in [
        ("client in @office", "10.1.2.3", true),
        ("client in @office", "11.1.2.3", false),
        ("client in @office", "unix", true),
        ("client in [@office, 11.0.0.0/8]", "11.1.2.3", true),
        ("client == 11.1.2.3", "11.1.2.3", true),
        ("client != 11.1.2.3", "11.1.2.4", true),
        ("client in 2001:db8::/32", "2001:db8::1", true),
        ("client in 10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("client in \"unix:\"", "10.0.0.1", false),
    ] {
        assert_eq!(holds(text, &client(address)), expected, "{text}: {address}");
    }
}

#[test]
fn numbers_have_units_and_edges() {
    let number = |name: &str, value| {
        let mut facts = TestFacts::default();
        facts.numbers.insert(name.to_owned(), value);
        facts
    };
    for (text, name, value, expected) in [
        ("content_length > 10kb", "content_length", 10_240, false),
        ("content_length > 10kb", "content_length", 10_241, true),
        ("content_length >= 10KB", "content_length", 10_240, true),
        ("content_length < 10", "content_length", 9, true),
        ("content_length <= 10", "content_length", 11, false),
        ("content_length > 1", "other", 2, false),
        ("not content_length > 1", "other", 2, true),
        ("status in [404, 500..599]", "status", 500, true),
        ("status in [404, 500..599]", "status", 599, true),
        ("status in [404, 500..599]", "status", 499, false),
        ("time_taken >= 2s", "time_taken", 2000, true),
    ] {
        assert_eq!(
            holds(text, &number(name, value)),
            expected,
            "{text}: {value}"
        );
    }
}

#[test]
fn times_are_those_of_the_zone() {
    // In summer, Berlin is two hours ahead of UTC, in winter one.
    for (text, now, expected) in [
        ("time in 22:00..23:59", "2026-07-01T20:00:00Z", true),
        ("time in 22:00..23:59", "2026-07-01T19:59:59Z", false),
        ("time in 22:00..23:59", "2026-12-01T20:59:59Z", false),
        ("time in 22:00..23:59", "2026-12-01T21:00:00Z", true),
        ("time in 22:00..23:59", "2026-12-01T22:59:59Z", true),
        ("time in 22:00..23:59", "2026-12-01T23:00:00Z", false),
        // A Saturday in UTC is a Sunday in Berlin already.
        ("weekday == \"sun\"", "2026-11-28T23:00:00Z", true),
        (
            "weekday in [\"sat\", \"fri\"]",
            "2026-11-28T22:59:59Z",
            true,
        ),
        ("weekday == \"sun\"", "2026-11-28T22:59:59Z", false),
    ] {
        let mut definitions = Definitions::default();
        definitions.set_zone(jiff::tz::TimeZone::get("Europe/Berlin").unwrap());
        let facts = TestFacts {
            now: now.parse().unwrap(),
            ..TestFacts::default()
        };
        let condition = definitions.compile(text, FactStage::Request).unwrap();
        assert_eq!(condition.holds(&facts), expected, "{text}: {now}");
    }
}

#[test]
fn a_share_is_the_same_for_the_same_value() {
    let of = |text: &str, name: &str, value: &str| holds(text, &TestFacts::with(&[(name, value)]));
    let mut within = 0;
    for number in 0..1000 {
        let value = number.to_string();
        let is_within = of("share.cookie.id < 10%", "cookie.id", &value);
        within += u32::from(is_within);
        assert_eq!(is_within, of("share.cookie.id < 10%", "cookie.id", &value));
        assert_ne!(is_within, of("share.cookie.id >= 10%", "cookie.id", &value));
    }
    assert!((70..130).contains(&within), "{within}");
    // Without the value there is no share, neither small nor large.
    assert!(!of("share.cookie.id < 100%", "cookie.other", "1"));
    assert!(of("share.cookie.id exists", "cookie.id", ""));
    assert!(of("share.request < 100%", "header.a", "b"));
    let client = TestFacts {
        client: "10.0.0.1".parse().ok(),
        ..TestFacts::default()
    };
    assert!(holds("share.client < 100%", &client));
}

#[test]
fn texts_of_lists_are_compared_as_a_whole_or_as_parts() {
    let mut definitions = Definitions::default();
    let agents = TextSet::new(["curl", "GPTBot"]).unwrap();
    definitions.define_list("agents", ConditionList::Texts(Arc::new(agents)));
    let holds = |text: &str, agent: &str| {
        let condition = definitions.compile(text, FactStage::Request).unwrap();
        condition.holds(&TestFacts::with(&[("user_agent", agent)]))
    };
    for (agent, whole, part) in [
        ("curl", true, true),
        ("wget", true, false),
        ("curl/8", false, true),
        ("x GPTBot/1", false, true),
        ("gptbot", false, false),
        ("", false, false),
    ] {
        let found = holds("user_agent in [@agents, \"wget\"]", agent);
        assert_eq!(found, whole, "{agent}");
        assert_eq!(holds("user_agent contains @agents", agent), part, "{agent}");
    }
}

#[test]
fn a_table_asks_for_all_its_facts() {
    let table = |fields: &[(&str, &[&str])]| {
        let fields: Vec<_> = fields
            .iter()
            .map(|(fact, values)| TableField {
                fact: (*fact).to_owned(),
                values: match values {
                    ["true"] => TableValues::Flag(true),
                    ["false"] => TableValues::Flag(false),
                    texts => {
                        TableValues::Texts(texts.iter().map(|text| (*text).to_owned()).collect())
                    }
                },
            })
            .collect();
        Definitions::default().compile_table(&fields, FactStage::Request)
    };
    let facts = TestFacts {
        client: "10.0.0.1".parse().ok(),
        flags: vec!["tls".to_owned()],
        ..TestFacts::with(&[
            ("path", "/api/v1"),
            ("method", "POST"),
            ("user_agent", "curl/8"),
            ("header.x", "2"),
        ])
    };
    type Fields = &'static [(&'static str, &'static [&'static str])];
    let cases: [(Fields, bool); 9] = [
        (
            &[("path", &["/api/**"]), ("method", &["POST", "PUT"])],
            true,
        ),
        (&[("path", &["/api/**"]), ("method", &["GET"])], false),
        (&[("path", &["/other", "~^/API"])], false),
        (&[("path", &["/other", "~*^/API"])], true),
        (&[("user_agent", &["curl"])], false),
        (&[("user_agent", &["~^curl/"])], true),
        (&[("client", &["10.0.0.0/8"]), ("tls", &["true"])], true),
        (&[("client", &["10.0.0.0/8"]), ("tls", &["false"])], false),
        (&[("header.x", &["1", "2"])], true),
    ];
    for (fields, expected) in cases {
        let condition = table(fields).unwrap_or_else(|found| panic!("{fields:?}: {found:?}"));
        assert_eq!(condition.holds(&facts), expected, "{fields:?}");
    }
    let found = table(&[("path", &["/a"]), ("methd", &["GET"]), ("client", &["x"])]).unwrap_err();
    let places: Vec<_> = found.iter().map(|mistake| mistake.place.clone()).collect();
    assert_eq!(places, [1..2, 2..3], "{found:?}");
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let flags = |names: &[&str]| TestFacts {
        flags: names.iter().map(|name| format!("tag.{name}")).collect(),
        ..TestFacts::default()
    };
    for (text, names, expected) in [
        ("tag.a or tag.b and tag.c", &["a"][..], true),
        ("(tag.a or tag.b) and tag.c", &["a"], false),
        ("not tag.a and tag.b", &["b"], true),
        ("not (tag.a and tag.b)", &["b"], true),
        ("not not tag.a", &["a"], true),
    ] {
        assert_eq!(holds(text, &flags(names)), expected, "{text}");
    }
}

#[test]
fn a_condition_is_known_when_its_last_fact_is() {
    for (text, expected) in [
        ("tls", FactStage::Request),
        ("tls or status == 404", FactStage::Response),
        ("not (tls and response.x exists)", FactStage::Response),
    ] {
        assert_eq!(
            Definitions::default()
                .compile(text, FactStage::Response)
                .unwrap()
                .stage(),
            expected,
            "{text}"
        );
    }
}
