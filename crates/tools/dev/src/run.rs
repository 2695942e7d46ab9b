//! The start of `apus dev`: its listeners, and the supervisor beside them.

use std::env;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_http::{DevelopmentHosts, ServiceFactory};
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_net::{Engine, EnginePlan, EngineStartError, ListenerPlan};
use apus_server::application_log::ApplicationLog;
use apus_server::local_ca::{LocalCa, LocalCaError, LocalCertificate};
use apus_server::{ListenArgument, open_in_browser};
use apus_transport::tls::Certificate;

use crate::dev_service::DevServiceFactory;
use crate::options::DevOptions;
use crate::project::{CargoProject, ProjectError};
use crate::state::DevStateSender;
use crate::supervisor::{DevSupervisor, SupervisorError};
use crate::terminal::DevTerminal;

/// How long clients may take for their last responses.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The workers: the application has its own.
const WORKERS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// Builds and runs the application of the current folder until SIGINT or SIGTERM.
///
/// # Errors
/// The folder has no application, or `apus dev` cannot listen. Mistakes in the sources are no errors: they are shown, and
/// it waits until they are corrected.
pub fn run(options: DevOptions) -> Result<(), DevError> {
    let folder = env::current_dir().map_err(DevError::Io)?;
    let project = CargoProject::find(&folder, &options.selection).map_err(DevError::Project)?;
    let _log =
        ApplicationLog::start(Some("warn")).map_err(|error| DevError::Log(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(DevError::Io)?;
    runtime.block_on(serve(project, options))
}

async fn serve(project: CargoProject, options: DevOptions) -> Result<(), DevError> {
    let state = DevStateSender::new();
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let hosts = development_hosts(&options);
    let service = Arc::new(DevServiceFactory {
        name: project.binary.clone(),
        run: format!("{:x}", started.unwrap_or_default().as_millis()),
        state: state.subscribe(),
        hosts: hosts.clone(),
    });
    let (listeners, certificate) = listeners(&options, service)?;
    let is_tls: Vec<bool> = listeners.iter().map(|one| one.tls.is_some()).collect();
    let engine = Engine::start(EnginePlan::new(WORKERS, listeners)).map_err(DevError::Listen)?;
    let listening = engine.status().listening;
    let urls = listening.iter().zip(is_tls);
    let urls: Vec<String> = urls.map(|(address, is_tls)| address.url(is_tls)).collect();
    let name = project.binary.clone();
    let mut supervisor =
        DevSupervisor::new(project, options.clone(), hosts, state).map_err(DevError::of)?;
    announce(&format!("Developing {name} at {}\n", urls.join(", ")));
    if let Some(certificate) = certificate.filter(|certificate| certificate.is_new_root) {
        DevTerminal::of_process().write(&certificate.how_to_trust());
    }
    if let Some(url) = urls.first().filter(|_| options.open) {
        open_in_browser(url);
    }
    supervisor.run().await;
    engine.stop(STOP_TIMEOUT).await;
    Ok(())
}

/// The listeners, and the local certificate.
fn listeners(
    options: &DevOptions,
    service: Arc<dyn ServiceFactory>,
) -> Result<(Vec<ListenerPlan>, Option<LocalCertificate>), DevError> {
    let listener = |listen: ListenArgument, tls: Option<Arc<TlsSettings>>| ListenerPlan {
        tls,
        ..ListenerPlan::new(listen.address(), Arc::clone(&service))
    };
    if !options.tls {
        let listen = options.listen.clone();
        let listen = listen.unwrap_or_else(|| ListenArgument::free(false));
        return Ok((vec![listener(listen, None)], None));
    }
    let certificate = LocalCa::of_user()
        .and_then(|authority| authority.certificate(&hosts(options.listen.as_ref())))
        .map_err(DevError::Certificate)?;
    let tls = Some(tls_settings(&certificate)?);
    let listeners = match options.listen.clone() {
        Some(listen) => vec![listener(listen, tls)],
        None => vec![
            listener(ListenArgument::free(false), None),
            listener(ListenArgument::free(true), tls),
        ],
    };
    Ok((listeners, Some(certificate)))
}

/// The hosts under which clients may call it.
fn development_hosts(options: &DevOptions) -> DevelopmentHosts {
    let address = match &options.listen {
        Some(ListenArgument::Port(_)) => Some(Ipv4Addr::UNSPECIFIED.to_string()),
        Some(ListenArgument::Address(address)) => Some(address.ip().to_string()),
        Some(ListenArgument::Unix(_)) | None => None,
    };
    DevelopmentHosts::new(options.hosts.iter().cloned().chain(address))
}

/// The hosts of an address, for its certificate.
fn hosts(listen: Option<&ListenArgument>) -> Vec<String> {
    match listen {
        Some(ListenArgument::Address(address)) => vec![address.ip().to_string()],
        Some(ListenArgument::Port(_) | ListenArgument::Unix(_)) | None => Vec::new(),
    }
}

fn tls_settings(certificate: &LocalCertificate) -> Result<Arc<TlsSettings>, DevError> {
    let path = &certificate.pem_file;
    let pem = fs::read(path)
        .map_err(|error| DevError::Certificate(LocalCaError::Io(path.clone(), error)))?;
    let invalid = |error: String| DevError::Tls(error);
    let certificate =
        Certificate::from_pem(&pem, &pem).map_err(|error| invalid(error.to_string()))?;
    let site = TlsSite {
        http3: false,
        ..TlsSite::new(Vec::new(), vec![certificate])
    };
    let settings = TlsSettings::new(&[site], UnknownName::FirstSite);
    settings
        .map(Arc::new)
        .map_err(|error| invalid(error.to_string()))
}

fn announce(text: &str) {
    // The reader of standard output may be gone.
    let mut output = io::stdout().lock();
    let _ = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
}

/// Why `apus dev` cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum DevError {
    /// The folder has no application, or the options select none.
    Project(ProjectError),
    /// An address cannot be used.
    Listen(EngineStartError),
    /// There is no local certificate.
    Certificate(LocalCaError),
    /// The local certificate cannot be used.
    Tls(String),
    /// The sources cannot be watched.
    Watch(notify::Error),
    /// The log cannot be started.
    Log(String),
    /// The system refuses something else.
    Io(io::Error),
}

impl DevError {
    fn of(error: SupervisorError) -> Self {
        match error {
            SupervisorError::Watch(error) => Self::Watch(error),
            SupervisorError::Io(error) => Self::Io(error),
        }
    }
}

impl fmt::Display for DevError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::Certificate(error) => error.fmt(f),
            Self::Tls(error) => write!(f, "the local certificate cannot be used: {error}"),
            Self::Watch(error) => write!(f, "the sources cannot be watched: {error}"),
            Self::Log(error) => f.write_str(error),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DevError {}
