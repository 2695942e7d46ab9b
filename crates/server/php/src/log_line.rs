//! Log lines of PHP workers, written to the log of the server.

use apus_http::{Method, RequestId};

use crate::wire::LogLevel;

/// The source of log lines.
pub(crate) struct WorkerLogLine<'a> {
    pub(crate) pool: &'a str,
    pub(crate) pid: i32,
    /// The request that the worker handles.
    pub(crate) request: Option<&'a LoggedRequest>,
}

/// What log lines say about a request.
#[derive(Clone, Debug)]
pub(crate) struct LoggedRequest {
    pub(crate) method: Method,
    pub(crate) target: Vec<u8>,
    pub(crate) id: Option<RequestId>,
}

impl WorkerLogLine<'_> {
    pub(crate) fn write(&self, level: LogLevel, text: &[u8]) {
        let (pool, pid) = (self.pool, self.pid);
        let (method, target) = match self.request {
            Some(request) => (request.method.as_str(), &*request.target),
            None => ("", &b""[..]),
        };
        let request_id = self.request.and_then(|request| request.id.as_ref());
        let request_id = request_id.map(tracing::field::display);
        let text = without_controls(text.trim_ascii_end());
        let path = target.escape_ascii();
        match level {
            LogLevel::Error => tracing::error!(pool, pid, method, %path, request_id, "{text}"),
            LogLevel::Warning => tracing::warn!(pool, pid, method, %path, request_id, "{text}"),
            LogLevel::Info => tracing::info!(pool, pid, method, %path, request_id, "{text}"),
            LogLevel::Debug => tracing::debug!(pool, pid, method, %path, request_id, "{text}"),
        }
    }
}

/// The text of an application, with control characters other than line ends and tabs replaced.
fn without_controls(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}
