//! What conditions mean.

use std::sync::Arc;

use apus_conditions::{Definitions, List, NetworkSet, Stage};

use crate::TestFacts;

fn holds(text: &str, facts: &TestFacts) -> bool {
    let mut definitions = Definitions::default();
    let office = NetworkSet::new(["10.0.0.0/8", "unix:"].map(|network| network.parse().unwrap()));
    definitions.define_list("office", List::Networks(Arc::new(office)));
    let condition = definitions.compile(text);
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
        ("time in [22:00..23:59, 00:00..06:00]", "time", 6 * 60, true),
        (
            "time in [22:00..23:59, 00:00..06:00]",
            "time",
            6 * 60 + 1,
            false,
        ),
        ("load > 80%", "load", 8001, true),
    ] {
        assert_eq!(
            holds(text, &number(name, value)),
            expected,
            "{text}: {value}"
        );
    }
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
        ("tls", Stage::Request),
        ("tls or status == 404", Stage::Response),
        ("not (tls and response.x exists)", Stage::Response),
    ] {
        assert_eq!(
            Definitions::default().compile(text).unwrap().stage(),
            expected,
            "{text}"
        );
    }
}
