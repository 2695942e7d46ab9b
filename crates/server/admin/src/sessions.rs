//! Log-ins: codes that are good once, sessions, and those who failed.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apus_control::TokenDigest;
use apus_tokens::{Hexadecimal, NoRandomness, random_bytes};

/// How long a code can be used.
const CODE_TIME: Duration = Duration::from_secs(300);

/// How long a session lasts.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// How long a session lasts in which nothing is asked.
const IDLE_TIME: Duration = Duration::from_secs(2 * 3600);

/// The codes that wait to be used. A further one takes the place of the oldest.
const MAX_CODES: usize = 8;

/// The sessions of one account. A further one ends the oldest, so that no account can fill the memory, nor end another's.
const MAX_SESSIONS_EACH: usize = 16;

/// Log-ins of one address that may fail in [`FAILURE_TIME`].
const MAX_FAILURES: u32 = 10;

/// The time after which failures are forgotten.
const FAILURE_TIME: Duration = Duration::from_secs(300);

/// The addresses whose failures are counted. When there are more, all others have to wait until one is forgotten.
const MAX_FAILED_ADDRESSES: usize = 1024;

/// Who has logged in at the address of the operator. It outlives reloads.
#[derive(Default)]
pub struct AdminSessions {
    state: Mutex<OperatorSessions>,
    /// How often there were other accounts.
    generation: AtomicU64,
}

#[derive(Default)]
struct OperatorSessions {
    codes: Vec<(TokenDigest, Instant)>,
    sessions: HashMap<TokenDigest, OperatorSession>,
    /// By address; those of a Unix socket have none.
    failures: HashMap<Option<IpAddr>, (u32, Instant)>,
}

/// Who a session is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// Who could ask the control socket for a code: the user of the server or root.
    ControlSocket,
    /// An account, with the digest of the hash of its password, so that a new password ends its sessions.
    Account(String, TokenDigest),
}

struct OperatorSession {
    owner: SessionOwner,
    begun: Instant,
    used: Instant,
}

impl OperatorSession {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= SESSION_TIME
            || now.saturating_duration_since(self.used) >= IDLE_TIME
    }
}

/// A new session.
pub(crate) struct NewSession {
    /// What its requests have to have. Only its digest is kept.
    pub(crate) token: String,
    /// How long it lasts, if it is used.
    pub(crate) lasts: Duration,
}

impl AdminSessions {
    /// A code with which somebody can log in once within five minutes, with all roles.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new_code(&self) -> Result<String, NoRandomness> {
        let code = Hexadecimal(&random_bytes::<16>()?).to_string();
        let now = Instant::now();
        let mut state = self.lock();
        state.codes.retain(|(_, end)| *end > now);
        if state.codes.len() >= MAX_CODES {
            state.codes.remove(0);
        }
        state.codes.push((TokenDigest::of(&code), now + CODE_TIME));
        Ok(code)
    }

    /// Uses a code up; whether it was one.
    pub(crate) fn take_code(&self, code: &str) -> bool {
        let (digest, now) = (TokenDigest::of(code), Instant::now());
        let mut state = self.lock();
        let found = (state.codes.iter()).position(|(known, end)| *known == digest && *end > now);
        found.map(|at| state.codes.remove(at)).is_some()
    }

    /// Begins a session.
    pub(crate) fn begin(&self, owner: SessionOwner) -> Result<NewSession, NoRandomness> {
        let token = format!("apus_session_{}", Hexadecimal(&random_bytes::<32>()?));
        let now = Instant::now();
        let mut state = self.lock();
        state.sessions.retain(|_, session| !session.is_over(now));
        let own = state.sessions.iter();
        let own = own.filter(|(_, session)| session.owner == owner);
        let mut own: Vec<_> = own
            .map(|(token, session)| (session.begun, *token))
            .collect();
        if own.len() >= MAX_SESSIONS_EACH {
            own.sort_by_key(|(begun, _)| *begun);
            if let Some((_, oldest)) = own.first() {
                state.sessions.remove(oldest);
            }
        }
        let session = OperatorSession {
            owner,
            begun: now,
            used: now,
        };
        state.sessions.insert(TokenDigest::of(&token), session);
        Ok(NewSession {
            token,
            lasts: SESSION_TIME,
        })
    }

    /// Whose session a token is of, and how long it still lasts.
    pub(crate) fn find(&self, digest: &TokenDigest) -> Option<(SessionOwner, Duration)> {
        let now = Instant::now();
        let mut state = self.lock();
        let session = state.sessions.get_mut(digest)?;
        if session.is_over(now) {
            state.sessions.remove(digest);
            return None;
        }
        session.used = now;
        let left = SESSION_TIME.saturating_sub(now.saturating_duration_since(session.begun));
        Some((session.owner.clone(), left))
    }

    /// Notes that there are other accounts; the number of these.
    pub(crate) fn begin_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the accounts that there are now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Ends a session.
    pub(crate) fn end(&self, digest: &TokenDigest) {
        self.lock().sessions.remove(digest);
    }

    /// How long a client has to wait before it may try to log in; `None`: it may.
    pub(crate) fn wait(&self, client: Option<IpAddr>) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.lock();
        state.failures.retain(|_, (_, until)| *until > now);
        match state.failures.get(&client) {
            Some((count, until)) if *count >= MAX_FAILURES => Some(*until - now),
            None if state.failures.len() >= MAX_FAILED_ADDRESSES => Some(FAILURE_TIME),
            _ => None,
        }
    }

    /// Counts a log-in that failed.
    pub(crate) fn count_failure(&self, client: Option<IpAddr>) {
        let until = Instant::now() + FAILURE_TIME;
        let mut state = self.lock();
        let (count, end) = state.failures.entry(client).or_insert((0, until));
        *count = count.saturating_add(1);
        *end = until;
    }

    fn lock(&self) -> MutexGuard<'_, OperatorSessions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AdminSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> SessionOwner {
        SessionOwner::Account(name.to_owned(), TokenDigest::of("hash"))
    }

    #[test]
    fn a_code_is_good_once() {
        let sessions = AdminSessions::default();
        let code = sessions.new_code().unwrap();
        assert!(!sessions.take_code("00"));
        assert!(sessions.take_code(&code));
        assert!(!sessions.take_code(&code));
        let codes: Vec<_> = (0..=MAX_CODES)
            .map(|_| sessions.new_code().unwrap())
            .collect();
        assert!(
            !sessions.take_code(&codes[0]),
            "the oldest has lost its place"
        );
        assert!(sessions.take_code(&codes[MAX_CODES]));
    }

    #[test]
    fn a_session_is_of_its_owner_until_it_ends() {
        let sessions = AdminSessions::default();
        let first = sessions.begin(account("ana")).unwrap().token;
        let others: Vec<_> = (0..MAX_SESSIONS_EACH)
            .map(|_| sessions.begin(account("bo")).unwrap().token)
            .collect();
        let find = |token: &str| sessions.find(&TokenDigest::of(token)).map(|found| found.0);
        assert_eq!(find(&first), Some(account("ana")));
        sessions.begin(account("bo")).unwrap();
        assert_eq!(find(&first), Some(account("ana")), "of another account");
        let left = others.iter().filter(|token| find(token).is_some());
        assert_eq!(left.count(), MAX_SESSIONS_EACH - 1);
        sessions.end(&TokenDigest::of(&first));
        assert_eq!(find(&first), None);
    }

    #[test]
    fn who_fails_too_often_has_to_wait_and_nobody_else() {
        let sessions = AdminSessions::default();
        let address = |last: u8| Some(IpAddr::from([127, 0, 0, last]));
        for count in 0..MAX_FAILURES {
            assert_eq!(sessions.wait(address(1)), None, "{count}");
            sessions.count_failure(address(1));
        }
        assert!(sessions.wait(address(1)).is_some());
        assert_eq!(sessions.wait(address(2)), None);
        assert_eq!(sessions.wait(None), None);
    }
}
