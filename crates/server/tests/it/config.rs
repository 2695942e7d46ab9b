//! Reading configurations: mistakes and their places, includes, the environment, paths.

use std::fs;
use std::path::Path;

use apus_server::config::{self, Diagnostics, Handler, Plan, Root, ServeDir};
use tempfile::TempDir;

/// A folder with `public/`, and a certificate for example.com.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["public", "other", "sites"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for (name, host) in [("", "example.com"), ("other-", "example.org")] {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        let write = |file: &str, text: String| {
            fs::write(folder.path().join(format!("{name}{file}")), text).unwrap();
        };
        write("cert.pem", made.cert.pem());
        write("key.pem", made.signing_key.serialize_pem());
    }
    folder
}

pub(crate) fn parse_in(folder: &Path, text: &str) -> Result<Plan, Diagnostics> {
    config::parse_str(text, "apus.toml", folder, &|name| match name {
        "PORT" => Some("8081".to_owned()),
        _ => None,
    })
}

/// The findings about `text` as `line:column severity: message; label; help`.
fn findings(text: &str) -> Vec<String> {
    let folder = folder();
    let diagnostics = match parse_in(folder.path(), text) {
        Ok(plan) => plan.warnings,
        Err(diagnostics) => diagnostics,
    };
    let json = diagnostics.to_json();
    json.as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let mut line = format!(
                "{}:{} {}; {}",
                finding["line"],
                finding["column"],
                finding["message"].as_str().unwrap(),
                finding["label"].as_str().unwrap_or_default(),
            );
            if let Some(help) = finding["help"].as_str() {
                line.push_str("; ");
                line.push_str(help);
            }
            line.replace(&format!("{}/", folder.path().display()), "")
        })
        .collect()
}

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

#[test]
fn each_mistake_is_told_with_its_place() {
    let mut failed = Vec::new();
    for (text, expected) in MISTAKES {
        let text = text.replace("SITE\n", SITE);
        let found = findings(&text);
        if found != [*expected] {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

const MISTAKES: &[(&str, &str)] = &[];
