//! The context of a distributed trace (W3C Trace Context).

use apus_http::{Headers, TraceContext};

/// Lines of `traceparent`, an empty line, and lines of `tracestate`. What is read is the same when it is written and read again, and fits
/// into fields.
pub fn trace_context(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (parents, states) = text.split_once("\n\n").unwrap_or((&text, ""));
    let read = |parents: &str, states: &str| {
        let mut headers = Headers::new();
        for (name, lines) in [("traceparent", parents), ("tracestate", states)] {
            for line in lines.lines() {
                // A line that is no value of a field cannot arrive.
                let _ = headers.try_append(name, line);
            }
        }
        TraceContext::read(&headers)
    };
    let Some(context) = read(parents, states) else {
        return;
    };
    let written = context.to_string();
    let state = context.state().unwrap_or_default();
    assert_eq!(written.len(), 55);
    assert!(state.len() <= 512, "{state}");
    assert_eq!(read(&written, state), Some(context));
}
