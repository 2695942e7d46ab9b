//! The FastCGI request of a worker, which stays open until the worker ends.
//!
//! Its parameters name the socket of the pool; its response is the output of PHP itself.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_client::Address;
use apus_codec::fastcgi::{FastCgiConnection, FastCgiEvent, Params};
use apus_codec::h1::HeadLimits;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error_log::{ErrorLogMessage, ErrorLogReader};
use crate::log_line::WorkerLogLine;
use crate::plan::{ApplicationMode, WorkerPoolPlan};
use crate::record::WorkerId;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::LogLevel;

/// The values behind the parameters of the request.
pub(super) struct BootParameters<'a> {
    pub(super) plan: &'a WorkerPoolPlan,
    pub(super) runtime: &'a Path,
    pub(super) socket: &'a Path,
    pub(super) script: &'a Path,
    pub(super) error_log: Option<&'a Path>,
    pub(super) token: &'a str,
    pub(super) is_fresh: bool,
    pub(super) is_single_use: bool,
}

/// The parameters of the request.
pub(super) fn params(boot: &BootParameters<'_>) -> Params {
    let plan = boot.plan;
    let mut params = Params::new();
    let mut path = |name: &str, path: &Path| params.push(name, path.as_os_str().as_encoded_bytes());
    path("SCRIPT_FILENAME", boot.runtime);
    path("DOCUMENT_ROOT", &plan.root);
    path("APUS_SOCKET", boot.socket);
    path("APUS_SCRIPT", boot.script);
    if let Some(error_log) = boot.error_log {
        path("APUS_ERROR_LOG", error_log);
    }
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "apus"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/apus.php"),
        ("SCRIPT_NAME", "/apus.php"),
        ("QUERY_STRING", ""),
        ("REDIRECT_STATUS", "200"),
        ("APUS_TOKEN", boot.token),
        ("APUS_MODE", plan.mode.as_str()),
        ("APUS_LEAKS", plan.leaks.as_str()),
    ] {
        params.push(name, value);
    }
    if boot.is_fresh {
        params.push("APUS_FRESH", "1");
    }
    if plan.development {
        params.push("APUS_ENV", "development");
    }
    if boot.is_single_use && plan.mode == ApplicationMode::Classic {
        params.push("APUS_KEEP", "0");
    }
    params
}

/// The output of PHP and the end of its FastCGI request.
#[derive(Debug, Default)]
pub(super) struct PhpOutput {
    /// Why it does not boot, as the worker reported or as the supervisor found.
    pub(super) reason: String,
    /// The error log of PHP. Messages of a boot that fails are a part of the reason, which is logged once and not with
    /// each attempt.
    pub(super) error_log: Vec<ErrorLogMessage>,
    /// What the worker sent to the log, for the same purpose.
    pub(super) lines: Vec<(LogLevel, Bytes)>,
    /// The pipe of the error log, when the connection of the worker has ended and its process may not have.
    pub(super) error_log_reader: Option<ErrorLogReader>,
    stderr: Vec<u8>,
    stdout: Vec<u8>,
    pub(super) end: BootEnd,
    /// Whether it is booted: from then on output goes to the log.
    pub(super) is_booted: bool,
}

/// How the FastCGI request of a worker ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BootEnd {
    /// By END_REQUEST, or by the supervisor: the output of PHP is complete.
    #[default]
    Complete,
    /// The connection was not accepted.
    Unreachable,
    /// The connection ended before END_REQUEST: the process is gone, as when the FastCGI server restarts.
    CutOff,
    /// The worker had booted, and its process ended before its first request.
    Unused,
}

/// The number of bytes of output that are kept.
const MAX_OUTPUT: usize = 16 * 1024;

impl PhpOutput {
    /// Why the worker did not boot, in the words of PHP: the report of the worker, and what it does not repeat of the
    /// logs and the output. It is the same for each boot that fails in the same way, whichever of them arrives first,
    /// so that a failure is logged once.
    pub(super) fn message(&mut self) -> String {
        // All of it was written before the FastCGI request ended.
        if let Some(mut reader) = self.error_log_reader.take() {
            self.error_log.extend(reader.take_all());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let mut message = self.reason.trim().to_owned();
        let mut log = Vec::new();
        let messages = self.error_log.iter().map(|message| &message.text);
        for more in messages.chain(self.lines.iter().map(|(_, text)| text)) {
            if !is_logged_form(&text(more), &message) {
                keep(&mut log, more);
            }
        }
        let mut stderr = text(&self.stderr);
        if is_logged_form(&stderr, &message) {
            stderr.clear();
        }
        for more in [text(&log), stderr, text(&self.stdout)] {
            if !more.is_empty() && !message.contains(&more) && !more.contains(&message) {
                message.push('\n');
                message.push_str(&more);
            } else if more.len() > message.len() {
                message = more;
            }
        }
        if message.is_empty() {
            "PHP ended without output".to_owned()
        } else {
            message.trim_start().to_owned()
        }
    }
}

/// The request for one worker.
pub(super) struct BootRequest {
    pub(super) id: WorkerId,
    pub(super) address: Address,
    pub(super) params: Params,
    pub(super) limit: Duration,
    pub(super) output: Rc<RefCell<PhpOutput>>,
    pub(super) pool: Arc<str>,
    pub(super) supervisor: mpsc::UnboundedSender<SupervisorMessage>,
}

/// Sends the request and reads its output until it ends.
pub(super) async fn run(request: BootRequest) {
    let connected = timeout(request.limit, connect(&request.address)).await;
    let (end, failure) = match connected.map_err(io::Error::from).flatten() {
        Ok(stream) => match exchange(stream, &request).await {
            Ok(end) => (end, None),
            Err(error) if is_cut_off(&error) => (BootEnd::CutOff, None),
            Err(error) => (BootEnd::Complete, Some(error.to_string())),
        },
        Err(error) => (BootEnd::Unreachable, Some(error.to_string())),
    };
    let failure = match end {
        // A process that ends resets the connection if it has not read all of the request.
        BootEnd::CutOff => Some("it closed the connection before the boot ended".to_owned()),
        _ => failure,
    };
    {
        let mut output = request.output.borrow_mut();
        output.end = end;
        if let Some(failure) = failure
            && !output.is_booted
            && output.reason.is_empty()
        {
            output.reason = format!("the FastCGI server at {}: {failure}", request.address);
        }
    }
    let _ = request
        .supervisor
        .send(SupervisorMessage::BootRequestEnded(request.id));
}

fn is_cut_off(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

/// A connection to a FastCGI server.
trait FastCgiStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> FastCgiStream for S {}

async fn connect(address: &Address) -> io::Result<Box<dyn FastCgiStream>> {
    Ok(match address {
        Address::Ip(address) => Box::new(TcpStream::connect(address).await?),
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

async fn exchange(
    mut stream: Box<dyn FastCgiStream>,
    request: &BootRequest,
) -> io::Result<BootEnd> {
    let mut codec = FastCgiConnection::new(HeadLimits {
        target_bytes: 0,
        head_bytes: 64 * 1024,
        fields: 256,
    });
    let mut out = Vec::with_capacity(1024);
    if !codec.send_request(&request.params, false, false, &mut out) {
        return Ok(BootEnd::Complete);
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
                FastCgiEvent::Stderr(range) => request.handle_output(piece(range), true),
                FastCgiEvent::Data(range) => request.handle_output(piece(range), false),
                FastCgiEvent::End { .. } => return Ok(BootEnd::Complete),
                FastCgiEvent::Head(_) | FastCgiEvent::Incomplete => {}
            }
            input.drain(..consumed);
            if event == FastCgiEvent::Incomplete {
                break;
            }
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(BootEnd::CutOff);
        }
    }
}

impl BootRequest {
    /// Keeps or logs output of PHP.
    fn handle_output(&self, text: &[u8], is_error: bool) {
        let mut output = self.output.borrow_mut();
        if output.is_booted {
            let line = WorkerLogLine {
                pool: &self.pool,
                pid: 0,
                request: None,
            };
            line.write(
                if is_error {
                    LogLevel::Warning
                } else {
                    LogLevel::Info
                },
                text,
            );
            return;
        }
        let kept = if is_error {
            &mut output.stderr
        } else {
            &mut output.stdout
        };
        keep(kept, text);
    }
}

/// Whether a message of PHP's error log, `PHP Parse error:  .. in FILE on line LINE`, is about the same error as the report
/// of a worker, `.. in FILE:LINE`.
fn is_logged_form(message: &str, report: &str) -> bool {
    let message = message.strip_prefix("PHP message: ").unwrap_or(message);
    let without_kind = message
        .strip_prefix("PHP ")
        .and_then(|message| message.split_once(":  "));
    let Some((error, line)) = without_kind.and_then(|(_, error)| error.rsplit_once(" on line "))
    else {
        return false;
    };
    let reported = report.strip_prefix(error);
    reported.and_then(|report| report.strip_prefix(':')) == Some(line)
}

fn keep(kept: &mut Vec<u8>, text: &[u8]) {
    let room = MAX_OUTPUT.saturating_sub(kept.len());
    kept.extend_from_slice(text.get(..room).unwrap_or(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(reason: &str, log: &[&str], stderr: &str, stdout: &str) -> String {
        let message = |text: &&str| ErrorLogMessage {
            level: LogLevel::Warning,
            text: Bytes::copy_from_slice(text.as_bytes()),
        };
        let mut output = PhpOutput {
            reason: reason.to_owned(),
            error_log: log.iter().map(message).collect(),
            stderr: stderr.into(),
            stdout: stdout.into(),
            ..PhpOutput::default()
        };
        output.message()
    }

    #[test]
    fn the_error_that_a_worker_reports_is_not_repeated_from_the_log() {
        let report =
            "Uncaught Exception: no in /x.php:2\nStack trace:\n#0 {main}\n  thrown in /x.php:2";
        let logged = "PHP Fatal error:  Uncaught Exception: no in /x.php:2\nStack trace:\n#0 {main}\n  thrown in \
                      /x.php on line 2\n";
        assert_eq!(message(report, &[logged], "", ""), report);
        let stderr = format!("PHP message: {logged}");
        assert_eq!(message(report, &[], &stderr, ""), report);
        let before = "PHP Warning:  less in /x.php on line 1\n";
        let expected = format!("{report}\nPHP Warning:  less in /x.php on line 1");
        assert_eq!(message(report, &[before, logged], "", ""), expected);
        for other in [
            "PHP Fatal error:  Uncaught Exception: no in /x.php:2\n  thrown in /x.php on line 3",
            "Uncaught Exception: no in /x.php:2\n  thrown in /x.php on line 2",
            "PHP Fatal error:  ",
            "PHP :  on line ",
        ] {
            assert!(
                !is_logged_form(other, "Uncaught Exception: no in /x.php:2"),
                "{other}"
            );
        }
    }

    #[test]
    fn the_reason_is_the_report_the_logs_and_the_output_in_this_order() {
        assert_eq!(
            message("it ended", &["one\n", "two\n"], "three\n", "four\n"),
            "it ended\none\ntwo\nthree\nfour"
        );
        assert_eq!(message("", &["one\n"], "", ""), "one");
        assert_eq!(message("", &[], "", ""), "PHP ended without output");
    }
}
