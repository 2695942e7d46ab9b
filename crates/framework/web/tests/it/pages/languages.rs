//! The language of a request, texts in it, and translated messages about fields.

use apus::i18n::{Language, Translations};
use apus::session::{MemoryStore, Session, Sessions};
use apus::template::{Page, Renderer, Templates, context};
use apus::testing::{TestClient, TestServer};
use apus::validate::{FormState, InvalidFields, ValidationMessages};
use apus::{App, Form, Json, Path, Query, Redirect, Valid};
use garde::Validate;
use serde::Deserialize;
use serde_json::{Value, json};

const ENGLISH: &str = "hello = Hello, { $name }!
cart = { $count ->
    [one] one bird
   *[other] { $count } birds
}
";

const POLISH: &str = "hello = Cześć, { $name }!
cart = { $count ->
    [one] jeden ptak
    [few] { $count } ptaki
   *[many] { $count } ptaków
}
validation-length-min = wymaga co najmniej { $min } znaków
validation-range-max = najwyżej { $max }
validation-email = to nie jest adres
validation-missing = brakuje
validation-unreadable = ma inny typ
validation-taken = jest zajęte
";

#[derive(Deserialize, Validate)]
struct SignUp {
    #[garde(length(chars, min = 3), custom(is_free))]
    name: String,
    #[garde(email)]
    email: String,
    #[garde(range(max = 150))]
    age: u32,
}

fn is_free(name: &str, _: &()) -> garde::Result {
    match name {
        "root" => Err(garde::Error::new("taken")),
        "two words" => Err(garde::Error::new("is not one word")),
        _ => Ok(()),
    }
}

fn translations() -> Translations {
    let files = [("pl.ftl", POLISH), ("en.ftl", ENGLISH)];
    Translations::embedded("en", files).unwrap()
}

async fn page(renderer: Renderer, Path(count): Path<u32>) -> Page {
    renderer.page("page.html", context! { name => "<Ada>", count })
}

async fn mail(renderer: Renderer) -> String {
    let renderer = renderer.language(translations().language("pl"));
    renderer.text("mail.txt", context! {}).unwrap()
}

fn app() -> App {
    let templates = [
        (
            "page.html",
            "{{ t('hello', name=name) }} {{ t('cart', count=count) }}",
        ),
        (
            "mail.txt",
            "{{ t('hello', name='<Ada>') }} {{ t('hello', name='Bob', language='en') }}",
        ),
    ];
    App::new()
        .layer(translations())
        .layer(ValidationMessages::translated())
        .state(Templates::embedded(templates).load().unwrap())
        .get("/page/{count}", page)
        .get("/mail", mail)
        .post("/json", async |Valid(Json(new)): Valid<Json<SignUp>>| {
            format!("{} {} {}", new.name, new.email, new.age)
        })
        .post("/form", async |Valid(Form(new)): Valid<Form<SignUp>>| {
            new.name
        })
}

#[test]
fn each_request_has_its_language_on_every_worker() {
    let server = TestServer::with_workers(app(), 2);
    for _ in 0..20 {
        // Each client has its own connection, which any worker may accept.
        for (accepted, expected, language) in [
            ("pl-PL, en;q=0.5", "Cześć, &lt;Ada&gt;! 22 ptaki", "pl"),
            ("en-GB, pl;q=0.5", "Hello, &lt;Ada&gt;! 22 birds", "en"),
            ("fr", "Hello, &lt;Ada&gt;! 22 birds", "en"),
        ] {
            let client = server.client().header("accept-language", accepted);
            client
                .get("/page/22")
                .send()
                .assert_text(expected)
                .assert_header("content-language", language)
                .assert_header("vary", "accept-language, cookie");
        }
    }
    let polish = server.client().header("accept-language", "pl");
    polish
        .get("/page/1")
        .send()
        .assert_text("Cześć, &lt;Ada&gt;! jeden ptak");
    polish
        .get("/page/25")
        .send()
        .assert_text("Cześć, &lt;Ada&gt;! 25 ptaków");
}

#[test]
fn a_mail_is_in_the_language_of_its_reader() {
    let client = TestClient::new(app()).header("accept-language", "en");
    client
        .get("/mail")
        .send()
        .assert_text("Cześć, <Ada>! Hello, Bob!");
}

#[test]
fn a_session_keeps_the_language() {
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .layer(
            translations()
                .chosen_by(async |session: Session| session.get("language").await.ok().flatten()),
        )
        .post("/language", async |session: Session, tag: String| {
            session.insert("language", tag)
        })
        .get("/", async |language: Language| {
            language.text_with("hello", [("name", "Ada".into())])
        });
    let server = TestServer::start(app);
    let client = server.client().header("accept-language", "pl");
    client.get("/").send().assert_text("Cześć, Ada!");
    client
        .post("/language")
        .body("en")
        .send()
        .assert_status(204);
    client
        .get("/")
        .send()
        .assert_text("Hello, Ada!")
        .assert_header("content-language", "en");
    client
        .post("/language")
        .body("fr")
        .send()
        .assert_status(204);
    client.get("/").send().assert_text("Cześć, Ada!");
    server.client().get("/").send().assert_text("Hello, Ada!");
}

#[test]
fn messages_about_fields_are_translated() {
    let server = TestServer::start(app());
    let polish = server.client().header("accept-language", "pl");
    let errors = |sent: Value| {
        let mut response = polish.post("/json").json(&sent).send();
        response.assert_status(422);
        response.json::<Value>()["errors"].clone()
    };
    assert_eq!(
        errors(json!({ "name": "a", "email": "b", "age": 151 })),
        json!({
            "name": ["wymaga co najmniej 3 znaków"],
            "email": ["to nie jest adres"],
            "age": ["najwyżej 150"],
        })
    );
    // The key of a rule of the application, and a message that is a sentence.
    let named = |name: &str| errors(json!({ "name": name, "email": "a@b.example", "age": 1 }));
    assert_eq!(named("root"), json!({ "name": ["jest zajęte"] }));
    assert_eq!(named("two words"), json!({ "name": ["is not one word"] }));
    assert_eq!(
        errors(json!({ "name": "Ada", "age": 1 })),
        json!({ "email": ["brakuje"] })
    );
    let other_type = json!({ "name": "Ada", "email": "a@b.example", "age": "x" });
    assert_eq!(errors(other_type), json!({ "age": ["ma inny typ"] }));

    // English has no texts of its own here.
    let form = [("name", "a"), ("email", "a@b.example"), ("age", "1")];
    let response = &mut server.client().post("/form").form(form).send();
    response
        .assert_status(422)
        .assert_text("name: length is lower than 3\n");
}

#[test]
fn messages_are_translated_in_forms_queries_pages_and_problems() {
    async fn sign_up(
        session: Session,
        form: Result<Valid<Form<SignUp>>, InvalidFields>,
    ) -> apus::Result<Redirect> {
        match form {
            Ok(_) => Ok(Redirect::to("/")),
            Err(invalid) => FormState::redirect(invalid, &session, "/sign-up"),
        }
    }
    let app = App::new()
        .layer(Sessions::new(MemoryStore::new()))
        .layer(translations())
        .layer(ValidationMessages::translated())
        .get(
            "/search",
            async |Valid(Query(new)): Valid<Query<SignUp>>| new.name,
        )
        .post("/form", async |Valid(Form(new)): Valid<Form<SignUp>>| {
            new.name
        })
        .get("/sign-up", async |form: FormState| Json(form))
        .post("/sign-up", sign_up);
    let polish = TestClient::new(app).header("accept-language", "pl");
    let short = [("name", "Al"), ("email", "a@b.example"), ("age", "200")];
    let expected = json!({ "name": ["wymaga co najmniej 3 znaków"], "age": ["najwyżej 150"] });

    let problem = |accept: &str| {
        let request = polish.post("/form").header("accept", accept);
        request.form(short).send()
    };
    let mut response = problem("application/json");
    response.assert_header("content-type", "application/problem+json");
    assert_eq!(response.json::<Value>()["errors"], expected);
    problem("text/html").assert_contains("name: wymaga co najmniej 3 znaków");
    problem("text/plain").assert_text("age: najwyżej 150; name: wymaga co najmniej 3 znaków\n");

    let query = polish.get("/search").query(short);
    query
        .send()
        .assert_status(422)
        .assert_contains("najwyżej 150");
    for (age, text) in [("x", "age: ma inny typ\n"), ("", "age: ma inny typ\n")] {
        let form = [("name", "Ada"), ("email", "a@b.example"), ("age", age)];
        polish.post("/form").form(form).send().assert_text(text);
    }
    let lacking = polish.post("/form").form([("name", "Ada")]);
    lacking.send().assert_text("email: brakuje\n");

    // After a redirect they are in the language of the request that was not valid.
    polish
        .post("/sign-up")
        .form(short)
        .send()
        .assert_redirect("/sign-up");
    let mut page = polish
        .get("/sign-up")
        .header("accept-language", "en")
        .send();
    let form: Value = page.json();
    assert_eq!(form["errors"], expected);
    assert_eq!(form["values"]["name"], "Al");
}

#[test]
fn messages_that_a_handler_makes_are_translated_too() {
    async fn later(invalid: InvalidFields) -> InvalidFields {
        tokio::task::yield_now().await;
        invalid.and("email", "taken")
    }
    fn invalid() -> InvalidFields {
        InvalidFields::new("name", "taken").and("age", "is a sentence")
    }
    let app = App::new()
        .layer(translations())
        .layer(ValidationMessages::translated())
        .post("/now", async || Err::<(), _>(invalid()))
        .post("/later", async || {
            Err::<(), apus::Error>(later(invalid()).await.into())
        })
        .post("/form", async || {
            Ok::<_, apus::Error>(Json(invalid().into_form()?))
        });
    let server = TestServer::start(app);
    let polish = server.client().header("accept-language", "pl");
    for path in ["/now", "/later"] {
        let mut response = polish
            .post(path)
            .header("accept", "application/json")
            .send();
        response.assert_status(422);
        let errors = response.json::<Value>()["errors"].clone();
        assert_eq!(errors["name"], json!(["jest zajęte"]), "{path}");
        assert_eq!(errors["age"], json!(["is a sentence"]), "{path}");
        let is_added = errors["email"] == json!(["jest zajęte"]);
        assert_eq!(is_added, path == "/later", "{errors}");
    }
    let form = polish.post("/form").send().text();
    assert!(form.contains("jest zajęte"), "{form}");
    // A language that lacks the text has the message as it is.
    let english = server.client().header("accept-language", "en");
    english.post("/now").send().assert_contains("name: taken");
}

#[test]
fn a_language_without_its_layer_is_a_mistake_of_the_program() {
    let app = App::new().get("/", async |language: Language| language.tag().to_owned());
    let mistakes = app.check().unwrap_err().to_string();
    let expected = "the handler takes a Language, and no layer `Translations` is around it";
    assert!(mistakes.contains(expected), "{mistakes}");

    let templates = Templates::embedded([("page.html", "{{ t('hello') }}")]);
    let app = App::new()
        .state(templates.reload(true).load().unwrap())
        .get("/", async |renderer: Renderer| {
            renderer.page("page.html", context! {})
        });
    let response = &mut TestClient::new(app).get("/").send();
    response
        .assert_status(500)
        .assert_contains("behind the layer `Translations`");
}
