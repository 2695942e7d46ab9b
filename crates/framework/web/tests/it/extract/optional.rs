//! `Option` and `Result` of every extractor of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path as FilePath;
use std::rc::Rc;

use apus::auth::{BasicUser, Claims, Csrf, CsrfToken};
use apus::extract::{
    AsyncExtractor, Cookies, FromRequest, FromRequestHead, Identity, Multipart, MultipartForm,
    Paging,
};
use apus::i18n::{Language, Translations};
use apus::layers::{ClientInfo, CspNonce, RequestId, RequestIds, SecurityHeaders};
use apus::session::{Flash, MemoryStore, Session, Sessions};
use apus::sql::{Db, Transactions, Tx};
use apus::sse::LastEventId;
use apus::template::{Renderer, Templates};
use apus::testing::{TestClient, TestRequest};
use apus::validate::FormState;
use apus::{
    App, Body, ConnectionInfo, Error, Extension, Form, HeaderMap, Headers, Json, Method, Path,
    Peer, Query, Request, State, Target, Urls, Valid, WebSocketUpgrade,
};
use bytes::Bytes;
use garde::Validate;
use serde::Deserialize;

use apus_testkit::logged;

#[derive(Deserialize, Validate)]
struct Item {
    #[garde(range(max = 9))]
    count: u32,
}

type Texts = BTreeMap<String, String>;

#[derive(Clone)]
struct CurrentUser;

impl AsyncExtractor for CurrentUser {
    type Arguments = (Session, State<u8>);
    type Rejection = Error;

    async fn extract((session, _): Self::Arguments) -> Result<Self, Error> {
        let name: Option<String> = session.get("user").await?;
        name.map(|_| Self)
            .ok_or_else(|| Error::unauthorized("log in first"))
    }
}

async fn of_head<T: FromRequestHead>(value: Option<T>, result: Result<T, T::Rejection>) -> String {
    format!("{} {}", value.is_some(), result.is_ok())
}

async fn body<T: FromRequest>(value: Option<T>) -> String {
    value.is_some().to_string()
}

async fn body_result<T: FromRequest>(result: Result<T, T::Rejection>) -> String {
    result.is_ok().to_string()
}

/// Where an extractor fails: nowhere, on a request that lacks its value, and also on one that has all that a client sends in-process.
#[derive(Clone, Copy, PartialEq)]
enum Fails {
    Never,
    Lacking,
    Always,
}

use Fails::{Always, Lacking, Never};

macro_rules! extractors {
    ($($name:literal: $type:ty, $fails:expr;)*) => {
        fn names() -> Vec<(&'static str, Fails)> {
            vec![$(($name, $fails)),*]
        }

        fn with_routes(app: App) -> App {
            app $(.get(concat!("/", $name), of_head::<$type>).get(concat!("/", $name, "/{id}"), of_head::<$type>))*
        }
    };
}

// The names of the types that implement `FromRequestHead` and `AsyncExtractor`.
extractors! {
    "BasicUser": BasicUser, Lacking;
    "Claims": Claims<u8>, Lacking;
    "ClientInfo": ClientInfo, Never;
    "Cookies": Cookies, Never;
    "CspNonce": CspNonce, Lacking;
    "CsrfToken": CsrfToken, Lacking;
    "CurrentUser": CurrentUser, Always;
    "Extension": Extension<i8>, Lacking;
    "Flash": Flash, Lacking;
    "FormState": FormState, Lacking;
    "HeaderMap": HeaderMap, Never;
    "Headers": Headers, Never;
    // A client certificate: `a_verified_certificate_names_the_client`.
    "Identity": Identity, Always;
    "Language": Language, Lacking;
    "LastEventId": LastEventId, Never;
    "Method": Method, Never;
    "Option": Option<Session>, Never;
    "Paging": Paging, Lacking;
    "Path": Path<u32>, Lacking;
    "Peer": Peer, Never;
    "Query": Query<Item>, Lacking;
    "Rc": Rc<ConnectionInfo>, Never;
    "Renderer": Renderer, Lacking;
    "RequestId": RequestId, Never;
    "Result": Result<Session, Error>, Never;
    "Session": Session, Lacking;
    "State": State<u8>, Lacking;
    "T": CurrentUser, Always;
    "Target": Target, Never;
    "Tx": Tx, Lacking;
    "Urls": Urls, Never;
    "Valid": Valid<Query<Item>>, Lacking;
    // A handshake: `a_handshake_selects_a_subprotocol`.
    "WebSocketUpgrade": WebSocketUpgrade, Always;
    "tuple": (Session, State<u8>), Lacking;
    "unit": (), Never;
}

/// An application that provides nothing.
fn bare() -> App {
    with_routes(App::new())
}

/// An application that provides all that an extractor can need.
fn complete() -> App {
    let templates = Templates::embedded([("page.html", "")]).load().unwrap();
    // No statement is run, so nobody connects.
    let db: Db = Db::open("sqlite:never-opened.db").unwrap();
    with_routes(
        App::new()
            .layer(RequestIds::new())
            .layer(SecurityHeaders::new().content_security_policy("script-src 'nonce-{nonce}'"))
            .layer(Sessions::new(MemoryStore::new()))
            .layer(Csrf::new())
            .layer(Transactions::new(db))
            .layer(Translations::new("en", "hello = Hello").unwrap())
            .before(|request| {
                let extensions = request.extensions_mut();
                extensions.insert(BasicUser("ada".to_owned()));
                extensions.insert(Claims(1_u8));
                extensions.insert(1_i8);
                Ok(())
            })
            .state(templates)
            .state(1_u8),
    )
}

#[test]
fn every_argument_of_the_head_can_be_optional_or_a_result() {
    // `check` finds only mistakes of `CurrentUser`, which has to have what it is made of.
    let mistakes = bare().check().unwrap_err().to_string();
    let of_user = mistakes.matches("State<u8>").count();
    assert!(of_user > 0, "{mistakes}");
    complete().check().unwrap();

    let complete = TestClient::new(complete());
    for (name, fails) in names() {
        let found = |mut response: apus::testing::TestResponse| {
            response.assert_ok();
            response.text().to_owned()
        };
        let expected = |is_there: bool| format!("{is_there} {is_there}");
        let all = complete.get(&format!("/{name}/7?count=1")).send();
        assert_eq!(found(all), expected(fails != Always), "{name}");
    }
}

#[test]
fn an_argument_that_may_be_missing_is_no_error_in_the_log() {
    let handlers: App = App::new()
        .get("/Extension", of_head::<Extension<i8>>)
        .get("/State", of_head::<State<u8>>)
        .get("/Session", of_head::<Session>)
        .get("/CsrfToken", of_head::<CsrfToken>)
        .get("/Renderer", of_head::<Renderer>)
        .get("/RequestId", of_head::<RequestId>)
        .get("/CspNonce", of_head::<CspNonce>)
        .get("/Language", of_head::<Language>)
        .get("/Tx", of_head::<Tx>)
        .get("/BasicUser", of_head::<BasicUser>)
        .get("/Claims", of_head::<Claims<u8>>)
        .get("/Identity", of_head::<Identity>)
        .get("/Path", of_head::<Path<u32>>)
        .get("/Query", of_head::<Query<Item>>)
        .get("/Valid", of_head::<Valid<Query<Item>>>)
        .get("/Paging", of_head::<Paging>)
        .get("/WebSocketUpgrade", of_head::<WebSocketUpgrade>)
        .get("/tuple", of_head::<(Session, State<u8>)>);
    let client = TestClient::new(handlers);
    let log = logged(|| {
        for (name, _) in names().into_iter().filter(|(_, fails)| *fails != Never) {
            if ["CurrentUser", "Flash", "FormState", "T"].contains(&name) {
                continue; // They are made of others, which have to be there.
            }
            let path = format!("/{name}?per_page=1000");
            client
                .get(&path)
                .send()
                .assert_ok()
                .assert_text("false false");
        }
    });
    assert!(!log.contains("ERROR"), "{log}");
}

/// The bodies that are read, and those that are not.
type Bodies = (
    fn(TestRequest) -> TestRequest,
    fn(TestRequest) -> TestRequest,
);

#[test]
fn every_argument_that_reads_the_body_can_be_optional_or_a_result() {
    let json: Bodies = (
        |request| request.json(&serde_json::json!({ "count": 1 })),
        |request| request.json(&"?"),
    );
    let form: Bodies = (
        |request| request.form([("count", "1")]),
        |request| request.form([("count", "x")]),
    );
    let files: Bodies = (
        |request| request.multipart([("count", "1")], [("a", "a.txt", "text/plain", &b"1"[..])]),
        |request| request.body("no parts"),
    );
    let text: Bodies = (
        |request| request.body("a text"),
        |request| request.body(vec![0xff_u8; 20]),
    );
    let any: Bodies = (|request| request.body("1"), |request| request.body("2"));
    let long: Bodies = (any.0, |request| request.body("x".repeat(61)));
    let map: Bodies = (form.0, any.0);
    let app = App::new().body_limit(60);

    macro_rules! bodies {
        ($($name:literal: $type:ty, $bodies:expr, $can_fail:expr;)*) => {
            (
                app $(
                    .post(concat!("/", $name), body::<$type>)
                    .post(concat!("/", $name, "/result"), body_result::<$type>)
                )*,
                vec![$(($name, $bodies, $can_fail)),*],
            )
        };
    }

    // The names of the types that implement `FromRequest`.
    let (app, extractors) = bodies! {
        "Body": Body, any, false;
        "Bytes": Bytes, long, true;
        "Form": Form<Item>, form, true;
        "Json": Json<Item>, json, true;
        "Multipart": Multipart, files, true;
        "MultipartForm": MultipartForm<Item>, files, true;
        "Option": Option<Json<Item>>, json, false;
        "Request": Request, any, false;
        "Result": Result<Json<Item>, apus::Rejection>, json, false;
        "String": String, text, true;
        "Valid": Valid<Json<Item>>, json, true;
        "ValidForm": Valid<Form<Item>>, form, true;
        "map": Form<Texts>, map, true;
    };
    app.check().unwrap();
    let client = TestClient::new(app);
    for (name, (good, bad), can_fail) in &extractors {
        for path in [format!("/{name}"), format!("/{name}/result")] {
            good(client.post(&path))
                .send()
                .assert_ok()
                .assert_text("true");
            let expected = (!can_fail).to_string();
            bad(client.post(&path))
                .send()
                .assert_ok()
                .assert_text(&expected);
        }
    }
    let tested: BTreeSet<&str> = extractors.iter().map(|(name, ..)| *name).collect();
    for name in implementors("FromRequest") {
        assert!(tested.contains(&*name), "{name} is not in the list");
    }
}

#[test]
fn no_extractor_of_the_head_is_forgotten() {
    let tested: BTreeSet<&str> = names().into_iter().map(|(name, _)| name).collect();
    let found: BTreeSet<String> = ["FromRequestHead", "AsyncExtractor"]
        .into_iter()
        .flat_map(implementors)
        .collect();
    assert!(found.len() > 20, "{found:?}");
    for name in found {
        assert!(tested.contains(&*name), "{name} is not in the list");
    }
}

/// The names of the types that implement a trait in the crates of the workspace.
fn implementors(of: &str) -> BTreeSet<String> {
    let package = FilePath::new(env!("CARGO_MANIFEST_DIR"));
    let entries = |folder: &FilePath| fs::read_dir(folder).into_iter().flatten();
    let mut folders: Vec<_> = entries(package.ancestors().nth(2).unwrap())
        .flat_map(|shelf| entries(&shelf.unwrap().path()))
        .map(|entry| entry.unwrap().path().join("src"))
        // The templates of projects are not crates.
        .filter(|folder| folder.join("lib.rs").exists())
        .collect();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let Some((before, of_type)) = line.split_once(&format!(" {of} for ")) else {
                    continue;
                };
                let parameters = before.trim_start_matches("impl");
                let is_impl = parameters.is_empty() || parameters.ends_with('>');
                let name = of_type
                    .split(|c: char| !c.is_alphanumeric())
                    .next()
                    .unwrap_or_default();
                match name {
                    _ if !is_impl => {}
                    "" => {
                        found.insert("unit".to_owned());
                    }
                    name => {
                        found.insert(name.to_owned());
                    }
                }
            }
        }
    }
    found
}
