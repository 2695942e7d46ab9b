//! Flow control and cancellation: slow and vanished readers hold up no others.

use std::task::Poll;

use apus_client::{FailureCause, MultiplexedClient, RequestPhase};
use apus_http::Frame;
use apus_testkit::h2::{block, code, data, head as head_frames, kind, setting, window_update};
use apus_testkit::{collect, frames};
use bytes::Bytes;
use http::Response;

use super::origin::{Scripted, serve};
use super::{fetch, get, open, post, read_body};
use crate::harness::text;

/// Sends the number of bytes in the path.
async fn sized() -> MultiplexedClient {
    let address = serve(|request, mut respond| async move {
        let mut left: usize = request.uri().path()[1..].parse().unwrap();
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        let block = Bytes::from(vec![b'x'; 64 * 1024]);
        while left > 0 {
            stream.reserve_capacity(left.min(block.len()));
            let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return;
            };
            let part = room.min(left);
            left -= part;
            stream.send_data(block.slice(..part), false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
    })
    .await;
    open(address).await
}

#[test]
fn slow_readers_hold_up_no_other() {
    super::run(async {
        let connection = sized().await;
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(connection.send(get("/1000000")).await.unwrap());
        }
        let mut response = connection.send(get("/3000000")).await.unwrap();
        assert_eq!(read_body(&mut response).await.len(), 3_000_000);
        for mut response in waiting {
            assert_eq!(read_body(&mut response).await.len(), 1_000_000);
        }
        super::eventually("the end of all streams", || connection.open_streams() == 0).await;
    });
}

#[test]
fn an_unwanted_body_is_cancelled() {
    super::run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "200")]), false));
            raw.send(data(stream, "some", false));
            let reset = raw.until(kind::RST_STREAM);
            assert_eq!((reset.stream, reset.number(0)), (stream, code::CANCEL));
            // Data in flight does no harm.
            raw.send(data(stream, "more", false));
            let stream = raw.request();
            let reset = raw.until(kind::RST_STREAM);
            assert_eq!((reset.stream, reset.number(0)), (stream, code::CANCEL));
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let mut response = connection.send(get("/")).await.unwrap();
        let Some(Ok(Frame::Data(first))) = response.body.frame().await else {
            panic!("no body");
        };
        assert_eq!(first, "some");
        drop(response);
        super::eventually("the end of it", || connection.open_streams() == 0).await;
        {
            let waiting = connection.send(get("/"));
            tokio::pin!(waiting);
            tokio::select! {
                _ = &mut waiting => panic!("no response was sent"),
                () = super::eventually("a stream", || connection.requests() == 2) => {}
            }
        }
        super::eventually("the end of it", || connection.open_streams() == 0).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 204);
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_body_waits_for_the_windows_of_the_origin() {
    super::run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[(setting::INITIAL_WINDOW_SIZE, 10)]);
            raw.until(kind::SETTINGS);
            let stream = raw.request();
            let mut got = Vec::new();
            while got.len() < 35 {
                let part = raw.until(kind::DATA);
                assert!(part.payload.len() <= 10 || got.is_empty());
                got.extend(part.payload);
                raw.send(window_update(stream, 10));
            }
            raw.send(head_frames(stream, &block(&[(":status", "200")]), false));
            raw.send(data(stream, got, true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let sent = "thirty-five bytes, in small pieces.";
        assert_eq!(
            fetch(&connection, post("/", sent)).await,
            (200, sent.into())
        );
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_takes_fewer_streams_has_no_room_for_more() {
    super::run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[(setting::MAX_CONCURRENT_STREAMS, 1)]);
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "200")]), false));
            let goes_on = raw.until(kind::DATA);
            assert_eq!(goes_on.payload, b"go");
            raw.send(data(stream, "end", true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let (send, mut messages) = tokio::sync::mpsc::unbounded_channel::<Frame>();
        let body = frames(None, move |cx| match messages.poll_recv(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(Ok)),
            Poll::Pending => Poll::Pending,
        });
        let mut response = connection.send(post("/", body)).await.unwrap();
        assert_eq!(
            (connection.has_room(), connection.open_streams()),
            (false, 1)
        );
        let failure = super::failure(&connection, post("/", "again")).await;
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        assert_eq!(
            (failure.phase, failure.request_sent),
            (RequestPhase::Send, false)
        );
        let mut body = failure.body.expect("the body");
        assert_eq!(collect(&mut body).await.unwrap(), b"again");
        send.send(Frame::Data(Bytes::from_static(b"go"))).unwrap();
        assert_eq!(text(&read_body(&mut response).await), "end");
        super::eventually("room", || connection.has_room()).await;
        drop(connection);
        origin.finish().await;
    });
}
