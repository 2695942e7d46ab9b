//! Passwords by Argon2id (RFC 9106) with 19 MiB and two passes, as OWASP recommends.
//!
//! Each takes a few hundredths of a second of a core and 19 MiB, on a thread that serves no requests.
//! That is what makes guessing expensive, for the server as well, so it is bounded:
//!
//! - As many run at a time as half of the cores, and at least one.
//! - Of one client at most [`OF_ONE_CLIENT`] run or wait at a time, an IPv6 network of 64 bits being one
//!   client. More are rejected with 429 and `Retry-After`.
//! - Of all clients at most [`WAITING`] for each that runs. More are rejected with 503 and
//!   `Retry-After`.
//!
//! Work whose client is gone counts until it is done. Guesses per hour need a rate limit.
//!
//! ```
//! # use apus_handler::{ClientInfo, Result};
//! # use apus_layers::auth::password;
//! async fn log_in(client: ClientInfo, given: String, stored: Option<String>) -> Result<bool> {
//!     password::verify(client.ip, given, stored).await
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let stored = password::hash(None, "correct horse").await?;
//! assert!(password::verify(None, "correct horse", Some(stored.clone())).await?);
//! assert!(!password::verify(None, "correct house", Some(stored)).await?);
//! assert!(!password::verify(None, "anything", None).await?);
//! # Ok::<(), apus_handler::Error>(())
//! # }).unwrap();
//! ```

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, PoisonError};

use apus_http::{HeaderValue, header};
use argon2::password_hash::{Error as HashError, PasswordHasher, PasswordVerifier};
use argon2::{Argon2, PasswordHash};
use sha_crypt::ShaCrypt;
use tokio::sync::Semaphore;

use super::legacy_hashes;
use crate::client_network::client_network;
use apus_handler::Error;

/// How many passwords of one client may be worked on or wait at a time.
pub const OF_ONE_CLIENT: usize = 4;

/// How many may wait for each that is worked on.
pub const WAITING: usize = 64;

/// The queue that all workers share.
static QUEUE: LazyLock<PasswordQueue> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    PasswordQueue::new((cores / 2).max(1))
});

/// The hash to store in place of a password: `$argon2id$...`, about 100 characters. The client is the one
/// who sent the password; `None` is the program itself, or a client on a Unix socket.
///
/// # Errors
/// 429 or 503 if too many wait; 500 if the system has no random bytes or no thread.
pub async fn hash(client: Option<IpAddr>, password: impl Into<String>) -> Result<String, Error> {
    let password = password.into();
    QUEUE.run(client, move || hash_with_argon2(&password)).await
}

/// Whether a password is the one that was stored: by [`hash`], by `htpasswd -B` (bcrypt), by `crypt(3)` with
/// SHA-256 or SHA-512, or in an old file by `htpasswd` with MD5 (`$apr1$`) or SHA-1 (`{SHA}`). Without a stored hash it takes as long and returns `false`, so that the time does not
/// reveal which names exist. The client is the one who sent the password;
/// `None` is the program itself, or a client on a Unix socket.
///
/// # Errors
/// 429 or 503 if too many wait; 500 if what was stored is no hash of these, or the system has
/// no thread.
pub async fn verify(
    client: Option<IpAddr>,
    password: impl Into<String>,
    stored: Option<String>,
) -> Result<bool, Error> {
    let password = password.into();
    let compare = move || {
        let Some(stored) = stored else {
            hash_with_argon2(&password)?;
            return Ok(false);
        };
        matches(password.as_bytes(), &stored)
    };
    QUEUE.run(client, compare).await
}

/// Whether a password is the one of this hash.
fn matches(password: &[u8], stored: &str) -> Result<bool, PasswordError> {
    let compared = match Scheme::of(stored) {
        Some(Scheme::Argon2) => Argon2::default().verify_password(password, stored),
        Some(Scheme::ShaCrypt) => ShaCrypt::default().verify_password(password, stored),
        Some(Scheme::Bcrypt) => {
            return bcrypt::verify(password, stored).map_err(PasswordError::of);
        }
        Some(Scheme::Legacy) => {
            let matches = legacy_hashes::matches(password, stored);
            return matches.ok_or_else(|| PasswordError::of("the hash is incomplete"));
        }
        None => return Err(PasswordError::of("what is stored is no hash of a password")),
    };
    match compared {
        Ok(()) => Ok(true),
        Err(HashError::PasswordInvalid) => Ok(false),
        Err(error) => Err(PasswordError::of(error)),
    }
}

/// The algorithm of a hash.
enum Scheme {
    Argon2,
    Bcrypt,
    /// SHA-crypt with SHA-256 or SHA-512, as in `crypt(3)`.
    ShaCrypt,
    /// MD5 or SHA-1 of old `htpasswd` files.
    Legacy,
}

impl Scheme {
    fn of(stored: &str) -> Option<Self> {
        if stored.starts_with(legacy_hashes::SHA) || stored.starts_with(legacy_hashes::APR1) {
            return Some(Self::Legacy);
        }
        match stored.strip_prefix('$')?.split('$').next()? {
            scheme if scheme.starts_with("argon2") => Some(Self::Argon2),
            "2a" | "2b" | "2y" => Some(Self::Bcrypt),
            "5" | "6" => Some(Self::ShaCrypt),
            _ => None,
        }
    }
}

/// Whether a reader of a hash could find its password soon: MD5, SHA-1.
pub(super) fn is_weak(stored: &str) -> bool {
    matches!(Scheme::of(stored), Some(Scheme::Legacy))
}

/// Checks that [`verify`] supports a hash.
pub(super) fn check_stored(stored: &str) -> Result<(), &'static str> {
    let is_valid = match Scheme::of(stored) {
        Some(Scheme::Argon2) => PasswordHash::new(stored).is_ok(),
        Some(Scheme::Bcrypt) => stored.parse::<bcrypt::HashParts>().is_ok(),
        Some(Scheme::ShaCrypt) => stored.parse::<sha_crypt::PasswordHash>().is_ok(),
        Some(Scheme::Legacy) => legacy_hashes::is_complete(stored),
        None => {
            return Err(
                "expected a hash of bcrypt, SHA-crypt or Argon2; `htpasswd -B` makes one of bcrypt",
            );
        }
    };
    if is_valid {
        Ok(())
    } else {
        Err("the hash is incomplete")
    }
}

fn hash_with_argon2(password: &str) -> Result<String, PasswordError> {
    let hashed: Result<PasswordHash, HashError> =
        Argon2::default().hash_password(password.as_bytes());
    match hashed {
        Ok(hash) => Ok(hash.to_string()),
        Err(error) => Err(PasswordError::of(error)),
    }
}

/// The queue of passwords that are hashed or wait.
struct PasswordQueue {
    threads: Semaphore,
    /// The most passwords in the queue.
    most: usize,
    counts: Mutex<QueueCounts>,
}

/// The number of passwords in the queue.
#[derive(Default)]
struct QueueCounts {
    all: usize,
    /// The number for each client that has any.
    by_client: HashMap<u128, usize>,
}

/// A place in the queue, until it is dropped.
struct QueueTicket<'a> {
    queue: &'a PasswordQueue,
    client: Option<u128>,
}

/// Why the queue rejects a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueError {
    /// The client has too many passwords in the queue.
    Client,
    /// The queue is full.
    Full,
}

impl PasswordQueue {
    fn new(threads: usize) -> Self {
        Self {
            threads: Semaphore::new(threads),
            most: threads.saturating_mul(WAITING.saturating_add(1)),
            counts: Mutex::default(),
        }
    }

    fn enter(&self, client: Option<IpAddr>) -> Result<QueueTicket<'_>, QueueError> {
        let client = client.map(client_network);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = client.and_then(|client| counts.by_client.get(&client));
        if of_client.is_some_and(|count| *count >= OF_ONE_CLIENT) {
            return Err(QueueError::Client);
        }
        if counts.all >= self.most {
            return Err(QueueError::Full);
        }
        counts.all = counts.all.saturating_add(1);
        if let Some(client) = client {
            let count = counts.by_client.entry(client).or_default();
            *count = count.saturating_add(1);
        }
        Ok(QueueTicket {
            queue: self,
            client,
        })
    }

    async fn run<T: Send + 'static>(
        &'static self,
        client: Option<IpAddr>,
        work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, Error> {
        let ticket = self.enter(client).map_err(QueueError::error)?;
        // The semaphore is never closed.
        let permit = self.threads.acquire().await;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            // Released after the work, also if the request was dropped meanwhile.
            drop((ticket, permit));
            done
        });
        let done = done.await;
        Ok(done.unwrap_or_else(|error| Err(PasswordError::of(error)))?)
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut counts = (self.queue.counts.lock()).unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        if let Some(client) = self.client
            && let Some(count) = counts.by_client.get_mut(&client)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.by_client.remove(&client);
            }
        }
    }
}

impl QueueError {
    /// The error for the client.
    fn error(self) -> Error {
        let error = match self {
            Self::Client => {
                Error::too_many_requests("there are too many log-ins from your address")
            }
            Self::Full => Error::unavailable("there are too many log-ins at a time"),
        };
        error.header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

/// An error on hashing or verifying a password.
#[derive(Clone, Debug)]
struct PasswordError(String);

impl PasswordError {
    fn of(cause: impl fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a password could not be handled: {}", self.0)
    }
}

impl std::error::Error for PasswordError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_queue_limits_each_client() {
        let queue = PasswordQueue::new(1);
        let mut tickets: Vec<_> = (0..OF_ONE_CLIENT)
            .map(|_| queue.enter(ip("2001:db8::1")).unwrap())
            .collect();
        // Another address of the same network is the same client.
        for same in ["2001:db8::1", "2001:db8::ffff:2"] {
            assert_eq!(queue.enter(ip(same)).err(), Some(QueueError::Client));
        }
        for other in ["2001:db8:0:1::1", "192.0.2.1"] {
            assert!(queue.enter(ip(other)).is_ok());
        }
        tickets.pop();
        assert!(queue.enter(ip("2001:db8::1")).is_ok());
        drop(tickets);
        let counts = queue.counts.lock().unwrap();
        assert_eq!((counts.all, counts.by_client.len()), (0, 0));
    }

    #[test]
    fn the_queue_limits_all_clients_together() {
        let queue = PasswordQueue::new(2);
        let mut tickets = Vec::new();
        for at in 0..2 * (WAITING + 1) {
            let client = std::net::Ipv4Addr::from_bits(at as u32).into();
            tickets.push(queue.enter((at % 2 == 0).then_some(client)).unwrap());
        }
        for client in [None, ip("192.0.2.1")] {
            assert_eq!(queue.enter(client).err(), Some(QueueError::Full));
        }
        tickets.pop();
        assert!(queue.enter(None).is_ok());
    }

    #[test]
    fn abandoned_work_counts_until_it_is_done() {
        static QUEUE: LazyLock<PasswordQueue> = LazyLock::new(|| PasswordQueue::new(1));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let mut work = Box::pin(QUEUE.run(ip("192.0.2.1"), move || {
                let _ = begun.send(());
                let _ = wait.recv();
                Ok(())
            }));
            tokio::select! {
                _ = &mut work => panic!("the work ends before its signal"),
                begun = has_begun => begun.unwrap(),
            }
            drop(work);
            assert_eq!(QUEUE.threads.available_permits(), 0);
            assert_eq!(QUEUE.counts.lock().unwrap().all, 1);
            go_on.send(()).unwrap();
            drop(QUEUE.threads.acquire().await);
            assert_eq!(QUEUE.counts.lock().unwrap().all, 0);
        });
    }
}
