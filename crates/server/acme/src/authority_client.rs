//! HTTPS requests to a certificate authority, whose responses tell whether the clock of this machine is right, and how long
//! to wait.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use apus_http::Headers;
use apus_http::fields::http_date;
use apus_net::read_trusted_file;
use apus_transport::tls::certificates_from_pem;
use bytes::Bytes;
use http::header::{DATE, HeaderMap, HeaderValue, LINK, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot};

use apus_client::{UrlClient, UrlRequest, UrlRequestError, UrlResponse};

/// The largest file of root certificates, in bytes.
const LARGEST_ROOTS: u64 = 16 << 20;

/// How far the clock of this machine may differ from the clock of an authority. Certificates are commonly valid from an
/// hour before they are issued.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(3600);
/// The longest time that an authority is not asked because it said so.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// HTTPS requests to an authority.
// instant-acme asks for futures that are `Send`, and connections belong to one thread: requests go to a task there.
pub(crate) struct AuthorityClient {
    requests: mpsc::UnboundedSender<AuthorityRequest>,
    observations: Arc<AuthorityObservations>,
}

struct AuthorityRequest {
    request: UrlRequest,
    reply: oneshot::Sender<Result<UrlResponse, UrlRequestError>>,
}

/// What the responses of an authority say beside their bodies.
#[derive(Debug, Default)]
pub(crate) struct AuthorityObservations {
    /// The seconds of the last `Retry-After` in a refusal.
    retry_after: AtomicU64,
    /// The status of the last response; 0 while there is none to the last request.
    status: AtomicU16,
    /// Of the last response.
    links: Mutex<ResponseLinks>,
}

/// What a response offers for further requests.
#[derive(Debug, Default)]
struct ResponseLinks {
    nonce: Option<String>,
    /// The URLs of alternative chains (RFC 8555 section 7.4.2).
    alternatives: Vec<String>,
}

impl AuthorityObservations {
    /// How long the authority wants to be left alone (RFC 8555 section 6.6).
    pub(crate) fn retry_after(&self) -> Duration {
        Duration::from_secs(self.retry_after.load(Ordering::Relaxed))
    }

    /// Whether the last response refuses its request for good, so that the same would be refused again. Other failures,
    /// such as a broken network or an overloaded authority, say nothing about the request.
    pub(crate) fn is_refusal(&self) -> bool {
        StatusCode::from_u16(self.status.load(Ordering::Relaxed)).is_ok_and(|status| {
            let is_temporary = matches!(
                status,
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            );
            status.is_client_error() && !is_temporary
        })
    }

    /// Whether another request may succeed where the last one did not: it was refused, or the authority failed at it (500), and
    /// is not merely overloaded.
    pub(crate) fn is_failure_of_the_request(&self) -> bool {
        let status = self.status.load(Ordering::Relaxed);
        self.is_refusal() || status == StatusCode::INTERNAL_SERVER_ERROR.as_u16()
    }

    /// The alternative chains of the certificate in the last response.
    pub(crate) fn alternatives(&self) -> Vec<String> {
        self.with_links(|links| links.alternatives.clone())
    }

    /// The nonce of the last response, which can be used once.
    pub(crate) fn take_nonce(&self) -> Option<String> {
        self.with_links(|links| links.nonce.take())
    }

    fn with_links<T>(&self, look: impl FnOnce(&mut ResponseLinks) -> T) -> T {
        look(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin_request(&self) {
        self.with_links(|links| *links = ResponseLinks::default());
        self.status.store(0, Ordering::Relaxed);
    }

    fn note(&self, status: StatusCode, headers: &HeaderMap) {
        let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
        self.with_links(|links| {
            links.nonce = headers.get("replay-nonce").and_then(text);
            let fields = headers.get_all(LINK).iter().filter_map(text);
            links.alternatives = fields
                .flat_map(|field| alternatives(&field).collect::<Vec<_>>())
                .collect();
        });
        self.status.store(status.as_u16(), Ordering::Relaxed);
        if !matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            return;
        }
        if let Some(wait) = retry_after(headers, SystemTime::now()) {
            let wait = wait.min(LONGEST_RETRY_AFTER);
            self.retry_after.store(wait.as_secs(), Ordering::Relaxed);
        }
    }
}

impl AuthorityClient {
    /// The client of an authority, whose HTTPS server is trusted by this root certificate, or by the root certificates of
    /// the system. Its connections are kept by a task of this thread.
    pub(crate) fn new(
        root: Option<&Path>,
        observations: Arc<AuthorityObservations>,
    ) -> Result<Self, Error> {
        let client = UrlClient::new(root.map(roots).transpose()?).only_https();
        let (requests, received) = mpsc::unbounded_channel();
        tokio::task::spawn_local(send_all(client, received));
        Ok(Self {
            requests,
            observations,
        })
    }

    /// What its responses say.
    pub(crate) fn observations(&self) -> &AuthorityObservations {
        &self.observations
    }
}

/// Sends requests in order, until the client is dropped.
async fn send_all(client: UrlClient, mut requests: mpsc::UnboundedReceiver<AuthorityRequest>) {
    while let Some(AuthorityRequest { request, mut reply }) = requests.recv().await {
        tokio::select! {
            result = client.send(request) => {
                // Whoever asked may have given up at this moment.
                let _ = reply.send(result);
            }
            () = reply.closed() => {}
        }
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        self.observations.begin_request();
        let observations = Arc::clone(&self.observations);
        let requests = self.requests.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut headers = Headers::new();
            for (name, value) in &head.headers {
                headers.append(name, value);
            }
            let request = UrlRequest {
                method: head.method,
                url: head.uri,
                headers,
                body: body.collect().await.unwrap_or_default().to_bytes(),
            };
            let (reply, response) = oneshot::channel();
            // The task ends only with this client.
            let _ = requests.send(AuthorityRequest { request, reply });
            let response = response
                .await
                .map_err(|error| Error::Other(Box::new(error)))?
                .map_err(|error| Error::Other(Box::new(error)))?;
            let headers = response.headers.to_header_map();
            observations.note(response.status, &headers);
            if let Some(error) = clock_error(&headers, SystemTime::now()) {
                return Err(Error::Other(Box::new(error)));
            }
            let mut whole = Response::new(Full::new(response.body));
            *whole.status_mut() = response.status;
            *whole.headers_mut() = headers;
            Ok(BytesResponse::from(whole))
        })
    }
}

/// The certificates of a file of roots.
fn roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |why: String| Error::Other(format!("{}: {why}", path.display()).into());
    let pem = read_trusted_file(path, LARGEST_ROOTS).map_err(|error| failed(error.to_string()))?;
    certificates_from_pem(&pem).map_err(|fault| failed(fault.to_string()))
}

/// The time of `Retry-After` (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => http_date(text.as_bytes())?.duration_since(now).ok(),
    }
}

/// The URLs of a `Link` field (RFC 8288) whose relation is `alternate`.
fn alternatives(field: &str) -> impl Iterator<Item = String> {
    let links = field.split('<').skip(1);
    links.filter_map(|link| {
        let (url, parameters) = link.split_once('>')?;
        let is_alternative = parameters.split([';', ',']).any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            let relations = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && relations
                    .split_ascii_whitespace()
                    .any(|relation| relation.eq_ignore_ascii_case("alternate"))
        });
        (is_alternative && url.starts_with("https://")).then(|| url.to_owned())
    })
}

/// Why the clock of this machine is wrong, if it differs much from the authority's clock.
fn clock_error(headers: &HeaderMap, now: SystemTime) -> Option<ClockError> {
    let date = http_date(headers.get(DATE)?.as_bytes())?;
    let (is_ahead, difference) = match now.duration_since(date) {
        Ok(difference) => (true, difference),
        Err(error) => (false, error.duration()),
    };
    (difference > MAX_CLOCK_DIFFERENCE).then_some(ClockError {
        is_ahead,
        difference,
    })
}

/// The clock of this machine is wrong.
#[derive(Debug)]
pub(crate) struct ClockError {
    is_ahead: bool,
    difference: Duration,
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.difference.as_secs() / 60;
        let way = if self.is_ahead { "ahead of" } else { "behind" };
        write!(
            f,
            "the clock of this machine is wrong: it is {} h {} min {way} the authority's, so that no certificate is ordered",
            minutes / 60,
            minutes % 60
        )
    }
}

impl std::error::Error for ClockError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: http::header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn time(text: &str) -> SystemTime {
        http_date(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_clock_that_differs_by_more_than_an_hour_is_wrong() {
        let date = headers(DATE, "Thu, 05 Nov 2026 12:00:00 GMT");
        let at = |text: &str| clock_error(&date, time(text)).map(|error| error.to_string());
        assert_eq!(at("Thu, 05 Nov 2026 12:59:00 GMT"), None);
        assert_eq!(at("Thu, 05 Nov 2026 11:01:00 GMT"), None);
        let ahead = at("Fri, 06 Nov 2026 13:30:00 GMT").unwrap();
        assert!(ahead.contains("25 h 30 min ahead of"), "{ahead}");
        let behind = at("Thu, 05 Nov 2026 10:00:00 GMT").unwrap();
        assert!(behind.contains("2 h 0 min behind"), "{behind}");
        assert!(clock_error(&HeaderMap::new(), SystemTime::now()).is_none());
    }

    #[test]
    fn only_refusals_say_how_long_to_wait() {
        let now = time("Thu, 05 Nov 2026 12:00:00 GMT");
        let date = headers(RETRY_AFTER, "Thu, 05 Nov 2026 12:02:00 GMT");
        assert_eq!(retry_after(&date, now), Some(Duration::from_secs(120)));
        let seconds = headers(RETRY_AFTER, "7200");
        let observations = AuthorityObservations::default();
        observations.note(StatusCode::OK, &seconds);
        assert_eq!(observations.retry_after(), Duration::ZERO);
        observations.note(StatusCode::TOO_MANY_REQUESTS, &seconds);
        assert_eq!(observations.retry_after(), Duration::from_secs(7200));
        observations.note(
            StatusCode::SERVICE_UNAVAILABLE,
            &headers(RETRY_AFTER, "99999999"),
        );
        assert_eq!(observations.retry_after(), LONGEST_RETRY_AFTER);
    }

    #[test]
    fn failures_that_pass_are_no_refusals() {
        let observations = AuthorityObservations::default();
        let is_refusal = |status| {
            observations.note(status, &HeaderMap::new());
            observations.is_refusal()
        };
        for status in [
            StatusCode::BAD_REQUEST,
            StatusCode::NOT_FOUND,
            StatusCode::GONE,
        ] {
            assert!(is_refusal(status), "{status}");
        }
        for status in [
            StatusCode::OK,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::INTERNAL_SERVER_ERROR,
            StatusCode::SERVICE_UNAVAILABLE,
        ] {
            assert!(!is_refusal(status), "{status}");
        }
        assert!(is_refusal(StatusCode::NOT_FOUND));
        // The connection of the next request breaks off.
        observations.begin_request();
        assert!(!observations.is_refusal());
    }

    #[test]
    fn an_authority_that_fails_at_a_request_may_accept_another_and_an_overloaded_one_not() {
        let observations = AuthorityObservations::default();
        for (status, expected) in [
            (StatusCode::CONFLICT, true),
            (StatusCode::INTERNAL_SERVER_ERROR, true),
            (StatusCode::BAD_GATEWAY, false),
            (StatusCode::SERVICE_UNAVAILABLE, false),
            (StatusCode::TOO_MANY_REQUESTS, false),
            (StatusCode::CREATED, false),
        ] {
            observations.note(status, &HeaderMap::new());
            assert_eq!(
                observations.is_failure_of_the_request(),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn links_to_alternative_chains_are_found_among_others() {
        let found = |field: &str| alternatives(field).collect::<Vec<_>>();
        assert_eq!(found("<https://ca/1>;rel=\"alternate\""), ["https://ca/1"]);
        assert_eq!(
            found(
                "<https://ca/dir>; rel=\"index\", <https://ca/1>; title=\"a\"; REL=Alternate, <https://ca/2>;rel=\"up alternate\""
            ),
            ["https://ca/1", "https://ca/2"]
        );
        for other in [
            "",
            "<https://ca/1>",
            "<https://ca/1>;rel=up",
            "<http://ca/1>;rel=alternate",
            "https://ca/1;rel=alternate",
        ] {
            assert_eq!(found(other), Vec::<String>::new(), "{other}");
        }
    }
}
