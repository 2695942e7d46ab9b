//! Tests of all definitions, and the page of documentation that is made of them.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use apus_metrics::MetricKind;

use super::catalog;

/// The line of the page behind which it is made of the definitions.
const MARK: &str =
    "<!-- Made of the definitions: APUS_BLESS=1 cargo test -p apus-server --lib metrics -->\n";

fn tables() -> String {
    let mut page = String::new();
    for (part, mut definitions) in catalog() {
        definitions.sort_by_key(|definition| definition.name());
        let _ = write!(
            page,
            "\n### {part}\n\n| metric | type | labels | what it is |\n| --- | --- | --- | --- |\n"
        );
        for definition in definitions {
            let labels = definition.label_names().iter();
            let labels: Vec<_> = labels.map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                definition.full_name(),
                definition.kind().name(),
                labels.join(", "),
                definition.help()
            );
        }
    }
    page
}

#[test]
fn the_page_of_metrics_is_made_of_their_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let (text, _) = page.split_once(MARK).expect("the page has the mark");
    let made = format!("{text}{MARK}{}", tables());
    if std::env::var_os("APUS_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    } else {
        assert!(
            made == page,
            "docs/metrics.md is old: run the command in it"
        );
    }
}

#[test]
fn each_metric_has_one_definition_by_the_conventions_of_prometheus() {
    let mut names = HashSet::new();
    for definition in catalog().into_iter().flat_map(|(_, part)| part) {
        let name = definition.name();
        assert!(names.insert(definition.full_name()), "{name} twice");
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        assert!(name.chars().all(is_plain), "{name}");
        for suffix in [
            "_total", "_seconds", "_bytes", "_ratio", "_count", "_sum", "_bucket",
        ] {
            assert!(
                !name.ends_with(suffix),
                "{name} has a suffix of its unit or kind"
            );
        }
        assert!(
            name.starts_with("apus_") || name.starts_with("process_"),
            "{name}"
        );
        let help = definition.help();
        assert!(help.ends_with('.') && !help.contains('|'), "{name}: {help}");
        for label in definition.label_names() {
            assert!(label.chars().all(is_plain), "{name}: {label}");
        }
    }
}

/// The names of metrics of Apus in a text, such as `apus_connections`.
fn names_in(text: &str) -> HashSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c: char| !is_part(c))
        .filter(|word| word.starts_with("apus_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_there_are() {
    let mut known: HashSet<String> = HashSet::new();
    for definition in catalog().into_iter().flat_map(|(_, part)| part) {
        let name = definition.full_name();
        if definition.kind() == MetricKind::Histogram {
            known.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        }
        known.insert(name);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib");
    for file in ["prometheus/alerts.yml", "grafana/apus.json"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let used = names_in(&text);
        assert!(used.len() > 8, "{file}: {used:?}");
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let json = fs::read_to_string(folder.join("grafana/apus.json")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
}
