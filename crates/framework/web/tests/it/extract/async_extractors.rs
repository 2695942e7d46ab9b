//! Extractors that wait: one value for each request, roles, and layers that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use apus::extract::{AsyncExtractor, Require};
use apus::session::{MemoryStore, Session, Sessions};
use apus::testing::TestServer;
use apus::{
    App, Error, ErrorFormat, HandlerExt, Json, Next, Path, Redirect, Request, Response, State,
    StatusCode, tokio,
};

use crate::harness::{Client, Server};

/// Counts the look-ups.
#[derive(Clone, Default)]
struct Database(Arc<AtomicU32>);

impl Database {
    async fn find(&self, name: String) -> Option<CurrentUser> {
        tokio::task::yield_now().await;
        self.0.fetch_add(1, Ordering::Relaxed);
        (name != "nobody").then_some(CurrentUser { name })
    }
}

#[derive(Clone, Debug)]
struct CurrentUser {
    name: String,
}

impl AsyncExtractor for CurrentUser {
    type Arguments = (Session, State<Database>);
    type Rejection = Error;

    async fn extract((session, State(database)): Self::Arguments) -> Result<Self, Error> {
        let name = session.get("user").await?;
        let unknown = || Error::unauthorized("log in first");
        database
            .find(name.ok_or_else(unknown)?)
            .await
            .ok_or_else(unknown)
    }
}

#[derive(Clone)]
struct Admin(CurrentUser);

impl AsyncExtractor for Admin {
    type Arguments = (CurrentUser,);
    type Rejection = Error;

    async fn extract((user,): (CurrentUser,)) -> Result<Self, Error> {
        match &*user.name {
            "ada" => Ok(Self(user)),
            _ => Err(Error::forbidden("for administrators")),
        }
    }
}

/// Sends visitors to the log-in.
#[derive(Clone)]
struct Member(CurrentUser);

impl AsyncExtractor for Member {
    type Arguments = Option<CurrentUser>;
    type Rejection = Redirect;

    async fn extract(user: Option<CurrentUser>) -> Result<Self, Redirect> {
        user.map(Self).ok_or_else(|| Redirect::to("/login"))
    }
}

/// What the path names.
#[derive(Clone)]
struct Product(u32);

impl AsyncExtractor for Product {
    type Arguments = Path<u32>;
    type Rejection = StatusCode;

    async fn extract(Path(id): Path<u32>) -> Result<Self, StatusCode> {
        match id {
            7 => Ok(Self(id)),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }
}

async fn named(mut request: Request, next: Next) -> Result<Response, Response> {
    let user: Option<CurrentUser> = next.extract(&mut request).await?;
    let response = next.run(request).await;
    let name = user.map_or_else(String::new, |user| user.name);
    Ok(apus::IntoResponse::with(response, "x-user", name))
}

fn app(database: Database) -> App {
    App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .layer(named)
        .state(database)
        .post("/login", async |session: Session, name: String| {
            session.insert("user", name)
        })
        .get("/me", async |user: CurrentUser| user.name)
        .get(
            "/all",
            async |first: CurrentUser,
                   Admin(second): Admin,
                   third: CurrentUser,
                   Member(last): Member| {
                format!(
                    "{} {} {} {}",
                    first.name, second.name, third.name, last.name
                )
            },
        )
        .get("/member", async |Member(user): Member| user.name)
        .get(
            "/maybe",
            async |user: Result<CurrentUser, Response>| match user {
                Ok(user) => user.name,
                Err(response) => response.status().to_string(),
            },
        )
        .get("/sync", |user: CurrentUser| user.name)
        .get(
            "/order/{id}",
            async |user: Option<CurrentUser>, Path(id): Path<u32>| format!("{user:?} {id}"),
        )
        .post("/upload", async |user: CurrentUser, body: String| {
            format!("{} {}", user.name, body.len())
        })
        .post("/json", async |user: CurrentUser, Json(id): Json<u32>| {
            format!("{} {id}", user.name)
        })
        .get(
            "/one",
            (async |user: CurrentUser| user.name).with(Require::<Admin>::new()),
        )
        .group("/admin", |admin| {
            admin
                .error_format(ErrorFormat::Json)
                .layer(Require::<Admin>::new())
                .get("/", async |user: CurrentUser| user.name)
                .get("/plain", || "plain")
        })
        .group("/products/{id}", |product| {
            product
                .layer(Require::<Product>::new())
                .get("/price", async |Product(id): Product| {
                    format!("price of {id}")
                })
        })
}

#[test]
fn a_value_is_made_once_for_each_request() {
    let database = Database::default();
    let server = TestServer::start(app(database.clone()));
    let client = server.client();
    let count = || database.0.swap(0, Ordering::Relaxed);
    client.post("/login").body("ada").send().assert_status(204);
    count();
    for (path, text) in [
        ("/me", "ada"),
        ("/all", "ada ada ada ada"),
        ("/member", "ada"),
        ("/maybe", "ada"),
        ("/sync", "ada"),
        ("/one", "ada"),
        ("/admin", "ada"),
        ("/admin/plain", "plain"),
    ] {
        client
            .get(path)
            .send()
            .assert_ok()
            .assert_text(text)
            .assert_header("x-user", "ada");
        assert_eq!(count(), 1, "{path}");
    }
    client
        .post("/upload")
        .body("abc")
        .send()
        .assert_text("ada 3");
    client.post("/json").json(&5).send().assert_text("ada 5");
    client.post("/json").json("x").send().assert_status(422);
    assert_eq!(count(), 3);
}

#[test]
fn a_request_without_the_role_is_rejected() {
    let server = TestServer::start(app(Database::default()));
    let client = server.client();
    let statuses = |expected: [u16; 6]| {
        let paths = ["/me", "/all", "/one", "/admin", "/admin/plain", "/maybe"];
        for (path, status) in paths.into_iter().zip(expected) {
            client.get(path).send().assert_status(status);
        }
    };
    statuses([401, 401, 401, 401, 401, 200]);
    client.get("/me").send().assert_text("log in first\n");
    client.get("/maybe").send().assert_text("401 Unauthorized");
    client.get("/member").send().assert_redirect("/login");
    client.post("/json").json("x").send().assert_status(401);
    client.post("/login").body("nobody").send();
    statuses([401, 401, 401, 401, 401, 200]);
    client.post("/login").body("grace").send();
    statuses([200, 403, 403, 403, 403, 200]);
    let problem = "application/problem+json";
    client
        .get("/admin")
        .send()
        .assert_header("content-type", problem);
    client
        .get("/one")
        .send()
        .assert_text("for administrators\n");
    client.get("/member").send().assert_text("grace");
}

#[test]
fn arguments_are_rejected_in_their_order() {
    let server = TestServer::start(
        app(Database::default())
            .get(
                "/first/{id}",
                async |_: CurrentUser, Path(id): Path<u32>| id.to_string(),
            )
            .get("/last/{id}", async |Path(id): Path<u32>, _: CurrentUser| {
                id.to_string()
            }),
    );
    let client = server.client();
    client.get("/order/1").send().assert_text("None 1");
    client.get("/order/x").send().assert_status(404);
    client.get("/first/x").send().assert_status(401);
    client.get("/last/x").send().assert_status(404);
    client.get("/last/1").send().assert_status(401);
}

#[test]
fn a_body_is_not_read_before_the_request_is_accepted() {
    let server = Server::start(app(Database::default()));
    let mut client = Client::connect(server.address());
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(client.read(false).status, 401);
}

#[test]
fn a_layer_knows_the_parameters_of_the_path() {
    let server = TestServer::start(app(Database::default()));
    let client = server.client();
    client
        .get("/products/7/price")
        .send()
        .assert_text("price of 7");
    client.get("/products/8/price").send().assert_status(404);
    client.get("/products/x/price").send().assert_status(404);
}

#[test]
fn a_layer_of_the_application_has_its_state_and_no_parameters_on_unknown_paths() {
    let app = App::new()
        .state("shop")
        .layer(async |mut request: Request, next: Next| {
            let State(name): State<&'static str> = next.extract(&mut request).await?;
            let parameters: Option<Path<Vec<String>>> = next.extract(&mut request).await?;
            let parameters = parameters.map_or_else(String::new, |Path(all)| all.join(","));
            let response = next.run(request).await;
            let told = apus::IntoResponse::with(response, "x-state", name);
            Ok::<_, Response>(apus::IntoResponse::with(told, "x-parameters", parameters))
        })
        .get("/users/{id}", || "a user")
        .group("/inner", |inner| inner.state("inner").get("/", || "inner"));
    let server = TestServer::start(app);
    let client = server.client();
    let fields = |path: &str, state: &str, parameters: &str| {
        let mut response = client.get(path).send();
        response
            .assert_header("x-state", state)
            .assert_header("x-parameters", parameters);
    };
    fields("/users/7", "shop", "7");
    fields("/users/a%20b", "shop", "a b");
    fields("/nowhere", "shop", "");
    fields("/inner", "inner", "");
}

#[test]
fn what_an_extractor_needs_is_checked_before_the_server_listens() {
    let app = App::new()
        .get("/me", async |user: CurrentUser| user.name)
        .group("/a", |a| {
            a.layer(Require::<Product>::new()).get("/", || "x")
        });
    let errors = app.check().unwrap_err().to_string();
    for part in ["takes a Session", "no state of this type", "Path<u32>"] {
        assert!(errors.contains(part), "{errors}");
    }
}
