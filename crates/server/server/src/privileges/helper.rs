//! The privileged helper: a process that stays root and acts on requests of the server.
//!
//! It trusts the configuration and nothing that the server sends: a request only selects one of the
//! addresses, logs and programs that the helper itself found there.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use apus_control::ControlFiles;
use apus_net::{ListenAddress, SystemAccount, bind_listener};
use apus_php::plan::{Launch, PhpCgiPlan};
use apus_php::{PhpCgiProcess, children_of, end_orphans};
use apus_transport::tls::open_key_log;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, getpgid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::owned_folder::{CERTIFICATE_FOLDER_MODE, closed_parent, give, prepare_folder};
use crate::helper_protocol::{
    HelperRequest, HelperResponse, LoadedByRoot, MAX_REQUEST, program_text, receive, send,
};
use crate::load::{PlanLoader, has_http3};
use crate::state_folder::StateFolder;
use apus_config::{self as config, Recording, default_pool_folder};

/// Signals for a server, which a terminal or systemd also sends to its process group. The helper
/// ends when the server does.
const IGNORED: [SignalKind; 7] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
    SignalKind::alarm(),
];

/// Only its user may enter the folder of the cache; users of PHP may enter the folder of PHP.
const CACHE_MODE: u32 = 0o700;
const QLOG_MODE: u32 = 0o700;
const PHP_MODE: u32 = 0o711;

/// The process that stays root.
pub(super) struct Helper<'a> {
    loader: &'a PlanLoader,
    /// The user of the server.
    account: &'a SystemAccount,
    control: ControlFiles,
    /// Everything that the configuration named since the start: a server whose reload fails keeps
    /// its old configuration.
    listeners: Vec<ListenAddress>,
    logs: BTreeSet<PathBuf>,
    /// The files of the secrets of TLS connections, which nobody else may read.
    key_logs: BTreeSet<PathBuf>,
    programs: Vec<PhpProgram>,
    /// The names of certificates and other credentials.
    credentials: Recording,
    /// PHP processes by their process id.
    children: HashMap<i32, PhpMaster>,
}

/// A program of the configuration that the server may let start, and how often.
struct PhpProgram {
    plan: PhpCgiPlan,
    /// The most children of one process.
    children: usize,
    /// The pools that have it.
    pools: usize,
}

/// A process that was started, with its children.
struct PhpMaster {
    process: PhpCgiProcess,
    /// The text of its program.
    program: String,
}

/// The most processes of a program for each of its pools: one that ends, one that a reload replaces, and more after failures.
const MASTERS_PER_POOL: usize = 4;
/// The most processes that have ended and that the server has not asked for.
const MAX_ENDED: usize = 256;

impl<'a> Helper<'a> {
    pub(super) fn new(
        loader: &'a PlanLoader,
        account: &'a SystemAccount,
        control: ControlFiles,
    ) -> Self {
        Self {
            loader,
            account,
            control,
            listeners: Vec::new(),
            logs: BTreeSet::new(),
            key_logs: BTreeSet::new(),
            programs: Vec::new(),
            credentials: Recording::default(),
            children: HashMap::new(),
        }
    }

    /// Handles requests until the server ends. Its PHP processes end with it.
    pub(super) fn run(mut self, socket: &OwnedFd) {
        let _ = rustix::thread::set_name(c"apus-helper");
        let _ignored = ignore_signals();
        let Ok(socket) = socket.try_clone().map(UnixStream::from) else {
            return;
        };
        while let Ok(Some((request, descriptor))) = receive(&socket, MAX_REQUEST) {
            let (response, descriptor) = match self.handle(request, descriptor) {
                Ok(response) => response,
                Err(error) => (HelperResponse::Failed(error.into()), None),
            };
            if send(&socket, &response, descriptor.as_ref().map(AsFd::as_fd)).is_err() {
                break;
            }
        }
    }

    fn handle(
        &mut self,
        request: HelperRequest,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<(HelperResponse, Option<OwnedFd>)> {
        let missing = || io::Error::from(io::ErrorKind::InvalidInput);
        let response = match request {
            HelperRequest::Load => self.load(),
            HelperRequest::ReadCredentials => HelperResponse::Loaded(Box::new(LoadedByRoot {
                files: self.credentials.read_credentials(),
                ..LoadedByRoot::default()
            })),
            HelperRequest::Renew => {
                let renewed = self.loader.renew_certificates();
                HelperResponse::Renewed(renewed.map_err(io::Error::other)?)
            }
            HelperRequest::Bind(address) => {
                let socket = descriptor.ok_or_else(missing)?;
                self.bind(&address, &socket)?;
                HelperResponse::Done
            }
            HelperRequest::OpenLog(path) => {
                let file = self.open_log(&path)?;
                return Ok((HelperResponse::Done, Some(file.into())));
            }
            HelperRequest::StartPhp { program, children } => {
                let socket = descriptor.ok_or_else(missing)?;
                let (pid, errors) = self.start_php(&program, children, socket)?;
                return Ok((HelperResponse::Started(pid), errors));
            }
            HelperRequest::PhpEnded(pid) => {
                let child = self.children.get_mut(&pid).ok_or_else(missing)?;
                let ended = child.process.ended()?.map(|status| status.to_string());
                if ended.is_some() {
                    self.children.remove(&pid);
                }
                HelperResponse::Ended(ended)
            }
            HelperRequest::KillPhp(pid) => {
                // A process that is missing was waited for already.
                if let Some(mut child) = self.children.remove(&pid) {
                    child.process.kill();
                }
                HelperResponse::Done
            }
            HelperRequest::KillPhpChild(pid) => {
                self.kill_php_child(Pid::from_raw(pid).ok_or_else(missing)?)?;
                HelperResponse::Done
            }
            HelperRequest::RemoveControlSocket => {
                self.control.remove();
                HelperResponse::Done
            }
        };
        Ok((response, None))
    }

    /// Reads the configuration. The server reports its errors.
    fn load(&mut self) -> HelperResponse {
        let (loaded, config) = self.loader.record();
        self.credentials.add_credentials_of(&loaded.files);
        if let Ok(config) = config {
            self.prepare_folders(&config);
            self.remember(config);
        }
        HelperResponse::Loaded(Box::new(loaded))
    }

    fn remember(&mut self, config: config::ServerPlan) {
        let mut programs: Vec<PhpProgram> = Vec::new();
        for pool in config.pools() {
            // A pool without a user is started by the server itself: the helper would start it as
            // root.
            if let Launch::PhpCgi(own) = &pool.launch
                && own.account.is_some()
            {
                let children = children_of(pool);
                match programs.iter_mut().find(|known| known.plan == *own) {
                    Some(known) => {
                        known.children = known.children.max(children);
                        known.pools += 1;
                    }
                    None => programs.push(PhpProgram {
                        plan: own.clone(),
                        children,
                        pools: 1,
                    }),
                }
            }
        }
        for new in programs {
            match self
                .programs
                .iter_mut()
                .find(|known| known.plan == new.plan)
            {
                Some(known) => {
                    known.children = known.children.max(new.children);
                    known.pools = known.pools.max(new.pools);
                }
                None => self.programs.push(new),
            }
        }
        self.key_logs.extend(config.global.tls_key_log);
        let mut addresses = config
            .global
            .admin
            .map_or_else(Vec::new, |admin| admin.addresses);
        for site in config.sites {
            self.logs
                .extend(site.access_log.and_then(|log| log.settings.file));
            addresses.extend(site.listeners.into_iter().map(|listener| listener.address));
        }
        for address in addresses {
            if !self.listeners.contains(&address) {
                self.listeners.push(address);
            }
        }
    }

    /// Creates missing folders that the server writes to. The server reports folders that cannot be
    /// created.
    fn prepare_folders(&self, config: &config::ServerPlan) {
        if config.caches().next().is_some()
            && let Some(disk) = &config.global.cache.disk
        {
            let _ = self.prepare_folder(&disk.path, CACHE_MODE);
        }
        let orders = |site: &config::SitePlan| !site.acme.is_empty() || site.on_demand.is_some();
        let stores = config.global.stores_tickets || has_http3(config);
        if stores || config.sites.iter().any(orders) {
            let store = self.loader.certificate_store(config);
            let _ = self.prepare_folder(store.folder(), CERTIFICATE_FOLDER_MODE);
        }
        let state = config.global.state_folder.clone();
        let state = state.unwrap_or_else(StateFolder::default_parent);
        let _ = self.prepare_folder(&state, CERTIFICATE_FOLDER_MODE);
        let http3 = config.sites.iter().filter_map(|site| site.http3.as_ref());
        for folder in http3.filter_map(|http3| http3.qlog.as_ref()) {
            let _ = self.prepare_folder(folder, QLOG_MODE);
        }
        for pool in config.pools() {
            // By default each user of a server has its own folder.
            let folder = if pool.folder == default_pool_folder(0) {
                default_pool_folder(self.account.uid)
            } else {
                pool.folder.clone()
            };
            let _ = self.prepare_folder(&folder, PHP_MODE);
            end_orphans(&folder);
        }
    }

    fn prepare_folder(&self, folder: &Path, mode: u32) -> io::Result<()> {
        prepare_folder(folder, mode, self.account)
    }

    /// Makes the server's user the owner of a file, in a folder that no other user can change.
    fn give(&self, path: &Path) -> io::Result<()> {
        give(path, self.account)
    }

    fn bind(&self, address: &str, socket: &OwnedFd) -> io::Result<()> {
        let is_asked = |known: &&ListenAddress| known.to_string() == address;
        let known = self.listeners.iter().find(is_asked).ok_or_else(unnamed)?;
        if let ListenAddress::Unix { path, .. } = known {
            closed_parent(path)?;
            bind_listener(socket.as_fd(), known)?;
            return self.give(path);
        }
        bind_listener(socket.as_fd(), known)
    }

    fn open_log(&self, path: &Path) -> io::Result<File> {
        if self.key_logs.contains(path) {
            let (folder, name) = closed_parent(path)?;
            return open_key_log(&folder.join(name));
        }
        if !self.logs.contains(path) {
            return Err(unnamed());
        }
        let (folder, name) = closed_parent(path)?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
            .open(folder.join(name))
    }

    fn start_php(
        &mut self,
        program: &str,
        children: usize,
        socket: OwnedFd,
    ) -> io::Result<(i32, Option<OwnedFd>)> {
        let mut programs = self.programs.iter();
        let own = programs
            .find(|own| program_text(&own.plan) == program)
            .ok_or_else(unnamed)?;
        let running = self.children.values_mut().filter_map(|master| {
            let is_running = matches!(master.process.ended(), Ok(None));
            (is_running && master.program == program).then_some(())
        });
        if children > own.children || running.count() >= own.pools * MASTERS_PER_POOL {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the configuration allows fewer PHP processes",
            ));
        }
        if self.children.len() >= MAX_ENDED {
            self.children
                .retain(|_, master| matches!(master.process.ended(), Ok(None)));
        }
        let mut process = apus_php::spawn(&own.plan, children, socket)?;
        let errors = process.take_stderr();
        let pid = process.pid().as_raw_nonzero().get();
        let program = program.to_owned();
        self.children.insert(pid, PhpMaster { process, program });
        Ok((pid, errors))
    }

    /// Kills a process in the process group of a child, which no other process can join.
    fn kill_php_child(&self, pid: Pid) -> io::Result<()> {
        let group = getpgid(Some(pid))?.as_raw_nonzero().get();
        if self.children.contains_key(&group) {
            Ok(kill_process(pid, Signal::KILL)?)
        } else {
            Err(unnamed())
        }
    }
}

fn unnamed() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the configuration does not name it",
    )
}

/// Ignores signals for the life of the process, as long as the returned runtime exists.
fn ignore_signals() -> Option<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let entered = runtime.enter();
    for kind in IGNORED {
        let _ = signal(kind);
    }
    drop(entered);
    Some(runtime)
}
