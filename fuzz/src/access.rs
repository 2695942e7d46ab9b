//! Fuzz target of files of users.

use apus_layers::auth::Users;

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
