//! Remembered log-ins.

use apus_account::{AccountTokens, MemoryTokens, RememberMe};
use apus_handler::extract::Cookies;
use apus_handler::{ClientInfo, HandlerService, Result, State};
use apus_http::Request;
use apus_testkit::{LocalClient, Reply, ask, get};

/// Logs in and out, and says who is logged in.
async fn respond(
    State(remember): State<RememberMe>,
    mut cookies: Cookies,
    client: ClientInfo,
    request: Request,
) -> Result<(Cookies, String)> {
    let text = match request.path() {
        "/log-in" => {
            let name = "a browser";
            remember.remember(&mut cookies, client, 7, name).await?;
            String::new()
        }
        "/log-out" => {
            remember.forget(&mut cookies, client).await?;
            String::new()
        }
        _ => {
            let found = remember.find(&cookies, client).await?;
            found.map_or("nobody".to_owned(), |found| found.account.to_string())
        }
    };
    Ok((cookies, text))
}

/// The value of the cookie that a response sets, and its attributes.
fn set_cookie(reply: &Reply) -> (&str, &str) {
    let field = reply.field("set-cookie").unwrap();
    let pair = field.strip_prefix("remember=").unwrap();
    pair.split_once(';').unwrap()
}

#[test]
fn a_log_in_is_remembered_until_it_is_forgotten() {
    let remember = RememberMe::new(AccountTokens::new(MemoryTokens::new()));
    let worker = LocalClient::of(&HandlerService::new(respond).state(remember.clone()));
    let with = |cookie: &str| get("/").with("cookie", &format!("remember={cookie}"));
    assert_eq!(worker.send(get("/")).text(), "nobody");
    let reply = worker.send(ask("POST", "/log-in"));
    assert_eq!(reply.status, 200);
    let (cookie, attributes) = set_cookie(&reply);
    for part in ["HttpOnly", "SameSite=Lax", "Max-Age=2592000", "Path=/"] {
        assert!(attributes.contains(part), "{attributes}");
    }
    assert_eq!(worker.send(with(cookie)).text(), "7");
    let log_out = ask("POST", "/log-out").with("cookie", &format!("remember={cookie}"));
    let reply = worker.send(log_out);
    assert_eq!(reply.status, 200);
    let (removed, attributes) = set_cookie(&reply);
    assert!(
        removed.is_empty() && attributes.contains("Max-Age=0"),
        "{attributes}"
    );
    // Who has copied it is not logged in, either.
    assert_eq!(worker.send(with(cookie)).text(), "nobody");
    let reply = worker.send(ask("POST", "/log-in"));
    let (cookie, _) = set_cookie(&reply);
    assert_eq!(worker.send(with(cookie)).text(), "7");
    worker.run(remember.forget_all(7)).unwrap();
    assert_eq!(worker.send(with(cookie)).text(), "nobody");
}
