//! Requests to `php-cgi` and their responses.

use apus_http::{Body, Method, StatusCode};
use apus_php::WorkerPool;

use crate::harness::{Application, get, read, request, run};

#[test]
fn an_application_stays_in_memory_between_requests() {
    let application = Application::new(
        r#"header('X-Uri: ' . $_SERVER['REQUEST_URI']);
        if (isset($_GET['missing'])) { http_response_code(404); }
        echo 'hello ', $_GET['name'] ?? 'nobody', ' of ', getmypid();"#,
    );
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let first = get(&pool, "/a?name=x").await.unwrap();
        assert_eq!(first.response.status, StatusCode::OK);
        assert_eq!(first.response.headers.get_str("x-uri"), Some("/a?name=x"));
        let pid = first.response.pid;
        assert_eq!(first.text, format!("hello x of {pid}"));
        let second = get(&pool, "/b?missing=1").await.unwrap();
        assert_eq!(second.response.status, StatusCode::NOT_FOUND);
        assert_eq!(second.text, format!("hello nobody of {pid}"));
        let status = pool.status();
        assert_eq!(status.workers[0].requests, 2);
        assert!(status.workers[0].memory > 100_000);
        pool.stop().await;
    });
}

#[test]
fn a_head_has_no_body_and_the_body_of_a_post_is_read() {
    let application = Application::new("echo strrev(file_get_contents('php://input'));");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let head = request(Method::HEAD, "/", Body::Empty);
        assert_eq!(read(pool.send(head).await.unwrap()).await.text, "");
        let post = request(Method::POST, "/", "olleh");
        assert_eq!(read(pool.send(post).await.unwrap()).await.text, "hello");
        assert_eq!(get(&pool, "/").await.unwrap().text, "");
        pool.stop().await;
    });
}
