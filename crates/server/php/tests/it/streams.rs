//! Long bodies, and event streams.

use std::task::{Context, Poll};

use apus_http::{Body, BodyError, BodyStream, Frame, Method};
use apus_php::WorkerPool;
use bytes::Bytes;

use crate::harness::{Application, get, read, request, run, until, whole};

/// A body of numbered pieces, with or without a known length.
struct NumberedPieces {
    next: u32,
    count: u32,
    has_length: bool,
}

const PIECE: usize = 40_000;

impl NumberedPieces {
    fn piece(number: u32) -> Bytes {
        let byte = u8::try_from(number % 251).unwrap();
        vec![byte; PIECE].into()
    }
}

impl BodyStream for NumberedPieces {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.next == self.count {
            return Poll::Ready(None);
        }
        self.next += 1;
        Poll::Ready(Some(Ok(Frame::Data(Self::piece(self.next - 1)))))
    }

    fn remaining(&self) -> Option<u64> {
        let left = u64::from(self.count - self.next);
        self.has_length.then_some(left * PIECE as u64)
    }
}

#[test]
fn sends_and_receives_fifty_megabytes() {
    let application = Application::new(
        r#"$in = fopen('php://input', 'r');
        if ($_SERVER['REQUEST_METHOD'] === 'POST') {
            $hash = hash_init('crc32b'); $length = 0;
            while (($piece = fread($in, 65536)) !== false && $piece !== '') {
                hash_update($hash, $piece); $length += strlen($piece);
            }
            echo $length, ' ', hash_final($hash);
        } else {
            for ($number = 0; $number < 1250; $number++) {
                echo str_repeat(chr($number % 251), 40000);
                flush();
            }
        }"#,
    );
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let count = 1250;
        for has_length in [true, false] {
            let body = Body::stream(NumberedPieces {
                next: 0,
                count,
                has_length,
            });
            let request = request(Method::POST, "/", body);
            let response = read(pool.send(request).await.unwrap()).await;
            assert_eq!(
                response.text, "50000000 b947b37b",
                "known length: {has_length}"
            );
        }
        let request = request(Method::GET, "/", Body::Empty);
        let mut response = pool.send(request).await.unwrap();
        let bytes = whole(&mut response.body).await.unwrap();
        assert_eq!(bytes.len(), 50_000_000);
        for (number, piece) in (0..).zip(bytes.chunks(PIECE)) {
            assert!(piece == NumberedPieces::piece(number), "piece {number}");
        }
        pool.stop().await;
    });
}

#[test]
fn an_aborted_download_frees_its_worker() {
    let application = Application::new(
        "for ($i = 0; $i < 500 && isset($_GET['long']); $i++) { echo str_repeat('x', 40000); flush(); }",
    );
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let request = request(Method::GET, "/?long=1", Body::Empty);
        let mut response = pool.send(request).await.unwrap();
        assert!(matches!(
            response.body.frame().await,
            Some(Ok(Frame::Data(_)))
        ));
        drop(response);
        until(&pool, |status| !status.workers[0].busy).await;
        assert_eq!(get(&pool, "/").await.unwrap().text, "");
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
    });
}

#[test]
fn an_application_need_not_read_the_body() {
    let application = Application::new("echo 'enough';");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        for _ in 0..3 {
            let body = Body::stream(NumberedPieces {
                next: 0,
                count: 50,
                has_length: true,
            });
            let request = request(Method::PUT, "/", body);
            assert_eq!(read(pool.send(request).await.unwrap()).await.text, "enough");
        }
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
    });
}

#[test]
fn events_reach_their_subscribers() {
    let application = Application::new(
        r#"if (isset($_GET['listen'])) {
            header('X-Apus-Events: news');
            echo ": welcome\n\n";
        } else {
            Apus\Channel::publish('news', 'line one');
            echo 'sent';
        }"#,
    );
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let request = request(Method::GET, "/?listen=1", Body::Empty);
        let mut response = pool.send(request).await.unwrap();
        assert_eq!(
            response.headers.get_str("content-type"),
            Some("text/event-stream")
        );
        assert!(!response.headers.contains("x-apus-events"));
        let mut next = async || match response.body.frame().await {
            Some(Ok(Frame::Data(bytes))) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await, ": welcome\n\n");
        // The worker is free while its client listens.
        assert_eq!(get(&pool, "/").await.unwrap().text, "sent");
        assert_eq!(next().await, "data: line one\n\n");
        assert_eq!(pool.status().listeners, 1);
        pool.stop().await;
        assert!(response.body.frame().await.is_none());
    });
}
