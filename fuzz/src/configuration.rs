//! Fuzz target of configurations.

use std::path::Path;

use apus_server::config;

/// A configuration gives either a plan, which is deterministic, or errors, each with a position in the file
/// that can be rendered.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // The file system is not used: a pattern such as `/**` would search all of it.
    if text.contains("include") {
        return;
    }
    let parse = || {
        let folder = Path::new("/no/such/folder");
        config::parse_str(text, "apus.toml", folder, &|name| {
            (name == "NAME").then(|| "value".to_owned())
        })
    };
    let findings = match parse() {
        Ok(plan) => {
            assert_eq!(plan.warnings.errors(), 0);
            let again = parse().expect("the same file has no mistake the second time");
            assert_eq!(format!("{:?}", plan.sites), format!("{:?}", again.sites));
            plan.warnings
        }
        Err(mistakes) => {
            assert_ne!(mistakes.errors(), 0);
            mistakes
        }
    };
    assert!(!findings.render(false).contains('\u{1b}'));
    for finding in findings.to_json().as_array().into_iter().flatten() {
        let line = finding["line"].as_u64().expect("a finding has a line");
        let column = finding["column"].as_u64().expect("a finding has a column");
        let found = text.split('\n').nth(line as usize - 1);
        let found = found.expect("the line is in the file");
        assert!(column as usize - 1 <= found.chars().count());
        assert_eq!(finding["text"].as_str(), Some(found.trim_end_matches('\r')));
    }
}

/// A text of a configuration is the same after its secrets were hidden and put back, and no placeholder stands for a secret elsewhere.
pub fn hidden_secrets(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let secrets = config::HiddenSecrets::new([7; 32]);
    let shown = secrets.hide(text);
    // What stands for nothing that is known stays, or is refused.
    if let Ok(restored) = secrets.restore(&shown, [""]) {
        assert_eq!(restored, shown);
    }
    let _ = secrets.hide_in_message(text, text);
    if text.parse::<toml::Table>().is_err() {
        return;
    }
    match secrets.restore(&shown, [text]) {
        Ok(restored) => assert_eq!(restored, text),
        // Whoever sent the text wrote a placeholder.
        Err(_) => assert!(text.contains("hidden-"), "{shown}"),
    }
}
