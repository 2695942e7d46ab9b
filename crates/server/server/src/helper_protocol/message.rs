//! The messages between server and helper: JSON after a length, and descriptors.

use apus_php::plan::PhpCgiPlan;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::local_ca::LocalCertificate;
use apus_config::Recording;

/// The largest message that the helper takes from a server, which an attacker may have taken over.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
/// The largest response, with all files of a configuration.
pub(crate) const MAX_RESPONSE: u32 = u32::MAX;

/// The size of the length before a message.
const LENGTH_BYTES: usize = 4;

/// A request of the server to its helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperRequest {
    /// Reads the configuration, and creates the folders that it names.
    Load,
    /// Reads the certificates and other credentials of the configurations that were loaded.
    ReadCredentials,
    /// Renews local certificates that expire soon.
    Renew,
    /// Binds the attached socket to an address of the configuration, by its text.
    Bind(String),
    /// Opens an access log of the configuration.
    OpenLog(PathBuf),
    /// Starts a program of the configuration, by its text, with the attached socket.
    StartPhp {
        /// See [`program_text`](super::helper::program_text).
        program: String,
        children: usize,
    },
    /// Whether a PHP process of the helper has ended.
    PhpEnded(i32),
    /// Kills a PHP process of the helper with its children.
    KillPhp(i32),
    /// Kills a child of a PHP process of the helper.
    KillPhpChild(i32),
    /// Removes the files of the control socket.
    RemoveControlSocket,
}

/// A response of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperResponse {
    /// Success. A descriptor may be attached.
    Done,
    /// The files that were read.
    Loaded(Box<LoadedByRoot>),
    /// Whether certificates were renewed.
    Renewed(bool),
    /// PHP runs as this process; the pipe of its standard error is attached.
    Started(i32),
    /// The exit status of PHP, if it ended.
    Ended(Option<String>),
    /// The request failed.
    Failed(HelperFailure),
}

/// The files of a configuration, and its local certificates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadedByRoot {
    /// Its files.
    pub(crate) files: Recording,
    /// Local certificates, or the errors about them.
    pub(crate) certificates: Vec<(Vec<String>, Result<IssuedCertificate, String>)>,
}

/// A local certificate with its key as PEM, and its files.
pub(crate) type IssuedCertificate = (Vec<u8>, Option<LocalCertificate>);

/// A system error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HelperFailure {
    number: Option<i32>,
    message: String,
}

impl From<io::Error> for HelperFailure {
    fn from(error: io::Error) -> Self {
        Self {
            number: error.raw_os_error(),
            message: error.to_string(),
        }
    }
}

impl From<HelperFailure> for io::Error {
    fn from(failure: HelperFailure) -> Self {
        match failure.number {
            Some(number) => Self::from_raw_os_error(number),
            None => Self::other(failure.message),
        }
    }
}

/// Sends a message with up to one descriptor.
pub(crate) fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let header = length.to_le_bytes();
    // So few bytes are sent at once.
    retry_on_intr(|| {
        sendmsg(
            socket,
            &[IoSlice::new(&header)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    socket.write_all(&bytes)
}

/// Receives a message of at most `limit` bytes and the descriptor that came with it; `None` at the end of the connection.
pub(crate) fn receive<T: DeserializeOwned>(
    mut socket: &UnixStream,
    limit: u32,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut header = [0; LENGTH_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut header)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    match received.bytes {
        0 => return Ok(None),
        LENGTH_BYTES => {}
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let length = u32::from_le_bytes(header);
    if length > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    Ok(Some((serde_json::from_slice(&bytes)?, descriptor)))
}

/// The text that identifies a program of the configuration.
pub(crate) fn program_text(plan: &PhpCgiPlan) -> String {
    format!("{plan:?}")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_arrive_whole_with_their_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        send(&one, &HelperRequest::OpenLog("/a".into()), None).unwrap();
        send(&one, &HelperResponse::Done, Some(file.as_fd())).unwrap();
        let (request, descriptor) = receive::<HelperRequest>(&other, MAX_REQUEST)
            .unwrap()
            .unwrap();
        assert!(matches!(request, HelperRequest::OpenLog(path) if path.as_os_str() == "/a"));
        assert!(descriptor.is_none());
        let (_, descriptor) = receive::<HelperResponse>(&other, MAX_RESPONSE)
            .unwrap()
            .unwrap();
        let same = File::from(descriptor.unwrap());
        assert_eq!(same.metadata().unwrap().len(), 5);
        drop(one);
        assert!(
            receive::<HelperResponse>(&other, MAX_RESPONSE)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_length_beyond_the_limit_reserves_no_memory() {
        let limit = 1_000;
        for (length, is_taken) in [
            (limit - 1, true),
            (limit, true),
            (limit + 1, false),
            (u32::MAX, false),
        ] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(&length.to_le_bytes()).unwrap();
            if is_taken {
                let text = format!("{:<1$}", "\"Load\"", length as usize);
                one.write_all(text.as_bytes()).unwrap();
            }
            let received = receive::<HelperRequest>(&other, limit);
            assert_eq!(received.is_ok(), is_taken, "{length}");
        }
    }

    #[test]
    fn errors_keep_their_kind() {
        let denied = io::Error::from_raw_os_error(13);
        let same = io::Error::from(HelperFailure::from(denied));
        assert_eq!(same.kind(), io::ErrorKind::PermissionDenied);
        let own = io::Error::from(HelperFailure::from(io::Error::other("no")));
        assert_eq!(own.to_string(), "no");
    }
}
