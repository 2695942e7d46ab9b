//! The size of packets over the loopback interface, which is that of other networks during a comparison.

use std::fs;
use std::path::PathBuf;

use crate::BenchError;

/// Sets the size back when it is dropped.
pub(crate) struct LoopbackMtu {
    file: PathBuf,
    before: String,
}

impl LoopbackMtu {
    /// Sets the size, which needs root. A server over QUIC would send packets of up to 64 KB, which no network passes.
    pub(crate) fn set(bytes: u32) -> Result<Self, BenchError> {
        let file = PathBuf::from("/sys/class/net/lo/mtu");
        let wrong = |error: std::io::Error| {
            BenchError::Server(format!(
                "the MTU of the loopback interface cannot be set to {bytes}, which only root can: {error}"
            ))
        };
        let before = fs::read_to_string(&file).map_err(wrong)?;
        fs::write(&file, bytes.to_string()).map_err(wrong)?;
        Ok(Self { file, before })
    }
}

impl Drop for LoopbackMtu {
    fn drop(&mut self) {
        // It was possible before.
        let _ = fs::write(&self.file, &self.before);
    }
}
