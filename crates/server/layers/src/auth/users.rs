//! Users with stored passwords, as in an `htpasswd` file.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use apus_http::StatusCode;
use aws_lc_rs::{hmac, rand};

use super::{Credentials, password};
use apus_handler::Error;

/// Users with stored passwords.
///
/// A password that was right once is right for the same name until the process ends, without the memory and
/// time that a comparison costs.
pub struct Users {
    hashes: HashMap<String, String>,
    /// The passwords that were right, by name; under a key that only this process has.
    verified: Mutex<HashMap<String, hmac::Tag>>,
    key: Option<hmac::Key>,
}

/// A line of an `htpasswd` file that is not a valid user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidUser {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong with it, without the line itself.
    pub reason: &'static str,
}

impl Users {
    /// Reads an `htpasswd` file: `name:hash` on each line, and comments that start with `#`. Hashes are made
    /// by bcrypt (`htpasswd -B`), SHA-crypt (`openssl passwd -6`) and Argon2 ([`password::hash`]).
    ///
    /// # Errors
    /// All lines that are not valid users. MD5, SHA-1, DES and plain text are rejected: a reader of the file could find
    /// the passwords soon.
    pub fn from_htpasswd(text: &str) -> Result<Self, Vec<InvalidUser>> {
        let mut hashes = HashMap::new();
        let mut invalid = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let reason = match line.split_once(':') {
                None => "expected `name:hash`",
                Some(("", _)) => "expected a name before the colon",
                Some((name, _)) if hashes.contains_key(name) => {
                    "another line before has the same name"
                }
                Some((name, rest)) => {
                    // nginx allows a comment behind the hash.
                    let hash = rest.split(':').next().unwrap_or_default();
                    match password::check_stored(hash) {
                        Ok(()) => {
                            hashes.insert(name.to_owned(), hash.to_owned());
                            continue;
                        }
                        Err(reason) => reason,
                    }
                }
            };
            invalid.push(InvalidUser {
                line: index.saturating_add(1),
                reason,
            });
        }
        if invalid.is_empty() {
            Ok(Self::new(hashes))
        } else {
            Err(invalid)
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn new(hashes: HashMap<String, String>) -> Self {
        let random = rand::SystemRandom::new();
        Self {
            hashes,
            verified: Mutex::default(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
        }
    }

    /// Whether the password is the one that is stored for the name. For a name that is not stored it takes as
    /// long as for one that is.
    pub(super) async fn check(&self, given: Credentials) -> Result<bool, Error> {
        if self.is_verified(&given) {
            return Ok(true);
        }
        let stored = self.hashes.get(&given.name);
        let is_known = stored.is_some();
        let hash = stored.or_else(|| self.hashes.values().next()).cloned();
        let is_right = match password::verify(given.client, given.password.clone(), hash).await {
            Ok(is_right) => is_right && is_known,
            // Too many passwords are compared at the same time.
            Err(error) if error.status_code() != StatusCode::INTERNAL_SERVER_ERROR => {
                return Err(error);
            }
            Err(error) => {
                tracing::error!(?error, name = given.name, "a password cannot be compared");
                false
            }
        };
        if is_right && let Some(key) = &self.key {
            let tag = hmac::sign(key, given.password.as_bytes());
            let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
            verified.insert(given.name, tag);
        }
        Ok(is_right)
    }

    fn is_verified(&self, given: &Credentials) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(key), Some(tag)) = (&self.key, verified.get(&given.name)) else {
            return false;
        };
        hmac::verify(key, given.password.as_bytes(), tag.as_ref()).is_ok()
    }
}

impl<N: Into<String>, H: Into<String>> FromIterator<(N, H)> for Users {
    fn from_iter<I: IntoIterator<Item = (N, H)>>(users: I) -> Self {
        let users = users.into_iter();
        Self::new(
            users
                .map(|(name, hash)| (name.into(), hash.into()))
                .collect(),
        )
    }
}

/// Without the hashes.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.hashes.keys().collect();
        names.sort();
        f.debug_tuple("Users").field(&names).finish()
    }
}

impl fmt::Display for InvalidUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for InvalidUser {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `htpasswd -nbBC 5 ada correct` printed.
    const BCRYPT: &str = "ada:$2y$05$eLhYL5P0nSfQkLb62B5u7u1s0Bm8rXDXkrzj6A/qD48Cf31VM60mW";
    /// What `openssl passwd -6 correct` and `openssl passwd -5 correct` printed.
    const SHA_512: &str = "$6$saltsalt$VFNygchiuqzGiJ9btXBYiRPWRSB8Mft4djhLapjuz82wz4q5uySRx4UUVvzmJaOudXyOkZbCLlWgcj/gdgAe.1";
    const SHA_256: &str = "$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1";

    fn check(users: &Users, name: &str, password: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let given = Credentials {
            name: name.to_owned(),
            password: password.to_owned(),
            client: None,
        };
        runtime.unwrap().block_on(users.check(given)).unwrap()
    }

    #[test]
    fn reads_what_htpasswd_and_openssl_write() {
        let text = format!("# people\n\n{BCRYPT}\nbob:{SHA_512}\ncleo:{SHA_256}:a comment\r\n");
        let users = Users::from_htpasswd(&text).unwrap();
        for name in ["ada", "bob", "cleo"] {
            assert!(!check(&users, name, "wrong"), "{name}");
            // Compared, and then remembered.
            for _ in 0..2 {
                assert!(check(&users, name, "correct"), "{name}");
            }
            assert!(!check(&users, name, "wrong"), "{name}");
        }
        assert!(!check(&users, "nobody", "correct"));
        assert!(!check(&users, "", ""));
    }

    #[test]
    fn reads_what_password_hash_makes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let hash = runtime
            .unwrap()
            .block_on(password::hash(None, "correct"))
            .unwrap();
        let users = Users::from_htpasswd(&format!("ada:{hash}")).unwrap();
        assert!(check(&users, "ada", "correct"));
    }

    #[test]
    fn names_all_lines_that_are_no_users() {
        let text = format!(
            "{BCRYPT}\nada:$2y$05$short\nmd5:$apr1$saltsalt$M2b95Jota4AKoI/tH3eyJ/\nsha1:{{SHA}}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n\
             plain:correct\nnothing\n:{SHA_256}\n{BCRYPT}\nbob:$6$\n"
        );
        let invalid = Users::from_htpasswd(&text).unwrap_err();
        let lines: Vec<_> = invalid.iter().map(|user| user.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(
            invalid
                .iter()
                .all(|user| !user.to_string().contains("correct"))
        );
    }
}
