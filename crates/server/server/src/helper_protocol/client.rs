//! The client of the privileged helper.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use apus_config::Recording;
use apus_net::{Binder, ListenAddress};
use apus_php::plan::PhpCgiPlan;
use apus_php::{Launcher, PhpProcess};
use rustix::process::Pid;

use super::message::{
    HelperRequest, HelperResponse, LoadedByRoot, MAX_RESPONSE, program_text, receive, send,
};

/// The connection to the helper. Only threads that serve no clients wait for it.
#[derive(Debug)]
pub(crate) struct HelperClient(Mutex<UnixStream>);

impl HelperClient {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self(Mutex::new(socket))
    }

    /// Reads the configuration as root. Its errors are reported when the result is parsed.
    pub(crate) fn load(&self) -> io::Result<LoadedByRoot> {
        match self.request(&HelperRequest::Load, None)? {
            (HelperResponse::Loaded(loaded), _) => Ok(*loaded),
            _ => Err(unexpected()),
        }
    }

    /// The certificates and other credentials of the configurations that were loaded, as their files are now.
    pub(crate) fn read_credentials(&self) -> io::Result<Recording> {
        match self.request(&HelperRequest::ReadCredentials, None)? {
            (HelperResponse::Loaded(loaded), _) => Ok(loaded.files),
            _ => Err(unexpected()),
        }
    }

    /// Renews local certificates that expire soon. Returns whether there were any.
    pub(crate) fn renew_certificates(&self) -> io::Result<bool> {
        match self.request(&HelperRequest::Renew, None)? {
            (HelperResponse::Renewed(is_new), _) => Ok(is_new),
            _ => Err(unexpected()),
        }
    }

    /// Opens an access log of the configuration.
    pub(crate) fn open_log(&self, path: &Path) -> io::Result<File> {
        let (_, file) = self.request(&HelperRequest::OpenLog(path.to_owned()), None)?;
        file.map(File::from).ok_or_else(unexpected)
    }

    /// Removes the files of the control socket, at the end of the process.
    pub(crate) fn remove_control_socket(&self) {
        let _ = self.request(&HelperRequest::RemoveControlSocket, None);
    }

    fn request(
        &self,
        request: &HelperRequest,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<(HelperResponse, Option<OwnedFd>)> {
        let gone = |error: io::Error| {
            let message = format!("the privileged helper of this server does not respond: {error}");
            io::Error::new(error.kind(), message)
        };
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&socket, request, descriptor).map_err(gone)?;
        match receive(&socket, MAX_RESPONSE).map_err(gone)? {
            Some((HelperResponse::Failed(failure), _)) => Err(failure.into()),
            Some(response) => Ok(response),
            None => Err(gone(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::other("the response of the privileged helper does not match the request")
}

impl Binder for HelperClient {
    fn bind(&self, socket: BorrowedFd<'_>, address: &ListenAddress) -> io::Result<()> {
        self.request(&HelperRequest::Bind(address.to_string()), Some(socket))?;
        Ok(())
    }
}

impl Launcher for HelperClient {
    fn start(&self, plan: &PhpCgiPlan, children: usize, socket: OwnedFd) -> io::Result<PhpProcess> {
        let request = HelperRequest::StartPhp {
            program: program_text(plan),
            children,
        };
        match self.request(&request, Some(socket.as_fd()))? {
            (HelperResponse::Started(pid), Some(stderr)) => Ok(PhpProcess {
                pid: Pid::from_raw(pid).ok_or_else(unexpected)?,
                stderr,
            }),
            _ => Err(unexpected()),
        }
    }

    fn ended(&self, pid: Pid) -> io::Result<Option<String>> {
        match self.request(&HelperRequest::PhpEnded(pid.as_raw_nonzero().get()), None)? {
            (HelperResponse::Ended(ended), _) => Ok(ended),
            _ => Err(unexpected()),
        }
    }

    fn kill(&self, pid: Pid) -> io::Result<()> {
        self.request(&HelperRequest::KillPhp(pid.as_raw_nonzero().get()), None)?;
        Ok(())
    }

    fn kill_child(&self, pid: Pid) -> io::Result<()> {
        self.request(
            &HelperRequest::KillPhpChild(pid.as_raw_nonzero().get()),
            None,
        )?;
        Ok(())
    }
}
