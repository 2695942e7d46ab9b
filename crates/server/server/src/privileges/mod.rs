//! Privilege separation: a server that is started as root drops its privileges, and a helper
//! process keeps them.
//!
//! The server keeps no capability, and cannot gain one. It asks the [helper](helper) for the files
//! of its configuration, among them private keys, at a reload; for ports below 1024; for access
//! logs in folders of root; and for PHP that runs as other users. The helper reads the
//! configuration itself and rejects all other requests, so a compromised server gains nothing from
//! it.

mod helper;
mod owned_folder;

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use apus_config::GlobalPlan;
use apus_control::{BoundControlSocket, ControlError, socket_path_at};
use apus_net::{AccountError, SystemAccount};
use rustix::process::geteuid;

use helper::Helper;
pub(crate) use owned_folder::{CERTIFICATE_FOLDER_MODE, prepare_folder};

use crate::helper_protocol::HelperClient;
use crate::load::{LoadError, PlanLoader};

/// The connections of a server that dropped its privileges.
pub(crate) struct PrivilegeSeparation {
    /// The helper.
    pub(crate) helper: Arc<HelperClient>,
    /// The control socket, which only root can create at its path.
    pub(crate) control: BoundControlSocket,
}

/// Drops root, if this process has it and may not keep it. `user` overrides the configuration.
/// There must be no other thread yet.
///
/// # Errors
/// The configuration has errors, or the system does not permit it. The process must not continue
/// then.
pub(crate) fn separate(
    loader: &PlanLoader,
    user: Option<&str>,
) -> Result<Option<PrivilegeSeparation>, PrivilegesError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let global = loader.read_as_root()?.global;
    let Some(account) = server_account(&global, user)? else {
        return Ok(None);
    };
    let control = bind_control_socket(loader, global.control_socket.as_deref())?;
    let failed = |error| PrivilegesError::System(account.name.clone(), error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let files = control.files().clone();
    apus_net::fork(theirs.into(), |socket| {
        Helper::new(loader, &account, files).run(&socket);
    })
    .map_err(failed)?;
    account.assume().map_err(failed)?;
    Ok(Some(PrivilegeSeparation {
        helper: Arc::new(HelperClient::new(ours)),
        control,
    }))
}

/// The user of a server that is started as root; `None` if it stays root. `user` overrides the configuration.
pub(crate) fn server_account(
    global: &GlobalPlan,
    user: Option<&str>,
) -> Result<Option<SystemAccount>, AccountError> {
    let account = match (user, &global.account) {
        (Some(user), _) => SystemAccount::find(user, None)?,
        (None, Some(account)) => account.clone(),
        (None, None) => match SystemAccount::unprivileged(None)? {
            account if account.is_mapped() => account,
            // Root of a user namespace without another user has no privileges to drop.
            _ => return Ok(None),
        },
    };
    Ok((!account.is_root()).then_some(account))
}

/// Binds the control socket of the configuration, or of a folder that is served at a named address, and links it from the default path
/// unless another server listens there.
pub(crate) fn bind_control_socket(
    loader: &PlanLoader,
    named: Option<&Path>,
) -> Result<BoundControlSocket, ControlError> {
    let source = loader.source();
    let default = apus_control::socket_path(source.path());
    let address = loader.folder_address();
    let of_address = address.map(|address| socket_path_at(source.path(), &address.to_string()));
    let path = named.map(Path::to_owned).or(of_address);
    let Some(path) = path.filter(|path| *path != default) else {
        return BoundControlSocket::bind(&default);
    };
    let mut control = BoundControlSocket::bind(&path)?;
    match control.link_from(&default) {
        // The log says so when the server starts.
        Ok(()) | Err(ControlError::AlreadyRunning(_)) => {}
        Err(error) => {
            tracing::warn!(%error, "the control socket cannot be linked from its default path");
        }
    }
    Ok(control)
}

/// A server cannot drop its privileges.
#[derive(Debug)]
#[non_exhaustive]
pub enum PrivilegesError {
    /// The configuration cannot be loaded.
    Load(LoadError),
    /// The user does not exist.
    Account(AccountError),
    /// Another server runs for the same source, or the control socket cannot be created.
    Control(ControlError),
    /// The system does not permit the change to this user.
    System(String, io::Error),
}

impl From<LoadError> for PrivilegesError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<AccountError> for PrivilegesError {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

impl From<ControlError> for PrivilegesError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl fmt::Display for PrivilegesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Account(error) => error.fmt(f),
            Self::Control(error) => error.fmt(f),
            Self::System(user, error) => write!(
                f,
                "cannot become the user `{user}`: {error}; it takes CAP_SETUID and CAP_SETGID, or \
                 start the server as that user, or keep it root with --user root"
            ),
        }
    }
}

impl std::error::Error for PrivilegesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(error),
            Self::Account(error) => Some(error),
            Self::Control(error) => Some(error),
            Self::System(_, error) => Some(error),
        }
    }
}
