//! The thread that sends messages to a collector.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use apus_http::RequestReport;
use bytes::Bytes;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use crate::metrics::MetricsExport;
use crate::spans;
use crate::transport::{OtlpProtocol, OtlpSettings, OtlpTransport, SendOutcome, Signal};

/// The messages that may wait.
const WAITING: usize = 8;

/// How long a message is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The waits between two tries: each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long the last messages are sent at the end.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// What became of messages, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Messages that the collector accepted.
    pub sent: u64,
    /// Messages that were lost: refused, not sent in time, or with too many before them.
    pub lost: u64,
    /// Requests whose spans the collector accepted.
    pub traced: u64,
    /// Requests whose spans were lost.
    pub untraced: u64,
}

/// What is sent.
#[derive(Debug)]
enum Export {
    Metrics(MetricsExport),
    Requests(Vec<RequestReport>),
}

impl Export {
    /// How many requests it has.
    fn requests(&self) -> u64 {
        match self {
            Self::Metrics(_) => 0,
            Self::Requests(reports) => reports.len() as u64,
        }
    }

    fn signal(&self) -> Signal {
        match self {
            Self::Metrics(_) => Signal::Metrics,
            Self::Requests(_) => Signal::Traces,
        }
    }
}

/// Counts messages, also of one exporter after another.
#[derive(Debug, Default)]
pub struct ExportCounters {
    sent: AtomicU64,
    lost: AtomicU64,
    traced: AtomicU64,
    untraced: AtomicU64,
}

impl ExportCounters {
    /// What became of the messages.
    pub fn counts(&self) -> ExportCounts {
        ExportCounts {
            sent: self.sent.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            traced: self.traced.load(Ordering::Relaxed),
            untraced: self.untraced.load(Ordering::Relaxed),
        }
    }

    /// Counts requests that were to be traced, and were not.
    pub fn count_untraced(&self, requests: u64) {
        self.untraced.fetch_add(requests, Ordering::Relaxed);
    }

    fn count(&self, is_sent: bool, requests: u64) {
        let (messages, spans) = if is_sent {
            (&self.sent, &self.traced)
        } else {
            (&self.lost, &self.untraced)
        };
        messages.fetch_add(1, Ordering::Relaxed);
        spans.fetch_add(requests, Ordering::Relaxed);
    }
}

/// Sends metrics and spans to a collector, on a thread of its own. What waits when it is dropped is sent for a moment.
#[derive(Debug)]
pub struct Exporter {
    queue: Option<mpsc::Sender<Export>>,
    counters: Arc<ExportCounters>,
    ends: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn start(settings: OtlpSettings, counters: Arc<ExportCounters>) -> io::Result<Self> {
        let (queue, exports) = mpsc::channel(WAITING);
        let (ends, ended) = watch::channel(None);
        let counted = Arc::clone(&counters);
        // Connections belong to the thread that opens them.
        let run = move || {
            let sender = ExportSender {
                resource: settings.resource.clone(),
                transport: OtlpTransport::new(settings),
                counters: counted,
                is_failing: false,
                ends: ended,
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default());
            match runtime {
                Ok(runtime) => runtime.block_on(sender.run(exports)),
                Err(error) => warn!(%error, "nothing is sent to the collector of OTLP"),
            }
        };
        let thread = thread::Builder::new()
            .name("apus-otlp".to_owned())
            .spawn(run)?;
        Ok(Self {
            queue: Some(queue),
            counters,
            ends,
            thread: Some(thread),
        })
    }

    /// Sends metrics, unless too much waits. Never blocks.
    pub fn send(&self, export: MetricsExport) {
        self.hand_over(Export::Metrics(export));
    }

    /// Sends the spans of requests that have ended, unless too much waits. Never blocks.
    pub fn send_requests(&self, reports: Vec<RequestReport>) {
        self.hand_over(Export::Requests(reports));
    }

    fn hand_over(&self, export: Export) {
        let requests = export.requests();
        let sent = self.queue.as_ref().map(|queue| queue.try_send(export));
        if !matches!(sent, Some(Ok(()))) {
            self.counters.count(false, requests);
        }
    }

    /// Ends the thread, after what waits was sent or a moment has passed.
    pub fn finish(&mut self) {
        self.queue = None;
        self.ends.send_replace(Some(Instant::now() + LAST_PATIENCE));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the time up to which the last messages are tried.
async fn end_of(mut ends: watch::Receiver<Option<Instant>>) {
    let until = match ends.wait_for(Option::is_some).await {
        Ok(until) => *until,
        Err(_) => None,
    };
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// What the thread has.
struct ExportSender {
    transport: OtlpTransport,
    resource: Vec<(String, String)>,
    counters: Arc<ExportCounters>,
    is_failing: bool,
    /// Until when the last messages are tried, once the exporter ends.
    ends: watch::Receiver<Option<Instant>>,
}

impl ExportSender {
    async fn run(mut self, mut exports: mpsc::Receiver<Export>) {
        while let Some(export) = exports.recv().await {
            let message = (export.signal(), self.encode(&export));
            let is_sent = self.deliver(&message).await;
            self.counters.count(is_sent, export.requests());
        }
    }

    fn encode(&self, export: &Export) -> Bytes {
        match export {
            Export::Metrics(metrics) => self.encoded(&metrics.message(&self.resource)),
            Export::Requests(reports) => self.encoded(&spans::message(reports, &self.resource)),
        }
    }

    fn encoded(&self, message: &(impl Message + serde::Serialize)) -> Bytes {
        match self.transport.protocol() {
            OtlpProtocol::HttpJson => serde_json::to_vec(message).unwrap_or_default().into(),
            _ => message.encode_to_vec().into(),
        }
    }

    /// Sends a message, as long as that is worth it; whether the collector accepted it.
    async fn deliver(&mut self, message: &(Signal, Bytes)) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut wait = FIRST_WAIT;
        loop {
            // A request that is under way is not repeated at the end: the collector may have it.
            let sent = tokio::select! {
                sent = self.try_once(message) => sent,
                () = end_of(self.ends.clone()) => return false,
            };
            let (why, after) = match sent {
                SendOutcome::Accepted => {
                    if std::mem::take(&mut self.is_failing) {
                        info!("the collector of OTLP accepts what is sent again");
                    }
                    return true;
                }
                SendOutcome::Refused(why) => {
                    self.say(message.0, &why);
                    return false;
                }
                SendOutcome::Retry(why, after) => (why, after),
            };
            self.say(message.0, &why);
            let pause = after.unwrap_or(wait).min(PATIENCE);
            let ends = *self.ends.borrow();
            if Instant::now() + pause > ends.unwrap_or(deadline) {
                return false;
            }
            let mut ended = self.ends.clone();
            tokio::select! {
                () = sleep(pause) => {}
                // Once more at the end, and then no more.
                _ = ended.wait_for(Option::is_some), if ends.is_none() => {}
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn try_once(&self, message: &(Signal, Bytes)) -> SendOutcome {
        let sent = self.transport.send(message.0, &message.1);
        timeout(REQUEST_TIMEOUT, sent)
            .await
            .unwrap_or_else(|_| SendOutcome::Retry("no response in time".to_owned(), None))
    }

    /// Says in the log that the collector fails, once.
    fn say(&mut self, signal: Signal, why: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let signal = signal.name();
            warn!(
                error = why,
                signal,
                "the collector of OTLP does not accept what is sent: it is lost until that works"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::SystemTime;

    use apus_http::Headers;
    use apus_metrics::{MetricDefinition, MetricSamples};
    use apus_testkit::wait_until;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

    use super::*;

    static SEEN: MetricDefinition = MetricDefinition::counter("seen", "Requests.");

    fn export(value: u64) -> MetricsExport {
        let mut samples = MetricSamples::new();
        samples.add(&SEEN, value);
        MetricsExport {
            samples,
            started: SystemTime::UNIX_EPOCH,
            time: SystemTime::now(),
        }
    }

    fn exporter(address: SocketAddr, protocol: OtlpProtocol) -> Exporter {
        let mut headers = Headers::new();
        headers.try_append("x-api-key", "abc").unwrap();
        let settings = OtlpSettings {
            endpoint: format!("http://{address}/base").parse().unwrap(),
            protocol,
            headers,
            authorities: None,
            resource: vec![("service.name".to_owned(), "apus".to_owned())],
        };
        Exporter::start(settings, Arc::default()).unwrap()
    }

    /// A collector over HTTP that answers with these statuses, and then with 200, and tells what it received.
    fn collector(statuses: &'static [u16]) -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut statuses = statuses.iter().copied();
        let (sender, received) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (head, body) = request(&mut stream);
                let status = statuses.next().unwrap_or(200);
                let response = format!(
                    "HTTP/1.1 {status} x\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(response.as_bytes()).unwrap();
                if sender.send((head, body)).is_err() {
                    return;
                }
            }
        });
        (address, received)
    }

    fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        (head, body)
    }

    fn value(message: &ExportMetricsServiceRequest) -> String {
        format!(
            "{:?}",
            message.resource_metrics[0].scope_metrics[0].metrics[0].data
        )
    }

    #[test]
    fn messages_go_over_http_as_protobuf_or_json() {
        let (address, received) = collector(&[]);
        let first = exporter(address, OtlpProtocol::HttpProtobuf);
        first.send(export(7));
        let (head, body) = received.recv().unwrap();
        for line in [
            "post /base/v1/metrics http/1.1",
            "content-type: application/x-protobuf",
            "x-api-key: abc",
        ] {
            assert!(head.contains(line), "{head}");
        }
        let message = ExportMetricsServiceRequest::decode(&*body).unwrap();
        assert!(value(&message).contains("AsInt(7)"), "{message:?}");
        let second = exporter(address, OtlpProtocol::HttpJson);
        second.send(export(8));
        let (head, body) = received.recv().unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        let message: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let metric = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        assert_eq!(metric["name"], "seen");
        assert_eq!(metric["sum"]["dataPoints"][0]["asInt"], "8", "{message}");
        wait_until("both are counted", || {
            (first.counters.counts().sent, second.counters.counts().sent) == (1, 1)
        });
    }

    #[test]
    fn a_message_is_tried_again_and_one_that_is_refused_is_lost() {
        let (address, received) = collector(&[503, 429, 200, 400]);
        let mut exporter = exporter(address, OtlpProtocol::HttpProtobuf);
        exporter.send(export(1));
        exporter.send(export(2));
        let bodies: Vec<_> = (0..4).map(|_| received.recv().unwrap().1).collect();
        assert_eq!((&bodies[0], &bodies[1]), (&bodies[1], &bodies[2]));
        wait_until("both have ended", || {
            exporter.counters.counts()
                == ExportCounts {
                    sent: 1,
                    lost: 1,
                    ..ExportCounts::default()
                }
        });
        exporter.finish();
    }

    #[test]
    fn a_collector_that_is_gone_holds_up_nobody() {
        let gone = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut exporter = exporter(gone, OtlpProtocol::HttpProtobuf);
        for number in 0..50 {
            exporter.send(export(number));
        }
        // One is being sent, and a few wait.
        assert!(exporter.counters.counts().lost >= 50 - WAITING as u64 - 1);
        exporter.finish();
        assert_eq!(
            exporter.counters.counts(),
            ExportCounts {
                lost: 50,
                ..ExportCounts::default()
            }
        );
    }

    #[test]
    fn what_waits_at_the_end_is_sent() {
        let (address, received) = collector(&[]);
        let mut exporter = exporter(address, OtlpProtocol::HttpProtobuf);
        for number in 0..5 {
            exporter.send(export(number));
        }
        exporter.finish();
        assert_eq!(
            exporter.counters.counts(),
            ExportCounts {
                sent: 5,
                ..ExportCounts::default()
            }
        );
        assert_eq!(received.try_iter().count(), 5);
    }

    /// Accepts one connection, answers 14 (unavailable) and then 0, and tells what it received.
    async fn collect_by_grpc(listener: TcpListener, sender: Sender<(String, Vec<u8>)>) {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut codes = ["14"].into_iter();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let sender = sender.clone();
            let code = codes.next().unwrap_or("0");
            tokio::spawn(async move {
                let head = format!("{:?} {:?}", request.uri().path(), request.headers());
                let mut body = request.into_body();
                let mut bytes = Vec::new();
                while let Some(data) = body.data().await {
                    bytes.extend_from_slice(&data.unwrap());
                }
                let response = http::Response::builder();
                let response = response.header("content-type", "application/grpc");
                let mut stream = respond
                    .send_response(response.body(()).unwrap(), false)
                    .unwrap();
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", code.parse().unwrap());
                stream.send_trailers(trailers).unwrap();
                let _ = sender.send((head, bytes));
            });
        }
    }

    #[test]
    fn messages_go_over_grpc_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(collect_by_grpc(listener, sender));
        });
        let exporter = exporter(address, OtlpProtocol::Grpc);
        exporter.send(export(9));
        let (first, again) = (received.recv().unwrap(), received.recv().unwrap());
        assert_eq!(first.1, again.1);
        let (head, bytes) = again;
        assert!(
            head.contains("opentelemetry.proto.collector.metrics.v1.MetricsService/Export"),
            "{head}"
        );
        assert!(
            head.contains("application/grpc") && head.contains("trailers"),
            "{head}"
        );
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
        assert_eq!((bytes[0], length as usize), (0, bytes.len() - 5));
        let message = ExportMetricsServiceRequest::decode(&bytes[5..]).unwrap();
        assert!(value(&message).contains("AsInt(9)"), "{message:?}");
        wait_until("it is counted", || exporter.counters.counts().sent == 1);
    }
}
