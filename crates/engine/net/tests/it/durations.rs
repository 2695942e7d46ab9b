//! What observers of a response learn of its times, over every protocol: they begin with the head of the request, whatever else the
//! connection has read since, and the head of the response may leave long before its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_http::{
    Body, BodyError, BodyStream, Completion, Frame, Response, ResponseFuture, ServiceFactory,
    StatusCode,
};
use apus_testkit::{eventually, wait_until};

use crate::h2::client::Peer;
use crate::h3::H3Server;
use crate::h3::client::H3Request;
use crate::harness::{Server, connect, ok, service};

/// How long a test lets the server work.
const WORK: Duration = Duration::from_millis(30);

/// What the handler and the test tell one another.
#[derive(Clone, Default)]
struct Stage {
    is_begun: Arc<AtomicBool>,
    may_end: Arc<AtomicBool>,
}

impl Stage {
    fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    fn wait_for_begin(&self) {
        wait_until("the handler works", || self.is_begun());
    }

    /// Lets it work for a while, and then end.
    fn end(&self) {
        self.end_after(|| {});
    }

    /// Lets it work for a while, in which the connection reads something else, and then end.
    fn end_after(&self, meanwhile: impl FnOnce()) {
        let begin = Instant::now();
        wait_until("some work is done", || begin.elapsed() >= WORK);
        meanwhile();
        self.may_end.store(true, Ordering::SeqCst);
    }

    async fn pass(&self) {
        self.is_begun.store(true, Ordering::SeqCst);
        eventually("the test goes on", || self.may_end.load(Ordering::SeqCst)).await;
    }
}

/// `/slow` responds late, `/long` at once with a body that ends late, and others respond at once.
fn staged() -> (
    Stage,
    Receiver<(String, Completion)>,
    Arc<dyn ServiceFactory>,
) {
    let stage = Stage::default();
    let (sender, completions) = channel();
    let own = stage.clone();
    let factory = service(move |request| {
        let (stage, sender) = (own.clone(), sender.clone());
        let path = request.path().to_owned();
        let observed = move |mut response: Response, path: String| {
            response.on_complete(move |completion| {
                sender.send((path, completion.clone())).unwrap();
            });
            response
        };
        match path.as_str() {
            "/slow" => ResponseFuture::later(async move {
                stage.pass().await;
                observed(ok("slow"), path)
            }),
            "/long" => {
                let body = Body::stream(LateBody {
                    stage,
                    waiting: None,
                    is_sent: false,
                });
                observed(Response::new(StatusCode::OK).with_body(body), path).into()
            }
            _ => observed(ok("quick"), path).into(),
        }
    });
    (stage, completions, factory)
}

/// A body whose one piece comes late.
struct LateBody {
    stage: Stage,
    waiting: Option<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
    is_sent: bool,
}

impl BodyStream for LateBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.is_sent {
            return Poll::Ready(None);
        }
        let stage = self.stage.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { stage.pass().await }));
        if waiting.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.is_sent = true;
        Poll::Ready(Some(Ok(Frame::Data("late".into()))))
    }
}

/// The completion of the response to a path. `go_on` is what the client does meanwhile.
fn completion(
    completions: &Receiver<(String, Completion)>,
    path: &str,
    mut go_on: impl FnMut(),
) -> Completion {
    let mut found = None;
    wait_until("the completion", || {
        go_on();
        let mut all = completions.try_iter();
        found = all.find(|(of, _)| of == path);
        found.is_some()
    });
    found.unwrap().1
}

/// Checks the times of a response that came late, or whose body did.
fn check(path: &str, completion: &Completion) {
    match (path, completion.first_byte) {
        // Head and body left together.
        ("/slow", None) => assert!(completion.duration >= WORK, "{completion:?}"),
        ("/long", Some(first)) => {
            assert!(completion.duration >= first + WORK, "{completion:?}");
        }
        _ => panic!("{path}: {completion:?}"),
    }
}

#[test]
fn over_http_1() {
    for path in ["/slow", "/long"] {
        let (stage, completions, factory) = staged();
        let server = Server::start(factory);
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        stage.wait_for_begin();
        stage.end();
        client.read_response();
        check(path, &completion(&completions, path, || {}));
    }
}

#[test]
fn over_http_2() {
    for path in ["/slow", "/long"] {
        let (stage, completions, factory) = staged();
        let server = Server::start(factory);
        let mut client = Peer::open(connect(server.address()).unwrap());
        let stream = client.get(path);
        stage.wait_for_begin();
        stage.end_after(|| assert_eq!(client.fetch("/quick").text(), "quick"));
        client.response(stream);
        check(path, &completion(&completions, path, || {}));
    }
}

#[test]
fn over_http_3() {
    for path in ["/slow", "/long"] {
        let (stage, completions, factory) = staged();
        let server = H3Server::start(factory);
        let mut client = server.open();
        let stream = client.request(&H3Request::get(path));
        client.wait("the handler works", |_| stage.is_begun());
        stage.end_after(|| assert_eq!(client.get("/quick").text(), "quick"));
        client.response(stream);
        // The client has to acknowledge it.
        let go_on = || client.pause(Duration::from_millis(5));
        check(path, &completion(&completions, path, go_on));
    }
}
