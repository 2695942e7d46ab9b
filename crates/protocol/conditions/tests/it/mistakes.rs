//! Mistakes are found when a condition is compiled, all at once, each with its place and what to write.

use std::sync::Arc;

use apus_conditions::{ConditionList, Definitions, FactStage, NetworkSet, TextSet};

/// The texts at the places of mistakes, and the messages.
fn mistakes(text: &str) -> Vec<(String, String)> {
    let mut definitions = Definitions::default();
    let office = NetworkSet::new(["10.0.0.0/8".parse().unwrap()]);
    definitions.define_list("office", ConditionList::Networks(Arc::new(office)));
    definitions.define_list(
        "agents",
        ConditionList::Texts(Arc::new(TextSet::new(["curl"]).unwrap())),
    );
    let found = definitions
        .compile(text, FactStage::Response)
        .err()
        .unwrap_or_default();
    found
        .into_iter()
        .map(|mistake| (text[mistake.place].to_owned(), mistake.message))
        .collect()
}

#[test]
fn a_mistake_has_its_place_and_a_way_out() {
    for (text, place, part) in [
        ("", "", "expected a fact"),
        ("path", "path", "not true or false"),
        ("pth == \"/\"", "pth", "did you mean `path`?"),
        ("client in [10.0.0.0/33]", "10.0.0.0/33", "10.0.0.0/8"),
        ("client == 10.0.0.0/8 && tls", "&&", "write `and`"),
        ("!tls", "!", "write `not`"),
        ("path = \"/\"", "=", "write `==`"),
        ("path == '/'", "'", "write `\"`"),
        ("path == \"/", "\"/", "no closing"),
        ("path == \"api\"", "\"api\"", "`/api`"),
        ("scheme == \"ftp\"", "\"ftp\"", "one of http, https"),
        ("weekday in [\"monday\"]", "\"monday\"", "one of mon"),
        ("content_length > 5s", "5s", "`10kb`"),
        ("time_taken > 5", "5", "`250ms`"),
        ("time in [24:01..25:00]", "24:01..25:00", "`08:30`"),
        ("status ~ \"5..\"", "~", "for texts"),
        ("method > \"A\"", ">", "for numbers"),
        ("client ~ \"10\"", "~", "`in`"),
        ("client exists", "client", "always has"),
        ("tls == \"1.3\"", "==", "`tls` or `not tls`"),
        ("user_agent matches \"*bot*\"", "matches", "`~`"),
        ("user_agent ~ \"(\"", "\"(\"", "regular expression"),
        ("path == [\"/a\", \"/b\"]", "==", "`in` takes a list"),
        ("client in @offices", "@offices", "`@office`"),
        ("client in @agents", "@agents", "not a list of networks"),
        ("user_agent in @office", "@office", "compare `client`"),
        ("content_length < 0", "<", "less than 0"),
        ("status in [599..500]", "599..500", "empty"),
        ("(tls", "", "expected `)`"),
        ("tls tls", "tls", "expected `and`"),
        ("and tls", "and", "before `and`"),
        ("tls and", "", "expected a fact"),
        ("path == and", "and", "expected a value"),
        ("client in [::1", "", "expected `,` or `]`"),
        ("client in @", "@", "name of a list"),
        ("path == \"/\" ; tls", ";", "unexpected `;`"),
    ] {
        let found = mistakes(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].0, place, "{text}: {found:?}");
        assert!(found[0].1.contains(part), "{text}: {found:?}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let found = mistakes("pth == \"/\" or client in [10.0.0.0/33] and scheme == \"ftp\"");
    let places: Vec<_> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["pth", "10.0.0.0/33", "\"ftp\""]);
}

#[test]
fn what_can_never_be_true_is_a_mistake() {
    for (text, is_possible) in [
        ("method == \"GET\" and method == \"POST\"", false),
        ("method in [\"GET\", \"POST\"] and method != \"GET\"", true),
        (
            "method in [\"GET\", \"POST\"] and method != \"GET\" and not method == \"POST\"",
            false,
        ),
        ("scheme != \"http\" and scheme != \"https\"", true),
        ("scheme == \"http\" and scheme != \"http\"", false),
        ("path == \"/a\" and path matches \"/b/**\"", false),
        ("path == \"/b/a\" and path matches \"/b/**\"", true),
        ("path == \"/a\" or path == \"/b\"", true),
        ("tls or (path == \"/a\" and path == \"/b\")", false),
        ("status > 500 and status < 500", false),
        ("status >= 500 and status <= 500", true),
        ("status >= 500 and status <= 500 and status != 500", false),
        ("status == 600", false),
        ("status == 599", true),
        ("status == 99", false),
        ("time == 23:59", true),
        ("time == 24:00", false),
        ("client in 10.0.0.0/8 and client in 192.168.0.0/16", false),
        ("client in 10.0.0.0/8 and client in 10.1.0.0/16", true),
        ("client in @office and client in ::1", false),
        ("client in []", false),
        ("method in []", false),
        ("header.x in []", false),
        ("tls and not tls", false),
        ("tag.a and not tag.b", true),
        ("not header.x exists and header.x == \"1\"", false),
        ("not header.x exists and header.x != \"1\"", true),
        // Two lines.
        ("header.x == \"1\" and header.x == \"2\"", true),
        ("cookie.a == \"1\" and cookie.a != \"1\"", true),
    ] {
        let found = mistakes(text);
        assert_eq!(found.is_empty(), is_possible, "{text}: {found:?}");
        assert!(
            is_possible || found[0].1.contains("never true"),
            "{found:?}"
        );
    }
}

#[test]
fn conditions_within_one_another_are_bounded() {
    let nested = |depth: usize| format!("{}tls{}", "(".repeat(depth), ")".repeat(depth));
    assert!(mistakes(&nested(63)).is_empty());
    assert!(mistakes(&nested(64))[0].1.contains("too many"));
    assert!(mistakes(&"not ".repeat(100_000))[0].1.contains("too many"));
}

#[test]
fn a_name_that_could_be_mistaken_for_something_else_is_refused() {
    let mut definitions = Definitions::default();
    let condition = definitions.compile("tls", FactStage::Request).unwrap();
    for name in [
        "path", "tls", "header.x", "and", "in", "", "a b", "1a", "@a", "exists",
    ] {
        assert!(
            definitions.define(name, condition.clone()).is_err(),
            "{name}"
        );
    }
    assert!(definitions.define("office_hours", condition).is_ok());
    assert!(
        definitions
            .compile("office_hours and not office_hours", FactStage::Request)
            .is_err()
    );
    assert!(
        definitions
            .compile("not office_hours", FactStage::Request)
            .is_ok()
    );
}

#[test]
fn a_fact_that_is_not_known_yet_is_a_mistake() {
    for (text, known_at) in [
        ("user == \"a\"", FactStage::Authentication),
        ("status == 404", FactStage::Response),
        ("response.x exists", FactStage::Response),
        ("late", FactStage::Response),
        ("share.user < 10%", FactStage::Authentication),
    ] {
        let mut definitions = Definitions::default();
        let late = definitions
            .compile("status == 404", FactStage::Response)
            .unwrap();
        definitions.define("late", late).unwrap();
        for stage in [
            FactStage::Request,
            FactStage::Authentication,
            FactStage::Response,
        ] {
            let compiled = definitions.compile(text, stage);
            assert_eq!(compiled.is_ok(), stage >= known_at, "{text} {stage:?}");
        }
    }
    for text in ["share.x < 10%", "share.status < 10%", "share.tls < 10%"] {
        assert_eq!(mistakes(text).len(), 1, "{text}");
    }
}

#[test]
fn an_empty_file_of_a_list_is_no_mistake() {
    let mut definitions = Definitions::default();
    let networks = ConditionList::Networks(Arc::new(NetworkSet::default()));
    definitions.define_changing_list("blocked", networks.clone());
    definitions.define_list("nobody", networks);
    let texts = ConditionList::Texts(Arc::new(TextSet::new(Vec::<String>::new()).unwrap()));
    definitions.define_changing_list("agents", texts);
    let is_possible = |text: &str| definitions.compile(text, FactStage::Request).is_ok();
    assert!(is_possible("client in @blocked"));
    assert!(is_possible("client in @blocked and client in 10.0.0.0/8"));
    assert!(is_possible("user_agent in @agents"));
    assert!(!is_possible("client in @nobody"));
    assert!(!is_possible(
        "client in @blocked and client in 10.0.0.0/8 and client in ::1"
    ));
}
