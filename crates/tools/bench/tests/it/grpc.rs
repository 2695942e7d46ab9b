//! Unary calls of gRPC, against the crate `h2`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use apus_bench::{HttpVersion, LoadFailure, to_text};
use tokio::net::TcpListener;

use crate::harness::{failures, plan, run};

/// A server that ends each call with a status, by the number of the call from 0 on; `None` is none.
fn start(status: impl Fn(u64) -> Option<u32> + Send + Sync + 'static) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let status = Arc::new(status);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let number = Arc::new(AtomicU64::new(0));
            while let Ok((socket, _)) = listener.accept().await {
                let (status, number) = (Arc::clone(&status), Arc::clone(&number));
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        let headers = request.headers();
                        assert_eq!(headers["te"], "trailers");
                        assert_eq!(headers["content-type"], "application/grpc");
                        let head = http::Response::builder().status(200).body(()).unwrap();
                        let mut stream = respond.send_response(head, false).unwrap();
                        stream
                            .send_data(vec![0, 0, 0, 0, 1, 7].into(), false)
                            .unwrap();
                        let mut trailers = http::HeaderMap::new();
                        if let Some(status) = status(number.fetch_add(1, Ordering::SeqCst)) {
                            trailers.insert("grpc-status", status.into());
                        }
                        stream.send_trailers(trailers).unwrap();
                    }
                });
            }
        });
    });
    port
}

#[test]
fn a_call_is_good_if_its_status_is_ok() {
    let port = start(|number| match number {
        5 => Some(14),
        7 => None,
        _ => Some(0),
    });
    let mut plan = plan(&format!("http://127.0.0.1:{port}/shop.Orders/Get"), 1, 20);
    plan.version = HttpVersion::Http2;
    plan.expected.grpc = true;
    let request = &mut plan.requests[0];
    request.method = apus_http::Method::POST;
    request
        .headers
        .try_append("content-type", "application/grpc")
        .unwrap();
    request.body = vec![0, 0, 0, 0, 0].into();
    let report = run(plan.clone());
    assert_eq!(
        (report.responses, report.protocol),
        (18, "gRPC"),
        "{report:?}"
    );
    assert_eq!(failures(&report), [(LoadFailure::GrpcStatus, 2)]);
    let text = to_text(&report);
    assert!(
        text.contains("the status of gRPC is not OK (first: status 14)"),
        "{text}"
    );

    plan.version = HttpVersion::Http1;
    assert!(apus_bench::run(plan, &mut |_| {}).is_err());
}
