//! Secrets in the text of a configuration: they are hidden where the text is shown, and put back when it is sent again.

use std::collections::HashMap;
use std::ops::Range;

use apus_tokens::{Hexadecimal, hmac_sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How a placeholder begins. Sixteen hexadecimal digits follow.
const PREFIX: &str = "hidden-";
const DIGITS: usize = 16;

/// Parts of the names of keys, fields and variables whose values are secrets.
const SECRET_NAMES: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "credential",
    "api_key",
    "apikey",
];

/// The ends of names that say where a secret is, and not what it is.
const PLACES: [&str; 4] = ["_file", "_url", "_name", "_dir"];

/// Hides the secrets of configurations: the values of keys, fields and variables whose names say so, and the passwords in URLs.
///
/// A secret is shown as `hidden-` and a number that depends on it and on a random key of the process: equal secrets have equal
/// placeholders, and nobody can try what a placeholder stands for.
#[derive(Clone)]
pub struct HiddenSecrets {
    key: [u8; 32],
}

impl HiddenSecrets {
    /// Hides them with this key, which has to be random.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The text with placeholders for its secrets.
    pub fn hide(&self, text: &str) -> String {
        replace(text, |secret| Some(self.placeholder(secret)))
    }

    /// The text with the secrets that its placeholders stand for, which `texts` have.
    ///
    /// # Errors
    /// A placeholder stands for no such secret, or where no secret can stand: it would show the secret to clients. The lines.
    pub fn restore<'a>(
        &self,
        text: &str,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<String, Vec<usize>> {
        // In a text that is no TOML, what would be a secret is guessed. It is refused anyway.
        if !text.contains(PREFIX) || DeTable::parse(text).is_err() {
            return Ok(text.to_owned());
        }
        let mut known = HashMap::new();
        for text in texts {
            for secret in secrets(text).into_iter().filter_map(|at| text.get(at)) {
                known.insert(self.placeholder(secret), secret.to_owned());
            }
        }
        let restored = replace(text, |placeholder| known.get(placeholder).cloned());
        let left: Vec<_> = restored
            .lines()
            .zip(1..)
            .filter(|(line, _)| has_placeholder(line))
            .map(|(_, number)| number)
            .collect();
        if left.is_empty() {
            Ok(restored)
        } else {
            Err(left)
        }
    }

    /// A message with placeholders for the secrets that `text` has: messages quote the lines that they are about.
    pub fn hide_in_message(&self, message: &str, text: &str) -> String {
        let mut message = message.to_owned();
        for secret in secrets(text).into_iter().filter_map(|at| text.get(at)) {
            if !secret.is_empty() && message.contains(secret) {
                message = message.replace(secret, &self.placeholder(secret));
            }
        }
        message
    }

    fn placeholder(&self, secret: &str) -> String {
        let digest = hmac_sha256(&self.key, secret.as_bytes());
        let digits = Hexadecimal(&digest).to_string();
        format!("{PREFIX}{}", digits.get(..DIGITS).unwrap_or_default())
    }
}

impl std::fmt::Debug for HiddenSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HiddenSecrets").finish_non_exhaustive()
    }
}

/// Replaces the secrets of a text; `None` leaves one as it is.
fn replace(text: &str, replacement: impl Fn(&str) -> Option<String>) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut end = 0;
    for at in secrets(text) {
        let (Some(before), Some(secret)) = (text.get(end..at.start), text.get(at.clone())) else {
            continue;
        };
        replaced.push_str(before);
        replaced.push_str(&replacement(secret).unwrap_or_else(|| secret.to_owned()));
        end = at.end;
    }
    replaced.push_str(text.get(end..).unwrap_or_default());
    replaced
}

fn has_placeholder(line: &str) -> bool {
    line.split(PREFIX).skip(1).any(|after| {
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit);
        digits.count() >= DIGITS
    })
}

/// The places of secrets as they are written, without quotation marks, in order.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut found = Vec::new();
    find_in_table(document.get_ref(), text, false, &mut found);
    found.sort_by_key(|at| at.start);
    found.dedup();
    found
}

fn find_in_table(table: &DeTable<'_>, text: &str, is_secret: bool, found: &mut Vec<Range<usize>>) {
    // The key of TSIG stands beside its name.
    let has_key_name = table.iter().any(|(key, _)| key.get_ref() == "key_name");
    for (key, value) in table {
        let name = key.get_ref().to_ascii_lowercase().replace('-', "_");
        let is_place = PLACES.iter().any(|end| name.ends_with(end));
        let says_so = SECRET_NAMES.iter().any(|part| name.contains(part));
        let is_tsig_key = has_key_name && name == "key";
        find_in_value(
            value,
            text,
            is_secret || (says_so && !is_place) || is_tsig_key,
            found,
        );
    }
}

fn find_in_value(
    value: &Spanned<DeValue<'_>>,
    text: &str,
    is_secret: bool,
    found: &mut Vec<Range<usize>>,
) {
    match value.get_ref() {
        DeValue::Table(table) => find_in_table(table, text, is_secret, found),
        DeValue::Array(values) => {
            for value in values {
                find_in_value(value, text, is_secret, found);
            }
        }
        DeValue::String(_) => {
            let inner = without_quotes(text, value.span());
            let written = text.get(inner.clone()).unwrap_or_default();
            if is_secret {
                if !written.is_empty() && !is_reference(written) {
                    found.push(inner);
                }
            } else {
                let passwords = passwords_of_urls(written).into_iter();
                found.extend(passwords.map(|at| inner.start + at.start..inner.start + at.end));
            }
        }
        _ => {}
    }
}

/// The place of a string without its quotation marks.
fn without_quotes(text: &str, at: Range<usize>) -> Range<usize> {
    let written = text.get(at.clone()).unwrap_or_default();
    for quotes in ["\"\"\"", "'''", "\"", "'"] {
        let inner = written
            .strip_prefix(quotes)
            .and_then(|rest| rest.strip_suffix(quotes));
        if inner.is_some() {
            return at.start + quotes.len()..at.end - quotes.len();
        }
    }
    at
}

/// Whether a value is only the name of a variable of the environment.
fn is_reference(written: &str) -> bool {
    let name = written
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// The places of passwords in the URLs of a text (`user:password@host`).
fn passwords_of_urls(written: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = written.get(from..).and_then(|rest| rest.find("://")) {
        let start = from + at + "://".len();
        let rest = written.get(start..).unwrap_or_default();
        let end = rest.find(|c: char| "/?#\"'".contains(c) || c.is_whitespace());
        let authority = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@')
            && let Some((name, password)) = user.split_once(':')
            && !password.is_empty()
            && !is_reference(password)
        {
            let password_start = start + name.len() + 1;
            found.push(password_start..password_start + password.len());
        }
        from = start;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# a comment with password = "no value"
[global]
acme_storage = "rediss://user:hunter2@host/1"
admin_accounts = "accounts.toml"

[[sites]]
listen = 80
upstream = "http://a:${PASS}@b"
request_headers = { set = { Authorization = "Basic abc", X-Plain = "seen" } }
acme = { dns = { provider = "rfc2136", key_name = "k", key = 'c2VjcmV0' } }
basic_auth = { password_file = "users", realm = "a" }
[sites.php]
env = { DB_PASSWORD = "${DB}", API_KEY = """
long""", tokens = ["one", "two"], OTHER = "x" }
"#;

    fn hidden() -> HiddenSecrets {
        HiddenSecrets::new([7; 32])
    }

    #[test]
    fn secrets_are_hidden_and_put_back() {
        let shown = hidden().hide(TEXT);
        for secret in ["hunter2", "Basic abc", "c2VjcmV0", "long", "one", "two"] {
            assert!(TEXT.contains(secret) && !shown.contains(secret), "{shown}");
        }
        for seen in [
            "\"seen\"",
            "\"accounts.toml\"",
            "\"users\"",
            "${PASS}",
            "${DB}",
            "= \"no value\"",
            "rediss://user:hidden-",
            "OTHER = \"x\"",
        ] {
            assert!(shown.contains(seen), "{seen}: {shown}");
        }
        assert_eq!(hidden().restore(&shown, [TEXT]).unwrap(), TEXT);
        let other = HiddenSecrets::new([8; 32]);
        assert!(other.restore(&shown, [TEXT]).is_err());
    }

    #[test]
    fn a_placeholder_stands_only_where_a_secret_can() {
        let shown = hidden().hide("token = \"abc\"\n");
        let placeholder = shown.split('"').nth(1).unwrap();
        for (text, lines) in [
            (format!("\nbody = \"{placeholder}\"\n"), vec![2]),
            (
                format!("# {placeholder}\ntoken = \"x{placeholder}\"\n"),
                vec![1, 2],
            ),
        ] {
            let restored = hidden().restore(&text, ["token = \"abc\"\n"]);
            assert_eq!(restored.unwrap_err(), lines, "{text}");
        }
        let unknown = "token = \"hidden-0123456789abcdef\"\n";
        assert_eq!(hidden().restore(unknown, [""]).unwrap_err(), [1]);
        let word = "body = \"a hidden-place\"\n";
        assert_eq!(hidden().restore(word, [""]).unwrap(), word);
    }

    #[test]
    fn messages_do_not_quote_secrets() {
        let message = "line 1: token = \"abc\" is wrong";
        let shown = hidden().hide_in_message(message, "token = \"abc\"\n");
        assert!(
            !shown.contains("abc") && shown.contains("line 1"),
            "{shown}"
        );
    }

    #[test]
    fn any_text_is_taken() {
        for text in [
            "",
            "token",
            "token = ",
            "token = \"",
            "token = \"\"",
            "token = '''a'''",
            "a = \"://:@\"",
            "a = \"http://é:ü@ö http://b:c@d\"",
            "token = \"hidden-\"",
            "[[token]]\na = [{ b = \"c\" }]",
        ] {
            let shown = hidden().hide(text);
            let restored = hidden().restore(&shown, [text]);
            if DeTable::parse(text).is_ok() {
                assert_eq!(restored.as_deref(), Ok(text), "{text}");
            }
        }
    }
}
