//! HTTP authentication, passwords and signed URLs.

mod forward;
mod jwt;
mod key_sets;
mod signed_urls;

use apus_handler::Extension;
use apus_http::ServiceFactory;
use apus_layers::auth::{BasicAuth, BasicUser, BearerAuth, Credentials, password};
use apus_testkit::{LocalClient, Reply, RequestBuilder, block_on, get};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::Routes;

/// A request with a name and a password (RFC 7617).
fn basic(name: &str, password: &str) -> RequestBuilder {
    let credentials = STANDARD.encode(format!("{name}:{password}"));
    get("/").with("authorization", &format!("Basic {credentials}"))
}

/// A request with a token (RFC 6750).
fn bearer(path: &str, token: &str) -> RequestBuilder {
    get(path).with("authorization", &format!("Bearer {token}"))
}

fn members(auth: BasicAuth) -> LocalClient {
    LocalClient::of(
        &Routes::new()
            .layer(auth)
            .get("/", async |BasicUser(name): BasicUser| {
                format!("hello {name}")
            }),
    )
}

#[test]
fn only_the_right_name_and_password_are_accepted() {
    let client = members(BasicAuth::user("a \"realm\"", "änne", "pass:word"));
    let reply = client.send(get("/"));
    assert_eq!(reply.status, 401);
    assert_eq!(
        reply.field("www-authenticate"),
        Some("Basic realm=\"a realm\", charset=\"UTF-8\"")
    );
    let reply = client.send(basic("änne", "pass:word"));
    assert_eq!(reply.text(), "hello änne");
    for (name, password) in [
        ("änne", "pass"),
        ("", "pass:word"),
        ("Änne", "pass:word"),
        ("", ""),
    ] {
        assert_eq!(client.send(basic(name, password)).status, 401, "{name}");
    }
    for field in [
        "Basic",
        "Basic ",
        "Basic !!",
        "Basic YQ==",
        "Bearer YTpi",
        "YTpi",
    ] {
        let request = get("/").with("authorization", field);
        assert_eq!(client.send(request).status, 401, "{field}");
    }
    // "änne:pass:word"; names of schemes have no case (RFC 9110 section 11.1).
    let field = "bASIC  w6RubmU6cGFzczp3b3Jk";
    let request = get("/").with("authorization", field);
    assert_eq!(client.send(request).status, 200);
}

#[test]
fn a_function_can_check_credentials() {
    let client = members(BasicAuth::new("x", async |given: Credentials| {
        tokio::task::yield_now().await;
        given.name == given.password
    }));
    assert_eq!(client.send(basic("a", "a")).text(), "hello a");
    assert_eq!(client.send(basic("a", "b")).status, 401);
}

#[test]
fn stored_passwords_are_compared() {
    let hash = block_on(password::hash(None, "correct horse")).unwrap();
    assert!(
        hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
        "{hash}"
    );
    let client = members(BasicAuth::users(
        "x",
        [("ann", hash.as_str()), ("bob", "nonsense")],
    ));
    // The second request uses the remembered password.
    for _ in 0..2 {
        assert_eq!(
            client.send(basic("ann", "correct horse")).text(),
            "hello ann"
        );
        assert_eq!(client.send(basic("ann", "correct house")).status, 401);
    }
    assert_eq!(client.send(basic("bob", "nonsense")).status, 401);
    assert_eq!(client.send(basic("nobody", "correct horse")).status, 401);
}

#[test]
fn hashes_of_the_same_password_differ() {
    block_on(async {
        let one = password::hash(None, "a").await.unwrap();
        let other = password::hash(None, "a").await.unwrap();
        assert_ne!(one, other);
        for stored in [one, other] {
            assert!(
                password::verify(None, "a", Some(stored.clone()))
                    .await
                    .unwrap()
            );
            assert!(!password::verify(None, "b", Some(stored)).await.unwrap());
        }
        assert!(!password::verify(None, "a", None).await.unwrap());
        assert!(
            password::verify(None, "a", Some("a".to_owned()))
                .await
                .is_err()
        );
    });
}

/// At most four passwords of one client are compared or wait at a time, so the queue is bounded.
#[test]
fn passwords_of_one_client_beyond_four_at_a_time_get_a_429() {
    let hash = block_on(password::hash(None, "correct horse")).unwrap();
    let stored = hash.clone();
    let own_check = BasicAuth::new("x", move |given: Credentials| {
        password::verify(given.client, given.password, Some(stored.clone()))
    });
    for auth in [BasicAuth::users("x", [("ann", hash)]), own_check] {
        let auth = auth.failures_per_minute(0);
        let service = Routes::new().layer(auth).get("/", async || "in").service();
        // From an address that no other test has: the limit is of the process. Requests with the same password would share
        // one comparison.
        let address = ([203, 0, 113, 130], 50_000);
        let number = std::cell::Cell::new(0);
        let guess = || {
            number.set(number.get() + 1);
            basic("ann", &format!("guess {}", number.get())).peer(address)
        };
        let replies = block_on(async {
            let tasks: Vec<_> = (0..12)
                .map(|_| {
                    let response = service.call(guess().request());
                    tokio::task::spawn_local(async { Reply::read(response.wait().await).await })
                })
                .collect();
            let mut replies = Vec::new();
            for task in tasks {
                replies.push(task.await.unwrap());
            }
            replies
        });
        let compared = replies.iter().filter(|reply| reply.status == 401).count();
        let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
        assert_eq!(compared + refused.len(), 12, "{replies:?}");
        assert!((4..12).contains(&compared), "{compared}");
        assert!(
            refused
                .iter()
                .all(|reply| reply.field("retry-after") == Some("1"))
        );
        // Later passwords are compared again.
        assert_eq!(guess().of(&service).status, 401);
    }
}

/// Sends these requests at once.
fn at_once(
    service: &std::rc::Rc<dyn apus_http::Service>,
    requests: Vec<RequestBuilder>,
) -> Vec<Reply> {
    block_on(async {
        let tasks: Vec<_> = (requests.into_iter())
            .map(|request| {
                let response = service.call(request.request());
                tokio::task::spawn_local(async { Reply::read(response.wait().await).await })
            })
            .collect();
        let mut replies = Vec::new();
        for task in tasks {
            replies.push(task.await.unwrap());
        }
        replies
    })
}

/// As a browser sends them, after a reload of the server has forgotten the password: they got 429 but for the first four.
#[test]
fn many_requests_at_once_with_the_right_password_are_all_served() {
    let hash = block_on(password::hash(None, "correct horse")).unwrap();
    let auth = BasicAuth::users("x", [("ann", hash)]);
    let service = Routes::new().layer(auth).get("/", async || "in").service();
    let address = ([203, 0, 113, 131], 50_000);
    let requests = (0..50).map(|_| basic("ann", "correct horse").peer(address));
    let replies = at_once(&service, requests.collect());
    assert!(
        replies.iter().all(|reply| reply.status == 200),
        "{replies:?}"
    );
}

#[test]
fn wrong_passwords_of_a_client_for_a_name_get_429_after_ten_in_a_minute() {
    // `openssl passwd -apr1`, which costs the test less.
    let hash = "$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/";
    let stored = BasicAuth::users("x", [("ann", hash), ("bob", hash)]);
    let plain = BasicAuth::user("x", "ann", "correct horse");
    for (auth, last) in [(stored, 140), (plain, 141)] {
        let service = Routes::new().layer(auth).get("/", async || "in").service();
        let send = |name: &str, password: &str, last: u8| {
            let request = basic(name, password).peer(([203, 0, 113, last], 50_000));
            request.of(&service)
        };
        assert_eq!(send("ann", "correct horse", last).status, 200);
        for number in 0..10 {
            let guess = format!("guess {number}");
            assert_eq!(send("ann", &guess, last).status, 401, "{number}");
        }
        let refused = send("ann", "guess", last);
        assert_eq!(refused.status, 429);
        let seconds: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=6).contains(&seconds), "{seconds}");
        assert_eq!(send("bob", "guess", last).status, 401, "another name");
        assert_eq!(
            send("ann", "guess", last + 10).status,
            401,
            "another client"
        );
        // A password that was right before is not compared, so that others cannot lock its user out.
        if last == 140 {
            assert_eq!(send("ann", "correct horse", last).status, 200);
        }
    }
}

#[test]
fn a_bearer_token_identifies_its_client() {
    #[derive(Clone)]
    struct Client(&'static str);
    let known = BearerAuth::digest("token of the shop");
    let auth = BearerAuth::new(move |token: String| {
        let is_it = BearerAuth::digest(&token) == known;
        async move { is_it.then_some(Client("shop")) }
    });
    let app = Routes::new()
        .layer(auth)
        .get("/", async |Extension(client): Extension<Client>| client.0);
    let client = LocalClient::of(&app);
    let reply = client.send(bearer("/", "token of the shop"));
    assert_eq!(reply.text(), "shop");
    let reply = client.send(bearer("/", "another"));
    assert_eq!(reply.status, 401);
    let challenge = reply.field("www-authenticate");
    assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
    let reply = client.send(get("/"));
    assert_eq!(reply.status, 401);
    assert_eq!(reply.field("www-authenticate"), Some("Bearer"));
}
