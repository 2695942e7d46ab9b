//! Session tickets (RFC 8446 section 4.6.1, RFC 5077) with keys that others provide, so that they outlive the process or are
//! the same on several machines.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use apus_tokens::random_bytes;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hmac;
use rustls::server::ProducesTickets;

/// How long a ticket can be used.
// RFC 8446 allows seven days. Whoever gets a secret can read the tickets, and with TLS 1.2 the sessions, of this time.
const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 3600);
const ID_LENGTH: usize = 16;
/// The longest ticket that is looked at. It may hold the certificate chain of the client.
const LONGEST_TICKET: usize = 16 * 1024;

/// A secret from which the keys of session tickets are derived.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret {
    secret: [u8; 32],
    /// Tickets are encrypted with it from then on.
    active_from: SystemTime,
    /// By which tickets name it.
    id: [u8; ID_LENGTH],
}

impl TicketSecret {
    /// A secret by which tickets are encrypted from this time on. Before, it only decrypts tickets of other machines.
    pub fn new(secret: [u8; 32], active_from: SystemTime) -> Self {
        let mut hash = Context::new(&SHA256);
        hash.update(b"apus session ticket id");
        hash.update(&secret);
        let mut id = [0; ID_LENGTH];
        for (to, from) in id.iter_mut().zip(hash.finish().as_ref()) {
            *to = *from;
        }
        Self {
            secret,
            active_from,
            id,
        }
    }

    /// The key of one site.
    fn key(&self, site: &[u8; 32]) -> Option<LessSafeKey> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        // A ticket of one site cannot be decrypted at another one, which may demand client certificates. With one
        // key for all, a session of a public site would be resumed there.
        let text = [&b"apus session ticket key"[..], site].concat();
        let derived = hmac::sign(&key, &text);
        UnboundKey::new(&AES_256_GCM, derived.as_ref())
            .ok()
            .map(LessSafeKey::new)
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecret")
            .field("active_from", &self.active_from)
            .finish_non_exhaustive()
    }
}

/// The secrets of session tickets that are in use, for all sites of a process. Each site has its own keys.
///
/// While it is empty, clients get no tickets.
#[derive(Debug, Default)]
pub struct TicketSecrets {
    secrets: RwLock<Arc<[TicketSecret]>>,
}

impl TicketSecrets {
    /// How long a secret has to be kept after another one has become active.
    pub const LIFETIME: Duration = TICKET_LIFETIME;

    /// Uses these from now on. Tickets of others are no longer accepted.
    pub fn set(&self, secrets: Vec<TicketSecret>) {
        *self.secrets.write().unwrap_or_else(PoisonError::into_inner) = secrets.into();
    }

    fn all(&self) -> Arc<[TicketSecret]> {
        let secrets = self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&secrets)
    }
}

/// The tickets of one site.
pub(super) struct SiteTickets {
    secrets: Arc<TicketSecrets>,
    site: [u8; 32],
}

impl SiteTickets {
    /// `site` is what distinguishes the site from others.
    pub(super) fn new(secrets: Arc<TicketSecrets>, site: [u8; 32]) -> Self {
        Self { secrets, site }
    }
}

impl fmt::Debug for SiteTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteTickets").finish_non_exhaustive()
    }
}

impl ProducesTickets for SiteTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(TICKET_LIFETIME.as_secs()).unwrap_or(u32::MAX)
    }

    /// The identifier of the secret, the nonce, and the encrypted text with its tag.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = SystemTime::now();
        let secrets = self.secrets.all();
        let active = secrets.iter().filter(|secret| secret.active_from <= now);
        // The newest that is active: the machines that share the secrets all have it by then, and decrypt each other's
        // tickets.
        let secret = active.max_by_key(|secret| secret.active_from)?;
        // Random, because machines that share the key cannot count together. A key is used for hours; it may encrypt
        // 2^32 texts with random nonces of 96 bits (NIST SP 800-38D section 8.3).
        let nonce = random_bytes::<NONCE_LEN>().ok()?;
        let mut text = plain.to_vec();
        secret
            .key(&self.site)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(secret.id),
                &mut text,
            )
            .ok()?;
        Some([&secret.id[..], &nonce, &text].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > LONGEST_TICKET {
            return None;
        }
        let (id, rest) = ticket.split_first_chunk::<ID_LENGTH>()?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>()?;
        let secrets = self.secrets.all();
        let secret = secrets.iter().find(|secret| secret.id == *id)?;
        let mut text = text.to_vec();
        let length = secret
            .key(&self.site)?
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(*id),
                &mut text,
            )
            .ok()?
            .len();
        text.truncate(length);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8, active_in: i64) -> TicketSecret {
        let now = SystemTime::now();
        let distance = Duration::from_secs(active_in.unsigned_abs());
        let active_from = match active_in {
            ..0 => now - distance,
            _ => now + distance,
        };
        TicketSecret::new([byte; 32], active_from)
    }

    fn tickets(secrets: Vec<TicketSecret>, site: u8) -> SiteTickets {
        let all = TicketSecrets::default();
        all.set(secrets);
        SiteTickets::new(Arc::new(all), [site; 32])
    }

    #[test]
    fn a_ticket_is_for_its_site_and_accepted_while_its_secret_is_kept() {
        let first = tickets(vec![secret(1, -10)], 1);
        let ticket = first.encrypt(b"session").unwrap();
        assert_eq!(first.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        // On another machine, whose secrets are newer.
        let other = tickets(vec![secret(2, -5), secret(1, -10)], 1);
        assert_eq!(other.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        let newer = other.encrypt(b"session").unwrap();
        assert_eq!(first.decrypt(&newer), None);
        for stranger in [
            tickets(vec![secret(1, -10)], 2),
            tickets(vec![secret(2, -10)], 1),
            tickets(Vec::new(), 1),
        ] {
            assert_eq!(stranger.decrypt(&ticket), None);
        }
        assert_eq!(tickets(Vec::new(), 1).encrypt(b"session"), None);
    }

    #[test]
    fn a_secret_that_is_not_active_yet_decrypts_only() {
        let early = tickets(vec![secret(1, -10), secret(2, 100)], 1);
        let ticket = tickets(vec![secret(2, -1)], 1).encrypt(b"session").unwrap();
        assert!(early.decrypt(&ticket).is_some());
        let own = early.encrypt(b"session").unwrap();
        assert!(tickets(vec![secret(1, -10)], 1).decrypt(&own).is_some());
    }

    #[test]
    fn tickets_that_were_changed_or_cut_off_are_refused() {
        let tickets = tickets(vec![secret(1, -10)], 1);
        let ticket = tickets.encrypt(b"session").unwrap();
        for length in 0..ticket.len() {
            assert_eq!(tickets.decrypt(&ticket[..length]), None);
        }
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "{at}");
        }
        assert_eq!(tickets.decrypt(&vec![0; LONGEST_TICKET + 1]), None);
        assert_ne!(ticket, tickets.encrypt(b"session").unwrap());
        assert!(!format!("{:?}", tickets.secrets).contains("1, 1"));
    }
}
