//! `PasswordRules`: which passwords an account may have (NIST SP 800-63B section 3.1.1.2).

/// The rules of new passwords: a length, and none that attackers try first. No rule asks for digits or signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordRules {
    min: usize,
    max: usize,
}

/// Parts of passwords that are guessed first. A password that is one of them, repeated or with digits around it, is
/// rejected.
const COMMON: [&str; 34] = [
    "password",
    "passwort",
    "qwerty",
    "qwertyuiop",
    "qwertz",
    "qwertzuiop",
    "asdfghjkl",
    "azerty",
    "azertyuiop",
    "zxcvbnm",
    "iloveyou",
    "letmein",
    "welcome",
    "admin",
    "administrator",
    "princess",
    "sunshine",
    "football",
    "baseball",
    "superman",
    "batman",
    "dragon",
    "monkey",
    "master",
    "shadow",
    "trustno",
    "changeme",
    "secret",
    "michael",
    "jordan",
    "hunter",
    "abc",
    "test",
    "hallo",
];

impl Default for PasswordRules {
    /// 10 to 128 characters.
    fn default() -> Self {
        Self { min: 10, max: 128 }
    }
}

impl PasswordRules {
    /// The least number of characters.
    #[must_use]
    pub fn min_length(mut self, min: usize) -> Self {
        self.min = min;
        self
    }

    /// Checks a new password. `known` are texts that belong to the account and that others know, as its name and address.
    ///
    /// ```
    /// use apus_account::PasswordRules;
    ///
    /// let rules = PasswordRules::default();
    /// assert!(rules.check("correct horse", &["ada@example.com"]).is_ok());
    /// for password in ["short", "1234567890", "Password123!", "aaaaaaaaaaaa", "ada@example.com1"] {
    ///     assert!(rules.check(password, &["ada@example.com"]).is_err(), "{password}");
    /// }
    /// ```
    ///
    /// # Errors
    /// What is wrong, for the user.
    pub fn check(&self, password: &str, known: &[&str]) -> Result<(), String> {
        let Self { min, max } = self;
        let length = password.chars().count();
        if length < *min {
            return Err(format!("A password has at least {min} characters."));
        }
        if length > *max {
            return Err(format!("A password has at most {max} characters."));
        }
        let lower = password.to_lowercase();
        let letters = lower.trim_matches(|c: char| !c.is_alphabetic());
        let is_known = known.iter().any(|known| {
            let known = known.to_lowercase();
            let core = lower.replace(&known, "");
            !known.is_empty() && core.chars().count() < min / 2
        });
        let mut characters: Vec<char> = lower.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        let is_sequence = is_sequence(&lower);
        let is_common = COMMON
            .iter()
            .any(|common| letters.replace(common, "").is_empty());
        if is_known || is_sequence || is_common || characters.len() < 4 {
            return Err("This password is one of those that are guessed first.".to_owned());
        }
        Ok(())
    }
}

/// Whether each character follows the one before it, as in `123456` and `fedcba`.
fn is_sequence(text: &str) -> bool {
    let codes: Vec<u32> = text.chars().map(u32::from).collect();
    let steps = codes.iter().zip(codes.iter().skip(1));
    let mut steps = steps.map(|(one, other)| i64::from(*other) - i64::from(*one));
    // `0` follows `9` on a keyboard.
    steps.all(|step| matches!(step, -1 | 0 | 1 | -9 | 9))
}
