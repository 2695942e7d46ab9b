//! Users with stored passwords, as in an `htpasswd` file.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use apus_http::StatusCode;
use aws_lc_rs::{constant_time, hmac, rand};

use super::{Credentials, password};
use apus_handler::Error;

/// How long a password that was right is not compared again.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Users with stored passwords.
///
/// A password that was right is right for the same name for five minutes, without the memory and time that a comparison costs. One
/// password of each user is remembered, as a digest under a key that only this process has.
pub struct Users {
    hashes: HashMap<String, String>,
    /// The hashes that the passwords of unknown names are compared with.
    decoys: Vec<String>,
    verified: Mutex<HashMap<String, VerifiedPassword>>,
    key: Option<hmac::Key>,
}

/// A password that was right.
struct VerifiedPassword {
    tag: hmac::Tag,
    /// Until when it is not compared again.
    until: Duration,
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
    /// All lines that are not valid users. DES and plain text are rejected: a reader of the file could find the passwords soon.
    /// MD5 (`$apr1$`) and SHA-1 (`{SHA}`), which are hardly better, are accepted for old files: [`Self::weak`].
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

    /// How many have a hash from which a reader of the file could find the password soon: MD5, SHA-1.
    pub fn weak(&self) -> usize {
        let hashes = self.hashes.values();
        hashes.filter(|hash| password::is_weak(hash)).count()
    }

    fn new(hashes: HashMap<String, String>) -> Self {
        let random = rand::SystemRandom::new();
        let mut decoys: Vec<_> = hashes.values().cloned().collect();
        decoys.sort();
        Self {
            hashes,
            decoys,
            verified: Mutex::default(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
        }
    }

    /// Whether the password is the one that is stored for the name. For a name that is not stored it takes as
    /// long as for one that is.
    pub(super) async fn check(&self, given: Credentials) -> Result<bool, Error> {
        let stored = self.hashes.get(&given.name);
        let is_known = stored.is_some();
        let hash = stored.or_else(|| self.decoy(&given.name)).cloned();
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
        if is_right && let Some(tag) = self.tag(&given) {
            let until = apus_clock::monotonic().saturating_add(REMEMBERED);
            let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
            verified.insert(given.name, VerifiedPassword { tag, until });
        }
        Ok(is_right)
    }

    /// Whether the password was right before.
    pub(super) fn is_verified(&self, given: &Credentials) -> bool {
        let Some(tag) = self.tag(given) else {
            return false;
        };
        let now = apus_clock::monotonic();
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.get(&given.name).is_some_and(|verified| {
            now < verified.until
                && constant_time::verify_slices_are_equal(verified.tag.as_ref(), tag.as_ref())
                    .is_ok()
        })
    }

    /// The digest of a name, its stored hash and a password. `None` for an unknown name.
    fn tag(&self, given: &Credentials) -> Option<hmac::Tag> {
        let stored = self.hashes.get(&given.name)?;
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        for part in [&given.name, stored] {
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
        context.update(given.password.as_bytes());
        Some(context.sign())
    }

    /// The hash that the password of an unknown name is compared with: the same one each time. So the time is the one of a user, also
    /// where users have hashes of several kinds.
    fn decoy(&self, name: &str) -> Option<&String> {
        let tag = hmac::sign(self.key.as_ref()?, name.as_bytes());
        let number = tag.as_ref().iter().take(4);
        let number = number.fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        self.decoys.get(number.checked_rem(self.decoys.len())?)
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
        users.is_verified(&given) || runtime.unwrap().block_on(users.check(given)).unwrap()
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
    fn weak_hashes_of_old_files_are_compared_and_counted() {
        let text = format!(
            "{BCRYPT}\nmd5:$apr1$saltsalt$M2b95Jota4AKoI/tH3eyJ/\nsha1:{{SHA}}MXmmXv8lI7veU8mbKZtxnBCjUjU=\n"
        );
        let users = Users::from_htpasswd(&text).unwrap();
        assert_eq!(users.weak(), 2);
        for name in ["ada", "md5", "sha1"] {
            assert!(!check(&users, name, "wrong"), "{name}");
            assert!(check(&users, name, "correct"), "{name}");
        }
        assert!(!check(&users, "nobody", "correct"));
    }

    #[test]
    fn a_right_password_is_remembered_for_five_minutes_with_its_name() {
        let clock = apus_clock::TestClock::default();
        let _entered = clock.enter();
        clock.freeze();
        let users = Users::from_htpasswd(&format!("{BCRYPT}\nbob:{SHA_512}\n")).unwrap();
        let given = |name: &str, password: &str| Credentials {
            name: name.to_owned(),
            password: password.to_owned(),
            client: None,
        };
        assert!(!users.is_verified(&given("ada", "correct")));
        assert!(check(&users, "ada", "correct"));
        let is_verified = |name, password| users.is_verified(&given(name, password));
        assert!(is_verified("ada", "correct"));
        for (name, password) in [
            ("ada", "wrong"),
            ("bob", "correct"),
            ("ad", "acorrect"),
            ("", ""),
        ] {
            assert!(!is_verified(name, password), "{name} {password}");
        }
        clock.advance(Duration::from_nanos(299_999_999_999));
        assert!(is_verified("ada", "correct"));
        clock.advance(Duration::from_nanos(1));
        assert!(!is_verified("ada", "correct"));
    }

    #[test]
    fn names_all_lines_that_are_no_users() {
        let text = format!(
            "{BCRYPT}\nada:$2y$05$short\nmd5:$apr1$saltsalt$M2b95Jota4AKoI\nsha1:{{SHA}}W6ph5Mm5Pz8Gg=\n\
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
