//! The OpenAPI description and its page.

use apus::extract::{Multipart, MultipartForm, PageLinks, Paging};
use apus::openapi::{JsonSchema, OpenApi};
use apus::testing::TestClient;
use apus::{App, Created, Json, Method, Path, Query, StatusCode, Valid, delete, get, post, routes};
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
    let every = || routes![find, show, create, untag, opaque, upload];
    let client = TestClient::new(App::new().register(every()).openapi(api()));
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
    // What is described and not registered is left out.
    assert!(paths["/openapi/users/{id}"]["get"].is_null());
    let closure = &paths["/openapi/closure/{rest}"]["get"];
    assert!(closure.is_object() && closure["operationId"].is_null());
    assert!(paths["/in/users"]["post"].is_object());
    assert!(paths["/mounted/deep"]["get"].is_object());
    for path in ["/all", "/host", "/openapi.json", "/mounted/{*}"] {
        assert!(paths[path].is_null(), "{path}");
    }
    let served = document(app().openapi(api().only_described()));
    let paths: Vec<&String> = served["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/openapi/users"]);
}

#[get("/list")]
async fn list() -> Json<Vec<User>> {
    Json(Vec::new())
}

#[post("/add")]
async fn add(form: MultipartForm<User>) -> Created<Json<User>> {
    Created::at("/list/1", Json(form.fields))
}

#[get("/fields")]
async fn fields() -> ([(&'static str, &'static str); 1], Json<User>) {
    let user = User {
        id: 1,
        name: String::new(),
    };
    ([("x-a", "1")], Json(user))
}

#[post("/status")]
async fn status() -> (StatusCode, [(&'static str, &'static str); 1], String) {
    (StatusCode::ACCEPTED, [("x-a", "1")], String::new())
}

/// The description is made of the routes as they are registered.
#[test]
fn routes_in_groups_are_described_at_their_paths() {
    let inner = |group: App| {
        group
            .register(routes![list, add])
            .nest("/deep", App::new().register(routes![list]))
    };
    let app = App::new()
        .group("/api", inner)
        .register(routes![fields, status])
        .openapi(OpenApi::new("Shop", "1").describe(routes![list, add]));
    let client = TestClient::new(app);
    let served: Value = client.get("/openapi.json").send().assert_ok().json();
    let paths = &served["paths"];
    assert_eq!(paths.as_object().unwrap().len(), 5, "{paths:#}");
    let user = json!({"$ref": "#/components/schemas/User"});
    for (path, id) in [("/api/list", "list"), ("/api/deep/list", "list_2")] {
        let found = &paths[path]["get"];
        assert_eq!(found["operationId"], id);
        let schema = &found["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(schema["items"], user, "{path}");
    }
    let add = &paths["/api/add"]["post"];
    let body = &add["requestBody"]["content"]["multipart/form-data"]["schema"];
    assert_eq!(body, &user);
    let created = &add["responses"]["201"];
    assert_eq!(created["description"], "Created");
    assert_eq!(created["content"]["application/json"]["schema"], user);
    let fields = &paths["/fields"]["get"]["responses"]["200"];
    assert_eq!(fields["content"]["application/json"]["schema"], user);
    let status = &paths["/status"]["post"]["responses"]["2XX"];
    assert!(status["content"]["text/plain"].is_object());
    // The response is the one that is described.
    client
        .post("/api/add")
        .header("content-type", "multipart/form-data; boundary=b")
        .body("--b\r\ncontent-disposition: form-data; name=id\r\n\r\n1\r\n--b\r\ncontent-disposition: form-data; name=fullName\r\n\r\nAda\r\n--b--\r\n")
        .send()
        .assert_status(201)
        .assert_header("location", "/list/1")
        .assert_json(json!({"id": 1, "fullName": "Ada"}));
}

#[test]
fn what_types_do_not_tell_can_be_set() {
    let api = OpenApi::new("Shop", "1")
        .security_scheme("token", json!({"type": "http", "scheme": "bearer"}))
        .security("token")
        .operations_below("/api", |operation| {
            operation
                .tags(["shop"])
                .problem(422, "a value is not valid");
        })
        .operation(Method::POST, "/api/add", |operation| {
            operation
                .summary("Adds a user.")
                .description("At once.")
                .security("other")
                .request_example(json!({"id": 1}))
                .response_example("201", json!({"id": 2}));
        })
        .operation(Method::POST, "/status", |operation| {
            operation.status(202).no_security();
        });
    let app = App::new()
        .group("/api", |group| group.register(routes![list, add]))
        .group("/apis", |group| group.register(routes![list]))
        .register(routes![status])
        .openapi(api);
    let served: Value = TestClient::new(app)
        .get("/openapi.json")
        .send()
        .assert_ok()
        .json();
    assert_eq!(
        served["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
    assert_eq!(served["security"], json!([{"token": []}]));
    let paths = &served["paths"];
    assert_eq!(paths["/apis/list"]["get"]["responses"]["422"], Value::Null);
    for (path, method) in [("/api/list", "get"), ("/api/add", "post")] {
        let operation = &paths[path][method];
        assert_eq!(operation["tags"], json!(["shop"]));
        let problem = &operation["responses"]["422"];
        assert_eq!(problem["description"], "a value is not valid");
        assert!(problem["content"]["application/problem+json"].is_object());
    }
    let add = &paths["/api/add"]["post"];
    assert_eq!(
        (&add["summary"], &add["description"]),
        (&json!("Adds a user."), &json!("At once."))
    );
    assert_eq!(add["security"], json!([{"other": []}]));
    assert_eq!(
        add["requestBody"]["content"]["multipart/form-data"]["example"]["id"],
        1
    );
    assert_eq!(
        add["responses"]["201"]["content"]["application/json"]["example"]["id"],
        2
    );
    let status = &paths["/status"]["post"];
    assert!(
        status["responses"]["202"]["content"].is_object() && status["responses"]["2XX"].is_null()
    );
    assert_eq!(status["security"], json!([]));
}

#[test]
fn the_page_needs_no_other_resources() {
    let client = TestClient::new(App::new().openapi(api()));
    let page = client.get("/openapi").send().text();
    for part in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
}

#[derive(Deserialize, JsonSchema, garde::Validate)]
#[schemars(crate = "apus::openapi::schemars")]
struct NewUser {
    #[garde(length(min = 3, max = 20))]
    name: String,
}

#[post("/openapi/valid")]
async fn create_valid(Valid(Json(user)): Valid<Json<NewUser>>) -> String {
    user.name
}

#[test]
fn rules_of_fields_and_the_response_to_invalid_ones_are_described() {
    let api = OpenApi::new("Users", "1").describe(routes![create_valid]);
    let api = api.to_value();
    let operation = &api["paths"]["/openapi/valid"]["post"];
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body["$ref"], "#/components/schemas/NewUser");
    let name = &api["components"]["schemas"]["NewUser"]["properties"]["name"];
    assert_eq!(
        (&name["minLength"], &name["maxLength"]),
        (&json!(3), &json!(20))
    );
    let problem = &operation["responses"]["422"]["content"]["application/problem+json"];
    assert_eq!(problem["schema"]["properties"]["errors"]["type"], "object");
}

/// The list.
#[get("/pages")]
async fn paged(_: Paging<10, 50>) -> apus::Result<(PageLinks, Json<Vec<User>>)> {
    Err(apus::Error::not_found("none"))
}

#[get("/page")]
async fn page() -> apus::Html<&'static str> {
    apus::Html("a page")
}

#[test]
fn pages_of_lists_and_their_links_are_described() {
    let api = OpenApi::new("Users", "1")
        .describe(routes![paged])
        .to_value();
    let list = &api["paths"]["/pages"]["get"];
    let parameters = list["parameters"].as_array().unwrap();
    let names: Vec<_> = parameters.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["page", "per_page", "after"]);
    assert_eq!(parameters[1]["schema"]["maximum"], 50);
    assert_eq!(parameters[1]["schema"]["default"], 10);
    assert!(parameters.iter().all(|one| one["required"] == false));
    let found = &list["responses"]["200"];
    assert_eq!(found["headers"]["Link"]["schema"]["type"], "string");
    let schema = &found["content"]["application/json"]["schema"];
    assert_eq!(schema["items"]["$ref"], "#/components/schemas/User");
    assert!(list["responses"]["400"].is_object() && list["responses"]["default"].is_object());
}

#[test]
fn an_api_with_tokens_is_described_without_the_pages_of_its_application() {
    let app = App::new()
        .register(routes![page])
        .get("/apiary", async || "a page, too")
        .group("/api", |api| {
            api.register(routes![paged]).get("/", async || "")
        })
        .openapi(
            OpenApi::new("Users", "1")
                .only_below("/api")
                .bearer_auth("token"),
        );
    let api: Value = TestClient::new(app).get("/openapi.json").send().json();
    let paths: Vec<_> = api["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/api", "/api/pages"], "{api}");
    let scheme = &api["components"]["securitySchemes"]["token"];
    assert_eq!(*scheme, json!({ "type": "http", "scheme": "bearer" }));
    assert_eq!(api["security"], json!([{ "token": [] }]));
    // Without it, the pages are described as such.
    let app = App::new()
        .register(routes![page])
        .openapi(OpenApi::new("Users", "1"));
    let api: Value = TestClient::new(app).get("/openapi.json").send().json();
    let page = &api["paths"]["/page"]["get"]["responses"]["200"]["content"];
    assert!(page["text/html"].is_object(), "{api}");
}
