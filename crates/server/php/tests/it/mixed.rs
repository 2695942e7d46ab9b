//! Ten thousand requests of all kinds from two threads, each of which gets its own response.

use std::thread;

use apus_http::{Body, Method};
use apus_php::plan::{Recycle, WorkerPoolPlan};
use apus_php::{WorkerPool, WorkerResponse};

use crate::harness::{Application, read, request, run};

/// Echoes the request, and reports state that an earlier request left.
const ECHO: &str = r#"
    if (isset($GLOBALS['left']) || headers_list() !== [] && preg_grep('/^x-left/i', headers_list())) { echo 'LEFT '; }
    $GLOBALS['left'] = true;
    header('X-Number: ' . $_GET['n']);
    if ($_GET['kind'] === 'status') { http_response_code(418); header('X-Left: 1'); }
    if ($_GET['kind'] === 'exit') { echo $_GET['n']; exit; }
    if ($_GET['kind'] === 'cookie') { setcookie('c', $_GET['n']); }
    echo $_GET['n'];
    if ($_GET['kind'] === 'post') { echo ' ', strlen(file_get_contents('php://input')); }
    if ($_GET['kind'] === 'long') { for ($i = 0; $i < 5; $i++) { echo str_repeat('.', 20000); flush(); } }
"#;

#[test]
fn ten_thousand_requests_of_all_kinds_get_their_own_responses() {
    let application = Application::new(ECHO);
    let plan = WorkerPoolPlan {
        min: 3,
        max: 4,
        recycle: Recycle {
            requests: 50,
            ..Recycle::default()
        },
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    thread::scope(|scope| {
        for thread in 0..2 {
            let pool = pool.clone();
            scope.spawn(move || {
                run(async {
                    let clients: Vec<_> = (0..5)
                        .map(|client| {
                            let pool = pool.clone();
                            tokio::task::spawn_local(async move {
                                for number in 0..1000 {
                                    send(&pool, (thread * 5 + client) * 1000 + number).await;
                                }
                            })
                        })
                        .collect();
                    for client in clients {
                        client.await.unwrap();
                    }
                });
            });
        }
    });
    let totals = pool.status().totals;
    assert_eq!(totals.requests, 10_000);
    assert_eq!((totals.crashes, totals.timeouts), (0, 0), "{totals:?}");
    assert!(totals.recycled > 10, "{totals:?}");
    run(async { pool.stop().await });
}

async fn send(pool: &WorkerPool, number: usize) {
    // An exit ends the process, so few requests call it.
    let kinds = [
        "plain", "status", "cookie", "post", "plain", "long", "cookie",
    ];
    let kind = match number % 97 {
        0 => "exit",
        rest => kinds[rest % kinds.len()],
    };
    let target = format!("/?n={number}&kind={kind}");
    let (method, body) = match kind {
        "post" => (Method::POST, Body::from(vec![b'x'; number])),
        _ => (Method::GET, Body::Empty),
    };
    let response: WorkerResponse = pool.send(request(method, &target, body)).await.unwrap();
    let response = read(response).await;
    let headers = &response.response.headers;
    let text = number.to_string();
    assert_eq!(headers.get_str("x-number"), Some(&*text), "{kind}");
    let expected = match kind {
        "post" => format!("{number} {number}"),
        "long" => format!("{number}{}", ".".repeat(100_000)),
        _ => text.clone(),
    };
    assert!(
        response.text == expected,
        "{kind} {number}: {:.80}",
        response.text
    );
    let status = response.response.status.as_u16();
    assert_eq!(status, if kind == "status" { 418 } else { 200 });
    assert_eq!(headers.contains("x-left"), kind == "status");
    let cookie = headers.get_str("set-cookie").map(str::to_owned);
    assert_eq!(cookie, (kind == "cookie").then(|| format!("c={number}")));
}
