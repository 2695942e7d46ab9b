//! `Valid` arguments: all messages at once, the names of fields, formats, and forms that are shown again.

use std::time::Duration;

use apus::session::{MemoryStore, Session, Sessions};
use apus::testing::{TestClient, TestResponse, TestServer};
use apus::validate::{FormState, InvalidFields};
use apus::{App, Form, Json, Path, Query, Redirect, Result, StatusCode, Valid};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize, Validate)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Order {
    #[garde(length(chars, min = 2, max = 4))]
    product: String,
    #[garde(email)]
    reply_to: String,
    #[garde(length(min = 1), dive)]
    items: Vec<Item>,
}

#[derive(Deserialize, Validate)]
struct Item {
    #[garde(range(min = 1, max = 3))]
    count: u32,
}

#[derive(Deserialize, Serialize, Validate)]
struct SignUp {
    #[garde(length(chars, min = 3))]
    name: String,
    #[garde(range(min = 18))]
    age: u32,
    #[garde(length(min = 8))]
    password: String,
}

async fn order(Valid(Json(order)): Valid<Json<Order>>) -> String {
    let counts = order.items.iter().map(|item| item.count).sum::<u32>();
    format!("{} {} {counts}", order.product, order.reply_to)
}

fn app() -> App {
    App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .post("/orders", order)
        .post("/plain", async |Json(item): Json<Vec<Item>>| {
            item.len().to_string()
        })
        .post("/form", async |Form(form): Form<SignUp>| form.name)
        .get("/search", async |Query(item): Query<Item>| {
            item.count.to_string()
        })
        .get("/valid", async |Valid(Query(item)): Valid<Query<Item>>| {
            item.count.to_string()
        })
        .post(
            "/shown",
            async |form: Result<Valid<Form<SignUp>>, InvalidFields>| {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                match form {
                    Ok(Valid(Form(form))) => Ok((StatusCode::OK, Json(FormState::of(&form)))),
                    Err(invalid) => Ok::<_, apus::Error>((status, Json(invalid.into_form()?))),
                }
            },
        )
        .post(
            "/sign-up",
            async |session: Session, form: Result<Valid<Form<SignUp>>, InvalidFields>| match form {
                Ok(Valid(Form(form))) => Ok(Redirect::to(format!("/users/{}", form.name))),
                Err(invalid) => FormState::redirect(invalid, &session, "/sign-up"),
            },
        )
        .get("/sign-up", async |session: Session| {
            Ok::<_, apus::Error>(Json(FormState::take(&session).await?))
        })
        .post("/optional", async |item: Option<Json<Item>>| {
            item.map_or("none".to_owned(), |Json(item)| item.count.to_string())
        })
        .post(
            "/result/{id}",
            async |id: Result<Path<u32>, _>, item: Result<Json<Item>, apus::Rejection>| {
                let _: &Result<_, apus::Rejection> = &id;
                let field = item
                    .err()
                    .and_then(|why| Some(why.field()?.path().to_owned()));
                format!("{} {}", id.is_ok(), field.unwrap_or_default())
            },
        )
}

/// The problem details of a response with status 422.
fn problem(mut response: TestResponse) -> Value {
    let problem = response
        .assert_status(422)
        .assert_header("content-type", "application/problem+json");
    problem.json()
}

#[test]
fn all_fields_are_reported_at_once_as_problem_details() {
    let server = TestServer::start(app());
    let client = server.client();
    let refused = json!({
        "product": "a",
        "replyTo": "nobody",
        "items": [{ "count": 1 }, { "count": 4 }],
    });
    // The client says nothing of what it accepts, and sent JSON.
    let found = problem(client.post("/orders").json(&refused).send());
    assert_eq!(found["status"], 422);
    assert_eq!(
        found["errors"]["product"],
        json!(["length is lower than 2"])
    );
    assert_eq!(found["errors"]["items[1].count"], json!(["greater than 3"]));
    assert_eq!(found["errors"]["replyTo"].as_array().unwrap().len(), 1);
    assert_eq!(found["errors"].as_object().unwrap().len(), 3);

    for (product, status) in [("a", 422), ("ab", 200), ("abcd", 200), ("abcde", 422)] {
        let order = json!({
            "product": product,
            "replyTo": "ada@example.com",
            "items": [{ "count": 3 }],
        });
        client
            .post("/orders")
            .json(&order)
            .send()
            .assert_status(status);
    }
}

#[test]
fn an_error_of_serde_names_the_field() {
    let server = TestServer::start(app());
    let client = server.client();
    let order = |change: (&str, Value)| {
        let mut order = json!({ "product": "ab", "replyTo": "a@b.c", "items": [{ "count": 1 }] });
        order[change.0] = change.1;
        problem(client.post("/orders").json(&order).send())["errors"].clone()
    };
    assert_eq!(
        order(("items", json!([{ "count": 1 }, {}]))),
        json!({ "items[1].count": ["is missing"] })
    );
    let found = order(("items", json!([{ "count": "x" }])));
    assert_eq!(
        found,
        json!({ "items[0].count": ["invalid type: string \"x\", expected u32"] })
    );
    assert_eq!(
        order(("other", json!(1))),
        json!({ "other": ["is not known"] })
    );
    let found = problem(client.post("/orders").json("?").send());
    assert!(found.get("errors").is_none(), "{found}");

    // Without rules, too.
    let found = problem(client.post("/plain").json(&json!([{ "count": -1 }])).send());
    assert_eq!(
        found["detail"],
        "the JSON does not fit: [0].count: invalid value: integer `-1`, expected u32"
    );
    let form = [("name", "Ada"), ("age", "x"), ("password", "12345678")];
    let text = "the form does not fit: age: invalid value: string \"x\", expected u32\n";
    client
        .post("/form")
        .form(form)
        .send()
        .assert_status(422)
        .assert_text(text);
    let text = "the query does not fit: count: is missing\n";
    client
        .get("/search")
        .send()
        .assert_status(400)
        .assert_text(text);
    let text = "the query does not fit: count: a value came more than once\n";
    client
        .get("/search?count=1&count=2")
        .send()
        .assert_status(400)
        .assert_text(text);
}

#[test]
fn the_client_chooses_the_format() {
    let client = TestClient::new(app());
    let get = |accept| client.get("/valid?count=0").header("accept", accept).send();
    get("*/*")
        .assert_status(422)
        .assert_text("count: lower than 1\n");
    get("text/html")
        .assert_status(422)
        .assert_contains("count: lower than 1");
    assert_eq!(
        problem(get("application/json"))["errors"]["count"],
        json!(["lower than 1"])
    );
    client.get("/valid?count=1").send().assert_text("1");
    let mut invalid = client
        .post("/orders")
        .header("accept", "text/plain")
        .json(&json!({}))
        .send();
    invalid
        .assert_status(422)
        .assert_text("product: is missing\n");
}

#[test]
fn a_body_that_is_not_read_keeps_its_status() {
    let server = TestServer::start(app().body_limit(10));
    let client = server.client();
    client.post("/orders").body("{}").send().assert_status(415);
    client
        .post("/orders")
        .json(&"x".repeat(9))
        .send()
        .assert_status(413);
    client
        .post("/orders")
        .header("content-type", "application/json")
        .body("{")
        .send()
        .assert_status(400);
    client
        .post("/sign-up")
        .form([("name", "much too long")])
        .send()
        .assert_status(413);
    client.post("/shown").body("").send().assert_status(415);
}

#[test]
fn a_form_has_its_values_and_messages_again() {
    let client = TestClient::new(app());
    let form = [("name", "A<"), ("age", "17"), ("password", "secret")];
    let mut shown = client.post("/shown").form(form).send();
    shown.assert_status(422);
    let expected = json!({
        "values": { "age": "17", "name": "A<" },
        "errors": {
            "age": ["lower than 18"],
            "name": ["length is lower than 3"],
            "password": ["length is lower than 8"],
        },
    });
    assert_eq!(shown.json::<Value>(), expected);
    // A value that is not a number is shown as it was typed.
    let form = [("name", "Ada"), ("age", "old"), ("tag", "a"), ("tag", "b")];
    let mut shown = client.post("/shown").form(form).send();
    shown.assert_status(422);
    let shown: Value = shown.json();
    assert_eq!(
        shown["values"],
        json!({ "age": "old", "name": "Ada", "tag": ["a", "b"] })
    );
    let form = [("name", "Ada"), ("age", "18"), ("password", "long enough")];
    let mut shown = client.post("/shown").form(form).send();
    shown.assert_ok();
    let expected = json!({ "values": { "age": "18", "name": "Ada" }, "errors": {} });
    assert_eq!(shown.json::<Value>(), expected);
}

#[test]
fn a_form_has_its_values_and_messages_after_a_redirect_once() {
    let server = TestServer::start(app());
    let client = server.client();
    let form = [("name", "A"), ("age", "18"), ("password", "long enough")];
    client
        .post("/sign-up")
        .form(form)
        .send()
        .assert_redirect("/sign-up");
    let mut page = client.get("/sign-up").send();
    let expected = json!({
        "values": { "age": "18", "name": "A" },
        "errors": { "name": ["length is lower than 3"] },
    });
    assert_eq!(page.json::<Value>(), expected);
    let mut page = client.get("/sign-up").send();
    assert_eq!(page.json::<Value>(), json!({ "values": {}, "errors": {} }));
    let form = [("name", "Ada"), ("age", "18"), ("password", "long enough")];
    client
        .post("/sign-up")
        .form(form)
        .send()
        .assert_redirect("/users/Ada");
}

#[test]
fn every_argument_can_be_optional_or_a_result() {
    let server = TestServer::start(app());
    let client = server.client();
    client
        .post("/optional")
        .body("?")
        .send()
        .assert_text("none");
    client
        .post("/optional")
        .json(&json!({ "count": 2 }))
        .send()
        .assert_text("2");
    let item = json!({ "count": "x" });
    client
        .post("/result/1")
        .json(&item)
        .send()
        .assert_text("true count");
    client
        .post("/result/x")
        .json(&item)
        .send()
        .assert_text("false count");
}

#[test]
fn a_form_that_is_shown_again_belongs_to_its_page_and_its_name() {
    fn store(session: &Session, name: &str, location: &str) -> Result<Redirect, apus::Error> {
        let invalid = InvalidFields::new("field", format!("{name} of {location}"));
        FormState::redirect(invalid.of_form(name), session, location)
    }
    async fn page(form: FormState) -> Json<[String; 3]> {
        Json(["", "address", "password"].map(|name| {
            let form = form.named(name);
            form.errors("field").join(",")
        }))
    }
    let admin = App::new()
        .get("/form", page)
        .post("/form", async |session: Session| {
            store(&session, "", "/admin/form")
        });
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .get("/a", page)
        .get("/b", page)
        .get("/café/{name}", page)
        .post("/a", async |session: Session| {
            store(&session, "", "/a?x=1#y")
        })
        .post("/both", async |session: Session| {
            store(&session, "address", "/b")?;
            store(&session, "password", "http://a.example/b")
        })
        .post("/encoded", async |session: Session| {
            store(&session, "", "/caf%C3%A9/a%20b")
        })
        .post("/any", async |session: Session| {
            let form = InvalidFields::new("field", "any").into_form()?;
            form.flash(&session)?;
            Ok::<_, apus::Error>(())
        })
        .mount("/admin", admin);
    let client = TestClient::new(app);
    let shown = |path: &str| -> [String; 3] {
        let mut response = client.get(path).send();
        response.assert_ok();
        response.json()
    };
    let none = [""; 3];
    // Other pages, also in another tab, neither show it nor take it away.
    client.post("/a").send().assert_redirect("/a?x=1#y");
    assert_eq!(shown("/b"), none);
    assert_eq!(shown("/admin/form"), none);
    assert_eq!(shown("/a?x=1"), [" of /a?x=1#y", "", ""]);
    assert_eq!(shown("/a"), none);
    // Two forms of one page.
    client.post("/both").send();
    client.post("/a").send();
    assert_eq!(
        shown("/b"),
        ["", "address of /b", "password of http://a.example/b"]
    );
    assert_eq!(shown("/b"), none);
    assert_eq!(shown("/a")[0], " of /a?x=1#y");
    for (post, page) in [
        ("/encoded", "/caf%C3%A9/a%20b"),
        ("/admin/form", "/admin/form"),
        ("/any", "/b"),
    ] {
        client.post(post).send();
        assert_ne!(shown(page)[0], "", "{page}");
        assert_eq!(shown(page), none, "{page}");
    }
}

#[test]
fn a_form_that_no_page_showed_is_forgotten() {
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .get("/a", async |form: FormState| Json(form))
        .get("/b", async |form: FormState| Json(form))
        .post("/a", async |session: Session| {
            FormState::redirect(InvalidFields::new("x", "y"), &session, "/a")
        });
    let client = TestClient::new(app);
    for (minutes, is_shown) in [(9, true), (11, false)] {
        client.post("/a").send();
        client.get("/b").send();
        client.clock().advance(Duration::from_secs(minutes * 60));
        let text = client.get("/a").send().text();
        assert_eq!(text.contains("\"y\""), is_shown, "{minutes}: {text}");
    }
}
