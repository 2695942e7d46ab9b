//! Fuzz targets of files of users and of key sets.

use apus_layers::auth::{KeySet, Users};

/// A file of users. Each line is a user, or is named with its number and without its text. What is valid stays valid when lines
/// are read one by one.
pub fn htpasswd(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let is_user = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    };
    match Users::from_htpasswd(&text) {
        Ok(users) => {
            let lines: Vec<_> = text.lines().filter(|line| is_user(line)).collect();
            assert_eq!(users.is_empty(), lines.is_empty());
            assert!(users.weak() <= lines.len());
            for line in lines {
                assert!(Users::from_htpasswd(line).is_ok(), "{line}");
            }
            // The names are shown, and no hash.
            assert!(!format!("{users:?}").contains("$2y$05$"));
        }
        Err(invalid) => {
            let numbers: Vec<_> = invalid.iter().map(|user| user.line).collect();
            assert!(numbers.is_sorted() && !numbers.is_empty());
            for number in numbers {
                let line = text.lines().nth(number - 1).expect("a line of the file");
                assert!(is_user(line), "{line}");
            }
        }
    }
}

/// A key set is read or refused, and what is read has a key for signatures.
pub fn jwks(data: &[u8]) {
    let Ok(keys) = KeySet::parse(data) else {
        return;
    };
    assert!((1..=100).contains(&keys.len()));
    // Each key alone is read as well, or left out again.
    let whole: serde_json::Value = serde_json::from_slice(data).expect("a set that was read");
    let members = whole["keys"].as_array().expect("a set that was read");
    let alone = members.iter().filter(|key| {
        let set = serde_json::json!({ "keys": [key] }).to_string();
        KeySet::parse(set.as_bytes()).is_ok()
    });
    assert_eq!(alone.count(), keys.len());
}
