//! HTTP authentication, passwords and signed URLs.

mod jwt;
mod signed_urls;

use apus_handler::Extension;
use apus_http::ServiceFactory;
use apus_layers::auth::{BasicAuth, BasicUser, BearerAuth, Credentials, password};
use apus_testkit::{LocalClient, Reply, RequestBuilder, ask, block_on, get};
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
        let service = Routes::new().layer(auth).get("/", async || "in").service();
        // "ann:guess", from an address that no other test has: the limit is of the process.
        let address = ([203, 0, 113, 130], 50_000);
        let guess = || {
            let guess = ask("GET", "/").with("authorization", "Basic YW5uOmd1ZXNz");
            guess.peer(address)
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
