//! HTTP authentication, passwords and CSRF protection.

mod csrf;
mod jwt;
mod signed_urls;

use apus::auth::{BasicAuth, BasicUser, BearerAuth, Credentials, password};
use apus::testing::TestClient;
use apus::{App, Extension, ServiceFactory};

use apus_testkit::{Reply, ask, block_on};

fn members(auth: BasicAuth) -> TestClient {
    TestClient::new(
        App::new()
            .layer(auth)
            .get("/", async |BasicUser(name): BasicUser| {
                format!("hello {name}")
            }),
    )
}

#[test]
fn only_the_right_name_and_password_are_accepted() {
    let client = members(BasicAuth::user("a \"realm\"", "änne", "pass:word"));
    client.get("/").send().assert_status(401).assert_header(
        "www-authenticate",
        "Basic realm=\"a realm\", charset=\"UTF-8\"",
    );
    client
        .get("/")
        .basic("änne", "pass:word")
        .send()
        .assert_text("hello änne");
    for (name, password) in [
        ("änne", "pass"),
        ("", "pass:word"),
        ("Änne", "pass:word"),
        ("", ""),
    ] {
        client
            .get("/")
            .basic(name, password)
            .send()
            .assert_status(401);
    }
    for field in [
        "Basic",
        "Basic ",
        "Basic !!",
        "Basic YQ==",
        "Bearer YTpi",
        "YTpi",
    ] {
        client
            .get("/")
            .header("authorization", field)
            .send()
            .assert_status(401);
    }
    // "änne:pass:word"; names of schemes have no case (RFC 9110 section 11.1).
    let field = "bASIC  w6RubmU6cGFzczp3b3Jk";
    client
        .get("/")
        .header("authorization", field)
        .send()
        .assert_ok();
}

#[test]
fn a_function_can_check_credentials() {
    let client = members(BasicAuth::new("x", async |given: Credentials| {
        tokio::task::yield_now().await;
        given.name == given.password
    }));
    client
        .get("/")
        .basic("a", "a")
        .send()
        .assert_text("hello a");
    client.get("/").basic("a", "b").send().assert_status(401);
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
        client
            .get("/")
            .basic("ann", "correct horse")
            .send()
            .assert_text("hello ann");
        client
            .get("/")
            .basic("ann", "correct house")
            .send()
            .assert_status(401);
    }
    client
        .get("/")
        .basic("bob", "nonsense")
        .send()
        .assert_status(401);
    client
        .get("/")
        .basic("nobody", "correct horse")
        .send()
        .assert_status(401);
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
        let service = App::new().layer(auth).get("/", async || "in").service();
        // "ann:guess"
        let guess = || ask("GET", "/").with("authorization", "Basic YW5uOmd1ZXNz");
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
    let app = App::new()
        .layer(auth)
        .get("/", async |Extension(client): Extension<Client>| client.0);
    let client = TestClient::new(app);
    client
        .get("/")
        .bearer("token of the shop")
        .send()
        .assert_text("shop");
    client
        .get("/")
        .bearer("another")
        .send()
        .assert_status(401)
        .assert_header("www-authenticate", "Bearer error=\"invalid_token\"");
    client
        .get("/")
        .send()
        .assert_status(401)
        .assert_header("www-authenticate", "Bearer");
}
