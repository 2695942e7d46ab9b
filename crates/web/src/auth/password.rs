//! Passwords to store and to compare with: Argon2id (RFC 9106) with 19 MiB and two passes, as OWASP
//! recommends.
//!
//! Each takes a few hundredths of a second of a core, on a thread that serves no requests. As many
//! run at a time as there are cores, which bounds the memory that log-ins take.
//!
//! ```
//! use apus::auth::password;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let stored = password::hash("correct horse").await?;
//! assert!(password::verify("correct horse", Some(stored.clone())).await?);
//! assert!(!password::verify("correct house", Some(stored)).await?);
//! assert!(!password::verify("anything", None).await?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::sync::LazyLock;

use argon2::password_hash::{Error, PasswordHasher, PasswordVerifier};
use argon2::{Argon2, PasswordHash};
use tokio::sync::Semaphore;

/// How many are made or compared at a time.
static AT_A_TIME: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism();
    Semaphore::new(cores.map_or(1, std::num::NonZero::get))
});

/// What to store in place of a password: `$argon2id$...`, about 100 characters.
///
/// # Errors
/// The system has no random bytes or no thread.
pub async fn hash(password: impl Into<String>) -> Result<String, PasswordError> {
    let password = password.into();
    apart(move || made_of(&password)).await
}

/// Whether a password is the one that was stored. With nobody to compare with, it takes as long and
/// says no, so that the time does not tell which names there are.
///
/// # Errors
/// What was stored is not what [`hash`] makes, or the system has no thread.
pub async fn verify(
    password: impl Into<String>,
    stored: Option<String>,
) -> Result<bool, PasswordError> {
    let password = password.into();
    apart(move || {
        let Some(stored) = stored else {
            made_of(&password)?;
            return Ok(false);
        };
        match Argon2::default().verify_password(password.as_bytes(), stored.as_str()) {
            Ok(()) => Ok(true),
            Err(Error::PasswordInvalid) => Ok(false),
            Err(error) => Err(PasswordError(error.to_string())),
        }
    })
    .await
}

fn made_of(password: &str) -> Result<String, PasswordError> {
    let made: Result<PasswordHash, Error> = Argon2::default().hash_password(password.as_bytes());
    match made {
        Ok(hash) => Ok(hash.to_string()),
        Err(error) => Err(PasswordError(error.to_string())),
    }
}

async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
) -> Result<T, PasswordError> {
    // It is never closed.
    let _permit = AT_A_TIME.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(PasswordError(error.to_string())))
}

/// A password that could not be made into what is stored, or not be compared with it.
#[derive(Clone, Debug)]
pub struct PasswordError(String);

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a password could not be handled: {}", self.0)
    }
}

impl std::error::Error for PasswordError {}
