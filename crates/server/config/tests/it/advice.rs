//! Messages about files that were written for other servers, or with mistakes that are often made: the whole text of each, with its
//! place.

use std::collections::BTreeSet;

use apus_config as config;

use crate::documents::{findings, folder, parse_in};

#[test]
fn each_message_has_its_place_and_says_what_to_write() {
    // Pairs of a file and what is found in it.
    let messages = include_str!("messages.json");
    let messages: Vec<(String, Vec<String>)> = serde_json::from_str(messages).unwrap();
    assert!(messages.len() > 100);
    let mut failed = Vec::new();
    for (text, expected) in messages {
        let found = findings(&text);
        if found != expected {
            failed.push(format!(
                "{text}\n  expected {expected:#?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// The rows of the page about other servers: the name, and what there is here.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.strip_suffix(" |")?.split_once("` | "))
        .collect()
}

#[test]
fn each_name_of_another_server_has_advice_wherever_it_is_written() {
    let page = config::equivalents();
    assert!(rows(&page).len() > 250);
    for (name, here) in rows(&page) {
        let here = here.replace("\\|", "|");
        let here = match here.strip_prefix("There is none: ") {
            Some(why) => format!("does not exist here: {}", why.trim_end_matches('.')),
            None => format!("is here {here}"),
        };
        let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
        for (text, line) in [
            (format!("{site}{name} = 1\n"), 4),
            (
                format!("{site}[[sites.locations]]\npath = \"/a/\"\n{name} = 1\n"),
                6,
            ),
            (format!("[global]\n{name} = 1\n{site}"), 2),
        ] {
            let found = findings(&text);
            let title = format!("{line}:1 unknown key `{name}`; no such key in this table; `");
            // Caddy and nginx may have a name in common; then the advice is that for the first one.
            let is_good = found.len() == 1 && found[0].starts_with(&title);
            assert!(is_good, "{text}\n{found:#?}");
            assert!(found[0].contains(&here), "{here} is missing: {found:#?}");
        }
    }
}

#[test]
fn the_keys_that_advice_names_exist() {
    fn collect(schema: &serde_json::Value, names: &mut BTreeSet<String>) {
        match schema {
            serde_json::Value::Object(object) => {
                if let Some(properties) = object.get("properties").and_then(|all| all.as_object()) {
                    names.extend(properties.keys().cloned());
                }
                object.values().for_each(|inner| collect(inner, names));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|inner| collect(inner, names)),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    collect(&config::schema(), &mut names);
    let page = config::equivalents();
    for (name, here) in rows(&page) {
        let code = here.split('`').skip(1).step_by(2);
        let keys =
            code.filter(|code| !code.contains([' ', '/']) && !code.starts_with(char::is_uppercase));
        for key in keys.flat_map(|key| key.split('.')) {
            assert!(names.contains(key), "{name}: there is no key {key}");
        }
    }
}

#[test]
fn sizes_have_units_or_are_numbers_in_the_unit_of_their_key() {
    let folder = folder();
    let limits = |keys: &str| {
        let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
        let plan = parse_in(folder.path(), &format!("[global]\n{keys}\n{site}"));
        plan.map(|plan| plan.global.limits)
    };
    for window in [
        "16384",
        "\"16M\"",
        "\"16m\"",
        "\"16 MB\"",
        "\"16384 KiB\"",
        "\"16777216b\"",
    ] {
        let read = limits(&format!("h2_receive_window = {window}")).unwrap();
        assert_eq!(read.h2_receive_window, 16 << 20, "{window}");
    }
    let read =
        limits("h2_max_frame_size = \"32K\"\nclient_body_rate = \"1k\"\ndiscard_body_size = 0.5")
            .unwrap();
    assert_eq!(read.h2_max_frame_size, 32 << 10);
    assert_eq!(read.body_rate, 1024);
    assert_eq!(read.drain_bytes, 512);
    // One below, at, and above the bounds.
    for (size, is_good) in [
        ("\"262143B\"", false),
        ("\"256K\"", true),
        ("2097151", true),
        ("\"2147482624B\"", true),
        ("\"2147482625B\"", false),
        ("2097152", false),
    ] {
        let read = limits(&format!("h2_receive_window = {size}"));
        assert_eq!(read.is_ok(), is_good, "{size}");
    }
}

#[test]
fn a_number_that_was_probably_meant_in_bytes_is_a_warning() {
    let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
    let about = |size: u64| findings(&format!("{site}client_max_body_size = {size}\n"));
    for size in [0, 50, 1_047_552, 1_048_575, 1_048_577, 999_999_999] {
        assert!(about(size).is_empty(), "{size}: {:?}", about(size));
    }
    for (size, expected) in [
        (
            1_048_576,
            "4:24 the number is in MB: it means 1T; a number of bytes?; write 1 or \"1M\" for 1048576 bytes, or \"1T\" if so \
             much is meant",
        ),
        (
            1_049_600,
            "4:24 the number is in MB: it means 1025G; a number of bytes?; write \"1025K\" for 1049600 bytes, or \"1025G\" if \
             so much is meant",
        ),
    ] {
        assert_eq!(about(size), [expected]);
    }
}
