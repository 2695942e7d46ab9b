//! Exchanges messages with the `h2` crate as server and as client: concurrent streams, bodies of all sizes, trailers, small windows.

use std::collections::HashMap;

use apus_codec::h2::{ExpectedBody, Http2Event, OutgoingRequest, StreamKey};
use apus_http::{Headers, StatusCode};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::endpoint::*;

/// Body lengths around the sizes of frames and windows.
const LENGTHS: [usize; 9] = [0, 1, 100, 16_383, 16_384, 16_385, 65_535, 65_536, 1_000_000];

/// The capacity between the two ends, which makes both wait for each other.
const PIPE: usize = 30_000;

fn body_of(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 31 + seed * 17) % 251) as u8)
        .collect()
}

/// Drives an end that sends its data as the windows allow.
struct Driver {
    end: Endpoint,
    io: DuplexStream,
    /// The unsent data of each stream, and whether trailers follow.
    sending: HashMap<StreamKey, (Vec<u8>, bool)>,
}

impl Driver {
    /// Sends a body, then trailers or the end of the stream.
    fn send(&mut self, stream: StreamKey, body: Vec<u8>, trailers: bool) {
        self.sending.insert(stream, (body, trailers));
        self.end.connection.want_send(stream);
        self.finish_empty(stream);
    }

    fn finish_empty(&mut self, stream: StreamKey) {
        let is_done = self
            .sending
            .get(&stream)
            .is_some_and(|(left, _)| left.is_empty());
        if let Some((_, trailers)) = is_done.then(|| self.sending.remove(&stream)).flatten() {
            let Endpoint {
                connection, out, ..
            } = &mut self.end;
            if trailers {
                connection.send_trailers(stream, &headers("x-sum: 1"), out);
            } else {
                connection.send_data(stream, 0, true, out).unwrap();
            }
        }
    }

    /// Writes and reads once; `None` at the end of the input.
    async fn run_once(&mut self) -> Option<Vec<ReceivedEvent>> {
        while let Some((stream, most)) = self.end.connection.next_send() {
            let Some((left, _)) = self.sending.get_mut(&stream) else {
                continue;
            };
            let len = most.min(left.len());
            let Endpoint {
                connection, out, ..
            } = &mut self.end;
            connection.send_data(stream, len, false, out).unwrap();
            out.extend(left.drain(..len));
            connection.want_send(stream);
            self.finish_empty(stream);
        }
        let output = self.end.take_output();
        let (mut read, mut write) = tokio::io::split(&mut self.io);
        let mut buffer = vec![0; 10_000];
        // The buffers in both directions may be full.
        let mut writing = std::pin::pin!(async {
            let _ = write.write_all(&output).await;
        });
        let written = output.is_empty();
        let mut bytes = Vec::new();
        loop {
            tokio::select! {
                () = &mut writing, if !written => {
                    // The other end has input now, or this end has more to send.
                    break;
                }
                len = read.read(&mut buffer) => {
                    let len = len.unwrap_or(0);
                    if len == 0 {
                        return None;
                    }
                    bytes.extend_from_slice(&buffer[..len]);
                    if written {
                        break;
                    }
                }
            }
        }
        let seen = self.end.receive(&bytes).unwrap();
        for seen in &seen {
            if let Http2Event::Data { stream, .. } = seen.event {
                let Endpoint {
                    connection, out, ..
                } = &mut self.end;
                connection.consumed(stream, seen.data.len(), out);
            }
        }
        Some(seen)
    }
}

/// Sends every request's body back, with trailers if there were any.
async fn echo(io: DuplexStream) {
    let mut pump = Driver {
        end: Endpoint::server(config()),
        io,
        sending: HashMap::new(),
    };
    let mut body: HashMap<StreamKey, Vec<u8>> = HashMap::new();
    while let Some(seen) = pump.run_once().await {
        for ReceivedEvent { event, data } in seen {
            let (stream, is_whole, trailers) = match event {
                Http2Event::Request(request) => {
                    body.insert(request.stream, Vec::new());
                    let mut fields = Headers::new();
                    let target = request.head.target.as_str();
                    fields.try_append("x-target", target).unwrap();
                    for (name, value) in request.head.headers.iter() {
                        if name.starts_with("x-") || name == "cookie" {
                            fields.try_append(name, value).unwrap();
                        }
                    }
                    let head = head_of(StatusCode::OK, &fields, None);
                    let Endpoint {
                        connection, out, ..
                    } = &mut pump.end;
                    let body = connection.send_head(request.stream, head, out);
                    assert_eq!(body, ExpectedBody::Data(None));
                    (request.stream, request.end, false)
                }
                Http2Event::Data { stream, end, .. } => {
                    body.entry(stream).or_default().extend(data);
                    (stream, end, false)
                }
                Http2Event::Trailers { stream, trailers } => {
                    assert_eq!(trailers.get_str("x-sum"), Some("1"));
                    (stream, true, true)
                }
                Http2Event::GoAway { .. } | Http2Event::Reset { .. } => continue,
                event => panic!("{event:?}"),
            };
            if is_whole {
                let body = body.remove(&stream).unwrap_or_default();
                pump.send(stream, body, trailers);
            }
        }
    }
}

async fn read_whole(mut incoming: h2::RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data.unwrap();
        incoming
            .flow_control()
            .release_capacity(data.len())
            .unwrap();
        body.extend_from_slice(&data);
    }
    (body, incoming.trailers().await.unwrap())
}

async fn send_whole(mut stream: h2::SendStream<Bytes>, body: Vec<u8>, trailers: bool) {
    stream.send_data(body.into(), !trailers).unwrap();
    if trailers {
        let mut map = HeaderMap::new();
        map.insert("x-sum", HeaderValue::from_static("1"));
        stream.send_trailers(map).unwrap();
    }
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        tokio::time::timeout(std::time::Duration::from_secs(60), future)
            .await
            .expect("no end");
    }));
}

#[test]
fn our_server_and_the_client_of_h2() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let server = tokio::task::spawn_local(echo(ours));
        let (client, connection) = h2::client::handshake(theirs).await.unwrap();
        let connection = tokio::task::spawn_local(connection);
        let mut exchanges = Vec::new();
        let mut client = client.ready().await.unwrap();
        for (at, len) in LENGTHS.iter().cycle().take(60).enumerate() {
            let trailers = at % 3 == 0;
            let request = Request::post(format!("https://example.com/{at}?q"))
                .header("x-number", format!("{at}"))
                .header("cookie", "a=1")
                .header("cookie", format!("b={at}"))
                .body(())
                .unwrap();
            let (response, stream) = client.send_request(request, false).unwrap();
            let sent = body_of(*len, at);
            tokio::task::spawn_local(send_whole(stream, sent.clone(), trailers));
            exchanges.push(tokio::task::spawn_local(async move {
                let (head, body) = response.await.unwrap().into_parts();
                assert_eq!(head.status, 200);
                assert_eq!(head.headers["x-number"], format!("{at}"));
                assert_eq!(head.headers["x-target"], format!("/{at}?q"));
                assert_eq!(head.headers["cookie"], format!("a=1; b={at}"));
                let (body, end) = read_whole(body).await;
                assert!(body == sent, "{at}");
                assert_eq!(end.is_some(), trailers, "{at}");
            }));
            client = client.ready().await.unwrap();
        }
        for exchange in exchanges {
            exchange.await.unwrap();
        }
        drop(client);
        connection.await.unwrap().unwrap();
        server.await.unwrap();
    });
}

#[test]
fn our_client_and_the_server_of_h2() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let server = tokio::task::spawn_local(async {
            let mut connection = h2::server::handshake(theirs).await.unwrap();
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request.unwrap();
                tokio::task::spawn_local(async move {
                    let (head, body) = request.into_parts();
                    assert_eq!(head.uri.authority().unwrap(), "example.com");
                    let number = head.headers["x-number"].clone();
                    let (body, trailers) = read_whole(body).await;
                    let response = Response::builder()
                        .header("x-number", number)
                        .header("x-path", head.uri.path())
                        .body(())
                        .unwrap();
                    let stream = respond.send_response(response, false).unwrap();
                    send_whole(stream, body, trailers.is_some()).await;
                });
            }
        });
        let mut pump = Driver {
            end: Endpoint::client(config()),
            io: ours,
            sending: HashMap::new(),
        };
        pump.run_once().await;
        let mut expected = HashMap::new();
        for (at, len) in LENGTHS.iter().cycle().take(60).enumerate() {
            let head = request(
                "POST",
                &format!("/{at}"),
                &format!("host: example.com\nx-number: {at}\nconnection: close"),
            );
            let Endpoint {
                connection, out, ..
            } = &mut pump.end;
            let stream = connection
                .send_request(OutgoingRequest::of(&head, "https"), false, out)
                .unwrap();
            let sent = body_of(*len, at);
            expected.insert(stream, (at, sent.clone(), at % 3 == 0));
            pump.send(stream, sent, at % 3 == 0);
        }
        let mut received: HashMap<StreamKey, Vec<u8>> = HashMap::new();
        while !expected.is_empty() {
            for ReceivedEvent { event, data } in pump.run_once().await.expect("an end") {
                match event {
                    Http2Event::Response {
                        stream,
                        status,
                        headers,
                        ..
                    } => {
                        let (at, ..) = expected[&stream];
                        assert_eq!(status, StatusCode::OK);
                        assert_eq!(headers.get_str("x-number"), Some(&*at.to_string()));
                        assert_eq!(headers.get_str("x-path"), Some(&*format!("/{at}")));
                        received.insert(stream, Vec::new());
                    }
                    Http2Event::Data { stream, end, .. } => {
                        received.get_mut(&stream).unwrap().extend(data);
                        if end {
                            let (at, sent, trailers) = expected.remove(&stream).unwrap();
                            assert!(received[&stream] == sent && !trailers, "{at}");
                        }
                    }
                    Http2Event::Trailers { stream, trailers } => {
                        assert_eq!(trailers.get_str("x-sum"), Some("1"));
                        let (at, sent, expected) = expected.remove(&stream).unwrap();
                        assert!(received[&stream] == sent && expected, "{at}");
                    }
                    event => panic!("{event:?}"),
                }
            }
        }
        assert_eq!(pump.end.connection.open_streams(), 0);
        drop(pump);
        server.abort();
    });
}
