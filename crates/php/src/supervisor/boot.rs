//! The FastCGI request in which a worker lives.
//!
//! It names our socket, and stays open until the worker ends; its output is what PHP itself writes.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_codec::fastcgi::{ClientConnection, ClientEvent, Params};
use apus_codec::h1::HeadLimits;
use apus_net::client::Address;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::exchange::Line;
use crate::plan::{Mode, PoolPlan};
use crate::record::WorkerId;
use crate::signal::Signal;
use crate::wire::Level;

/// What a worker is told.
pub(super) struct Facts<'a> {
    pub(super) plan: &'a PoolPlan,
    pub(super) runtime: &'a Path,
    pub(super) socket: &'a Path,
    pub(super) script: &'a Path,
    pub(super) token: &'a str,
    pub(super) is_fresh: bool,
    pub(super) not_twice: bool,
}

/// The parameters of the request.
pub(super) fn params(facts: &Facts<'_>) -> Params {
    let plan = facts.plan;
    let mut params = Params::new();
    let mut path = |name: &str, path: &Path| params.push(name, path.as_os_str().as_encoded_bytes());
    path("SCRIPT_FILENAME", facts.runtime);
    path("DOCUMENT_ROOT", &plan.root);
    path("APUS_SOCKET", facts.socket);
    path("APUS_SCRIPT", facts.script);
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "apus"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/apus.php"),
        ("SCRIPT_NAME", "/apus.php"),
        ("QUERY_STRING", ""),
        ("REDIRECT_STATUS", "200"),
        ("APUS_TOKEN", facts.token),
        ("APUS_MODE", plan.mode.as_str()),
        ("APUS_LEAKS", plan.leaks.as_str()),
    ] {
        params.push(name, value);
    }
    if facts.is_fresh {
        params.push("APUS_FRESH", "1");
    }
    if plan.development {
        params.push("APUS_ENV", "development");
    }
    if facts.not_twice && plan.mode == Mode::Classic {
        params.push("APUS_KEEP", "0");
    }
    params
}

/// What PHP said of itself.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Why it does not boot, as it said or as it was found.
    pub(super) reason: String,
    errors: Vec<u8>,
    output: Vec<u8>,
    pub(super) ending: BootEnding,
    /// From now on what it says goes to the log as it comes.
    pub(super) is_booted: bool,
}

/// How the FastCGI request of a worker ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BootEnding {
    /// By END_REQUEST, or by us: what PHP said of itself is all there is to know.
    #[default]
    InOrder,
    /// Nobody took the connection.
    Unreachable,
    /// The connection ended before END_REQUEST: its process is gone, as when the server begins anew.
    CutOff,
    /// The worker had booted, and its process ended before its first request.
    Unused,
}

/// What is kept of it.
const MAX_KEPT: usize = 16 * 1024;

impl Said {
    /// Why there is no worker, in PHP's own words.
    pub(super) fn message(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let (errors, output) = (text(&self.errors), text(&self.output));
        let mut message = self.reason.trim().to_owned();
        for more in [errors, output] {
            if !more.is_empty() && !message.contains(&more) && !more.contains(&message) {
                message.push('\n');
                message.push_str(&more);
            } else if more.len() > message.len() {
                message = more;
            }
        }
        match message.is_empty() {
            true => "PHP ended without a word".to_owned(),
            false => message.trim_start().to_owned(),
        }
    }
}

/// A worker that is wanted.
pub(super) struct Wanted {
    pub(super) id: WorkerId,
    pub(super) address: Address,
    pub(super) params: Params,
    pub(super) limit: Duration,
    pub(super) said: Rc<RefCell<Said>>,
    pub(super) pool: Arc<str>,
    pub(super) signals: mpsc::UnboundedSender<Signal>,
}

/// Sends the request and stays with it until it ends.
pub(super) async fn run(wanted: Wanted) {
    let connected = timeout(wanted.limit, connect(&wanted.address)).await;
    let (ending, ended) = match connected.map_err(io::Error::from).flatten() {
        Ok(stream) => match live(stream, &wanted).await {
            Ok(ending) => (ending, Ok(())),
            Err(error) if is_cut_off(&error) => (BootEnding::CutOff, Err(error)),
            Err(error) => (BootEnding::InOrder, Err(error)),
        },
        Err(error) => (BootEnding::Unreachable, Err(error)),
    };
    {
        let mut said = wanted.said.borrow_mut();
        said.ending = ending;
        if let Err(error) = ended
            && !said.is_booted
            && said.reason.is_empty()
        {
            said.reason = format!("the FastCGI server at {}: {error}", wanted.address);
        }
    }
    let _ = wanted.signals.send(Signal::Ended(wanted.id));
}

fn is_cut_off(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

/// A connection to a FastCGI server.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

async fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    Ok(match address {
        Address::Ip(address) => Box::new(TcpStream::connect(address).await?),
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

async fn live(mut stream: Box<dyn Stream>, wanted: &Wanted) -> io::Result<BootEnding> {
    let mut codec = ClientConnection::new(HeadLimits {
        target_bytes: 0,
        head_bytes: 64 * 1024,
        fields: 256,
    });
    let mut out = Vec::with_capacity(1024);
    if !codec.send_request(&wanted.params, false, false, &mut out) {
        return Ok(BootEnding::InOrder);
    }
    codec.send_end(&mut out);
    stream.write_all(&out).await?;
    drop(out);
    let mut input = Vec::with_capacity(4096);
    loop {
        loop {
            let (consumed, event) = codec.handle_input(&input).map_err(io::Error::other)?;
            let piece = |range: &Range<usize>| input.get(range.clone()).unwrap_or_default();
            match &event {
                ClientEvent::Stderr(range) => wanted.hear(piece(range), true),
                ClientEvent::Data(range) => wanted.hear(piece(range), false),
                ClientEvent::End { .. } => return Ok(BootEnding::InOrder),
                ClientEvent::Head(_) | ClientEvent::Incomplete => {}
            }
            input.drain(..consumed);
            if event == ClientEvent::Incomplete {
                break;
            }
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(BootEnding::CutOff);
        }
    }
}

impl Wanted {
    fn hear(&self, text: &[u8], is_error: bool) {
        let mut said = self.said.borrow_mut();
        if said.is_booted {
            let line = Line {
                pool: &self.pool,
                pid: 0,
                request: None,
            };
            line.write(
                if is_error {
                    Level::Warning
                } else {
                    Level::Info
                },
                text,
            );
            return;
        }
        let kept = match is_error {
            true => &mut said.errors,
            false => &mut said.output,
        };
        let room = MAX_KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(text.get(..room).unwrap_or(text));
    }
}
