//! The OpenAPI description and its page.

use apus::extract::Multipart;
use apus::openapi::{JsonSchema, OpenApi};
use apus::testing::TestClient;
use apus::{App, Json, Path, Query, StatusCode, delete, get, post, routes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Somebody who can log in.
#[derive(Deserialize, JsonSchema, Serialize)]
#[schemars(crate = "apus::openapi::schemars")]
struct User {
    id: u32,
    /// As it is shown.
    #[serde(rename = "fullName")]
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "apus::openapi::schemars")]
struct Search {
    /// A part of the name.
    q: String,
    page: Option<u32>,
}

/// A response type without a description.
struct Opaque;

impl apus::IntoResponse for Opaque {
    fn into_response(self) -> apus::Response {
        StatusCode::OK.into()
    }
}

/// Finds users
/// by name.
///
/// At most <20> of them.
#[get("/openapi/users")]
async fn find(Query(search): Query<Search>) -> Json<Vec<User>> {
    let _ = (search.q, search.page);
    Json(Vec::new())
}

#[get("/openapi/users/{id:[0-9]+}")]
async fn show(Path(id): Path<u32>) -> apus::Result<Json<User>> {
    Ok(Json(User {
        id,
        name: "Ada".into(),
    }))
}

#[post("/openapi/users")]
async fn create(Json(user): Json<User>) -> (StatusCode, Json<User>) {
    (StatusCode::CREATED, Json(user))
}

#[delete("/openapi/users/{id}/{tag}")]
async fn untag(Path((id, tag)): Path<(u32, String)>) {
    let _ = (id, tag);
}

#[get("/openapi/opaque")]
async fn opaque() -> Opaque {
    Opaque
}

#[post("/openapi/files")]
async fn upload(form: Multipart) {
    drop(form);
}

fn api() -> OpenApi {
    OpenApi::new("Users & more", "1.2.0")
        .description("All about them.")
        .describe(routes![find, show, create, untag, opaque, upload])
}

#[test]
fn operations_are_described_by_the_types_of_their_handlers() {
    let api = api().to_value();
    assert_eq!(api["openapi"], "3.1.0");
    assert_eq!(
        api["info"],
        json!({"title": "Users & more", "version": "1.2.0", "description": "All about them."})
    );
    let find = &api["paths"]["/openapi/users"]["get"];
    assert_eq!(find["summary"], "Finds users by name.");
    assert_eq!(find["description"], "At most <20> of them.");
    assert_eq!(find["operationId"], "find");
    assert_eq!(find["tags"], json!(["openapi"]));
    let parameters = find["parameters"].as_array().unwrap();
    assert_eq!(parameters[0]["name"], "page");
    assert_eq!(parameters[0]["required"], false);
    assert_eq!(parameters[1]["name"], "q");
    assert_eq!(parameters[1]["in"], "query");
    assert_eq!(parameters[1]["required"], true);
    assert_eq!(parameters[1]["description"], "A part of the name.");
    let user = json!({"$ref": "#/components/schemas/User"});
    let found = &find["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(found, &json!({"type": "array", "items": user}));

    let show = &api["paths"]["/openapi/users/{id}"]["get"];
    assert_eq!(show["parameters"][0]["in"], "path");
    assert_eq!(show["parameters"][0]["schema"]["type"], "integer");
    assert_eq!(show["responses"]["default"]["description"], "an error");
    let create = &api["paths"]["/openapi/users"]["post"];
    let body_schema = &create["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body_schema, &user);
    let untag = &api["paths"]["/openapi/users/{id}/{tag}"]["delete"];
    assert_eq!(untag["parameters"][0]["schema"]["type"], "integer");
    assert_eq!(untag["parameters"][1]["schema"]["type"], "string");
    assert_eq!(
        untag["responses"],
        json!({"204": {"description": "No Content"}})
    );
    let upload = &api["paths"]["/openapi/files"]["post"]["requestBody"]["content"];
    assert!(upload["multipart/form-data"].is_object());
    let opaque = &api["paths"]["/openapi/opaque"]["get"];
    assert_eq!(opaque["responses"]["default"]["description"], "a response");

    let schema = &api["components"]["schemas"]["User"];
    assert_eq!(
        schema["properties"]["fullName"]["description"],
        "As it is shown."
    );
    assert_eq!(schema["required"], json!(["id", "fullName"]));
}

#[test]
fn an_application_serves_its_description_and_a_page() {
    let client = TestClient::new(App::new().register(routes![find]).openapi(api()));
    let served: Value = client.get("/openapi.json").send().assert_ok().json();
    assert_eq!(served, api().to_value());
    client
        .get("/openapi")
        .send()
        .assert_ok()
        .assert_header("content-type", "text/html; charset=utf-8")
        .assert_contains("<h1>Users &amp; more <small>1.2.0</small></h1>")
        .assert_contains("<b>GET</b> <code>/openapi/users</code> Finds users by name.")
        .assert_contains("<p>At most &lt;20&gt; of them.</p>")
        .assert_contains("array of <a href=\"#User\">User</a>")
        .assert_contains("<details id=\"User\">");
    let elsewhere = api().page_at("/docs").document_at("/docs/api.json");
    let client = TestClient::new(App::new().openapi(elsewhere));
    client
        .get("/docs")
        .send()
        .assert_contains("href=\"/docs/api.json\"");
    client.get("/docs/api.json").send().assert_ok();
}

#[test]
fn routes_without_attributes_are_listed() {
    async fn plain() {}
    let app = || {
        let nested = App::new().get("/deep", plain);
        App::new()
            .register(routes![find])
            .put("/openapi/users/{id:[0-9]+}", plain)
            .get("/openapi/closure/{*rest}", async || "")
            .group("/in", |group| group.post("/users", plain))
            .mount("/mounted", nested)
            .any("/all", plain)
            .host("a.example", |host| host.get("/host", plain))
    };
    let document = |app: App| -> Value {
        let client = TestClient::new(app);
        client.get("/openapi.json").send().assert_ok().json()
    };
    let served = document(app().openapi(api()));
    let paths = &served["paths"];
    assert_eq!(
        paths["/openapi/users"]["get"]["summary"],
        "Finds users by name."
    );
    let put = &paths["/openapi/users/{id}"]["put"];
    assert_eq!(put["operationId"], "plain");
    assert_eq!(put["parameters"][0]["name"], "id");
    assert!(paths["/openapi/users/{id}"]["get"].is_object());
    let closure = &paths["/openapi/closure/{rest}"]["get"];
    assert!(closure.is_object() && closure["operationId"].is_null());
    assert!(paths["/in/users"]["post"].is_object());
    assert!(paths["/mounted/deep"]["get"].is_object());
    for path in ["/all", "/host", "/openapi.json", "/mounted/{*}"] {
        assert!(paths[path].is_null(), "{path}");
    }
    let served = document(app().openapi(api().only_described()));
    assert_eq!(served, api().to_value());
}

#[test]
fn the_page_needs_no_other_resources() {
    let client = TestClient::new(App::new().openapi(api()));
    let page = client.get("/openapi").send().text();
    for part in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
}
