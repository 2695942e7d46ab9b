//! Compares the client's end with hyper, which parses the codec's requests and the same responses.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use apus_codec::h1::{ClientConnection, OutgoingRequest};
use apus_http::{Headers, Method};
use hyper::body::Incoming;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use crate::client::{Exchange, damaged, get, response};
use crate::oracle::{EmptyBody, Io, collect, runtime};
use crate::transcript::LIMITS;
use apus_testkit::cases;

/// A parsed response in a form that both can be converted to.
#[derive(Debug, PartialEq)]
struct ParsedResponse {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl ParsedResponse {
    fn new<'a>(
        status: u16,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        body: Vec<u8>,
    ) -> Self {
        const OF_THE_CONNECTION: [&str; 7] = [
            "connection",
            "content-length",
            "keep-alive",
            "proxy-connection",
            "te",
            "transfer-encoding",
            "upgrade",
        ];
        let mut fields: Vec<_> = fields
            .filter(|(name, _)| !OF_THE_CONNECTION.contains(name))
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            status,
            fields,
            body,
        }
    }
}

/// The response that hyper parses from these bytes, if it accepts it as complete.
fn by_hyper(input: &[u8]) -> Option<ParsedResponse> {
    runtime().block_on(async {
        let (client, mut server) = tokio::io::duplex(input.len() + 64 * 1024);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Io(client))
            .await
            .unwrap();
        let request = hyper::Request::builder()
            .uri("/")
            .header("host", "a")
            .body(EmptyBody)
            .unwrap();
        let exchange = async {
            let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = collect(body).await.ok()?;
            let fields = parts.headers.iter();
            Some(ParsedResponse::new(
                parts.status.as_u16(),
                fields.map(|(name, value)| (name.as_str(), value.as_bytes())),
                body,
            ))
        };
        let respond = async {
            // The response is sent after the request, and not before.
            let mut byte = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut server, &mut byte).await;
            server.write_all(input).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let (seen, _, ()) = tokio::join!(exchange, connection, respond);
        seen
    })
}

fn by_codec(input: &[u8]) -> Option<ParsedResponse> {
    let exchange = Exchange::of(get(), [input], true);
    let head = exchange.head.filter(|_| exchange.complete)?;
    Some(ParsedResponse::new(
        head.status.as_u16(),
        head.headers.iter(),
        exchange.body,
    ))
}

type RequestTuple = (String, String, Vec<(String, Vec<u8>)>, Vec<u8>);

/// The requests that hyper as a server parses from these bytes.
fn requests_read_by_hyper(input: &[u8]) -> Vec<RequestTuple> {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let service = hyper::service::service_fn({
        let requests = requests.clone();
        move |request: hyper::Request<Incoming>| {
            let requests: Arc<Mutex<Vec<RequestTuple>>> = requests.clone();
            async move {
                let (parts, body) = request.into_parts();
                if let Ok(body) = collect(body).await {
                    let mut fields: Vec<_> = parts
                        .headers
                        .iter()
                        .filter(|(name, _)| name.as_str().starts_with("x-"))
                        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                        .collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    requests.lock().unwrap().push((
                        parts.method.to_string(),
                        parts.uri.to_string(),
                        fields,
                        body,
                    ));
                }
                Ok::<_, Infallible>(hyper::Response::new(EmptyBody))
            }
        }
    });
    runtime().block_on(async {
        let (mut client, server) = tokio::io::duplex(input.len() + 64 * 1024);
        client.write_all(input).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(Io(server), service)
            .await;
    });
    Arc::into_inner(requests).unwrap().into_inner().unwrap()
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn hyper_parses_generated_requests(
        method in "GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|PURGE",
        target in "/[a-zA-Z0-9/._~%-]{0,30}(\\?[a-z0-9=&]{0,10})?",
        fields in prop::collection::vec(("x-[a-z]{1,12}", "([!-~]([ -~\t]{0,20}[!-~])?)?"), 0..8),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        is_length_known in any::<bool>(),
        te_trailers in any::<bool>(),
    ) {
        let parsed_method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut headers = Headers::new();
        for (name, value) in &fields {
            headers.try_append(name, value).unwrap();
        }
        let body = pieces.concat();
        let request = OutgoingRequest {
            method: &parsed_method,
            target: &target,
            headers: &headers,
            content_length: is_length_known.then_some(body.len() as u64),
            te_trailers,
            ..get()
        };
        let mut out = Vec::new();
        let mut connection = ClientConnection::new(LIMITS);
        connection.send_request(request, &mut out).unwrap();
        for piece in &pieces {
            connection.send_chunk_start(piece.len(), &mut out);
            out.extend(piece);
            connection.send_chunk_end(&mut out);
        }
        connection.send_end(None, &mut out);
        let mut fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| (name, value.into_bytes()))
            .collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(requests_read_by_hyper(&out), vec![(method, target, fields, body)]);
    }

    #[test]
    fn parses_valid_responses_like_hyper(response in response()) {
        let bytes = response.bytes();
        let ours = by_codec(&bytes);
        prop_assert!(ours.is_some());
        prop_assert_eq!(ours, by_hyper(&bytes));
    }

    /// hyper accepts every response that the codec accepts as complete, with the same result.
    #[test]
    fn accepts_no_response_that_hyper_rejects(input in damaged()) {
        if let Some(ours) = by_codec(&input) {
            let theirs = by_hyper(&input);
            prop_assert_eq!(Some(ours), theirs, "{}", input.escape_ascii());
        }
    }
}
