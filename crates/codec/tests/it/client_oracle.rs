//! hyper as the oracle of the client's side: as a server it reads what we send, as a client it reads
//! what we read.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use apus_codec::h1::{ClientConnection, OutgoingRequest};
use apus_http::{Headers, Method};
use hyper::body::Incoming;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use crate::client::{Exchange, damaged, get, response};
use crate::oracle::{Io, Nothing, collect, runtime};
use crate::transcript::LIMITS;
use apus_testkit::cases;

/// A response as both can say what they read.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
}

impl Seen {
    fn new<'a>(
        status: u16,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        content: Vec<u8>,
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
            content,
        }
    }
}

/// The response that hyper reads from a connection of these bytes, if it takes it for whole.
fn by_hyper(input: &[u8]) -> Option<Seen> {
    runtime().block_on(async {
        let (client, mut server) = tokio::io::duplex(input.len() + 64 * 1024);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Io(client))
            .await
            .unwrap();
        let request = hyper::Request::builder()
            .uri("/")
            .header("host", "a")
            .body(Nothing)
            .unwrap();
        let exchange = async {
            let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
            let content = collect(body).await.ok()?;
            let fields = parts.headers.iter();
            Some(Seen::new(
                parts.status.as_u16(),
                fields.map(|(name, value)| (name.as_str(), value.as_bytes())),
                content,
            ))
        };
        let answers = async {
            // It answers what it was asked, and not before.
            let mut byte = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut server, &mut byte).await;
            server.write_all(input).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let (seen, _, ()) = tokio::join!(exchange, connection, answers);
        seen
    })
}

fn by_us(input: &[u8]) -> Option<Seen> {
    let exchange = Exchange::of(get(), [input], true);
    let head = exchange.head.filter(|_| exchange.complete)?;
    Some(Seen::new(
        head.status.as_u16(),
        head.headers.iter(),
        exchange.content,
    ))
}

type Asked = (String, String, Vec<(String, Vec<u8>)>, Vec<u8>);

/// What hyper as a server is asked by these bytes.
fn asked_of_hyper(input: &[u8]) -> Vec<Asked> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let service = hyper::service::service_fn({
        let asked = asked.clone();
        move |request: hyper::Request<Incoming>| {
            let asked: Arc<Mutex<Vec<Asked>>> = asked.clone();
            async move {
                let (parts, body) = request.into_parts();
                if let Ok(content) = collect(body).await {
                    let mut fields: Vec<_> = parts
                        .headers
                        .iter()
                        .filter(|(name, _)| name.as_str().starts_with("x-"))
                        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                        .collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    asked.lock().unwrap().push((
                        parts.method.to_string(),
                        parts.uri.to_string(),
                        fields,
                        content,
                    ));
                }
                Ok::<_, Infallible>(hyper::Response::new(Nothing))
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
    Arc::into_inner(asked).unwrap().into_inner().unwrap()
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn hyper_reads_requests_as_they_were_meant(
        method in "GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|PURGE",
        target in "/[a-zA-Z0-9/._~%-]{0,30}(\\?[a-z0-9=&]{0,10})?",
        fields in prop::collection::vec(("x-[a-z]{1,12}", "([!-~]([ -~\t]{0,20}[!-~])?)?"), 0..8),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        is_length_known in any::<bool>(),
        te_trailers in any::<bool>(),
    ) {
        let meant = Method::from_bytes(method.as_bytes()).unwrap();
        let mut headers = Headers::new();
        for (name, value) in &fields {
            headers.try_append(name, value).unwrap();
        }
        let content = pieces.concat();
        let request = OutgoingRequest {
            method: &meant,
            target: &target,
            headers: &headers,
            content_length: is_length_known.then_some(content.len() as u64),
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
        prop_assert_eq!(asked_of_hyper(&out), vec![(method, target, fields, content)]);
    }

    #[test]
    fn reads_valid_responses_as_hyper_does(response in response()) {
        let bytes = response.bytes();
        let ours = by_us(&bytes);
        prop_assert!(ours.is_some());
        prop_assert_eq!(ours, by_hyper(&bytes));
    }

    /// What we take for a whole response hyper takes for one, too, and for the same.
    #[test]
    fn reads_no_response_that_hyper_refuses(input in damaged()) {
        if let Some(ours) = by_us(&input) {
            let theirs = by_hyper(&input);
            prop_assert_eq!(Some(ours), theirs, "{}", input.escape_ascii());
        }
    }
}
