//! Whether the fingerprints of TLS clients are computed.

use std::sync::atomic::{AtomicBool, Ordering};

/// The fingerprints of TLS clients ([`TlsInfo::fingerprint`](crate::TlsInfo::fingerprint)), which handshakes compute once something of this process asks for
/// them: a condition, a key of a limit or a variable. Connections that were made before have none.
#[derive(Clone, Copy, Debug)]
pub struct TlsFingerprints;

static ARE_WANTED: AtomicBool = AtomicBool::new(false);

impl TlsFingerprints {
    /// Has them computed from now on.
    pub fn want() {
        ARE_WANTED.store(true, Ordering::Relaxed);
    }

    /// Whether something asks for them.
    pub fn are_wanted() -> bool {
        ARE_WANTED.load(Ordering::Relaxed)
    }
}
