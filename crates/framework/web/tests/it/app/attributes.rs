//! Routes of attributes, and the compile errors of invalid ones.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use apus::attributes::{self, DeclaredRoute, RouteFunction};
use apus::testing::TestClient;
use apus::{
    App, IntoResponse, Json, Method, Path, Query, Request, Response, State, StatusCode, Urls,
    WebSocket, delete, embedded, get, patch, post, put, route, routes, ws,
};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Page {
    page: u32,
}

#[get("/macros/users")]
async fn list(Query(page): Query<Page>, State(prefix): State<&'static str>) -> String {
    format!("{prefix} {}", page.page)
}

#[post("/macros/users")]
async fn create(Json(name): Json<String>) -> (StatusCode, String) {
    (StatusCode::CREATED, name)
}

#[put("/macros/users/{id}", name = "macros-user")]
fn replace(Path(id): Path<u32>) -> String {
    format!("replaced {id}")
}

#[patch("/macros/users/{id}")]
async fn change(Path(id): Path<u32>, request: Request) -> Response {
    format!("{} {id}", request.method()).into_response()
}

#[delete("/macros/users/{id}")]
async fn remove(Path(_): Path<u32>) {}

#[route("/macros/both", methods = [GET, POST])]
async fn both(method: Method) -> apus::Result<String> {
    Ok(method.to_string())
}

#[ws("/macros/chat/{name}")]
async fn chat(mut socket: WebSocket, Path(name): Path<String>) {
    while let Some(message) = socket.recv().await {
        let echoed = format!("{name}: {}", message.as_text().unwrap_or("?"));
        if socket.send(echoed).await.is_err() {
            break;
        }
    }
}

mod inner {
    use apus::get;

    /// In a separate module, and private to it but for its route.
    #[get("/macros/inner")]
    pub(super) async fn show() -> impl apus::IntoResponse {
        "inner"
    }
}

#[test]
fn functions_with_attributes_are_routes() {
    let app = App::new().state("page").register(routes![
        list,
        create,
        replace,
        change,
        remove,
        both,
        chat,
        inner::show
    ]);
    let client = TestClient::new(app);
    client
        .get("/macros/users?page=2")
        .send()
        .assert_ok()
        .assert_text("page 2");
    client
        .post("/macros/users")
        .json("Ada")
        .send()
        .assert_status(201)
        .assert_text("Ada");
    let user = "/macros/users/7";
    client.put(user).send().assert_text("replaced 7");
    client.patch(user).send().assert_text("PATCH 7");
    client.delete(user).send().assert_status(204);
    client.get(user).send().assert_status(405);
    client.get("/macros/both").send().assert_text("GET");
    client.post("/macros/both").send().assert_text("POST");
    client.get("/macros/inner").send().assert_text("inner");
    let mut socket = client.get("/macros/chat/ada").websocket();
    socket.send("hello");
    socket.assert_text("ada: hello");
}

#[test]
fn a_function_with_an_attribute_is_still_a_function() {
    assert_eq!(replace(Path(1)), "replaced 1");
    let client = TestClient::new(App::new().get("/elsewhere/{id}", replace));
    client.get("/elsewhere/7").send().assert_text("replaced 7");
}

#[test]
fn collected_routes_have_a_stable_order() {
    let collected: Vec<DeclaredRoute> = attributes::collected()
        .into_iter()
        .filter(|route| {
            route.path().starts_with("/macros/") && route.module().ends_with("attributes")
        })
        .collect();
    let found: Vec<_> = collected
        .iter()
        .map(|route| (route.path(), route.methods(), route.function()))
        .collect();
    assert_eq!(
        found,
        [
            ("/macros/address", &["GET"][..], "address"),
            ("/macros/both", &["GET", "POST"], "both"),
            ("/macros/chat/{name}", &["GET"], "chat"),
            ("/macros/users", &["GET"], "list"),
            ("/macros/users", &["POST"], "create"),
            ("/macros/users/{id}", &["DELETE"], "remove"),
            ("/macros/users/{id}", &["PATCH"], "change"),
            ("/macros/users/{id}", &["PUT"], "replace"),
        ]
    );
    let (file, line) = collected[0].place();
    assert!(file.ends_with("attributes.rs") && line > 1, "{file}:{line}");
    let client = TestClient::new(App::new().state("page").register(collected));
    client.get("/macros/both").send().assert_text("GET");
}

#[test]
fn conflicting_routes_are_reported_with_their_places() {
    mod other {
        #[apus::get("/macros/inner")]
        pub(super) async fn twin() {}
    }
    let app = App::new().register(routes![inner::show, other::twin]);
    let error = app.check().unwrap_err().to_string();
    let places = [
        <inner::show as RouteFunction>::ROUTE.place(),
        <other::twin as RouteFunction>::ROUTE.place(),
    ];
    for (file, line) in places {
        assert!(error.contains(&format!("{file}:{line}:")), "{error}");
    }
}

#[test]
fn routes_can_be_named() {
    #[get("/macros/address")]
    async fn address(urls: Urls) -> apus::Result<String> {
        Ok(urls.path("macros-user", [("id", 7)])?)
    }
    let client = TestClient::new(App::new().register(routes![replace, address]));
    client
        .get("/macros/address")
        .send()
        .assert_text("/macros/users/7");
}

#[test]
fn folders_can_be_embedded() {
    let files = embedded!("tests/it/app/attributes");
    let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
    assert!(names.is_sorted(), "{names:?}");
    let (_, bytes) = files
        .iter()
        .find(|(name, _)| *name == "no_extractor.rs")
        .unwrap();
    assert!(bytes.starts_with(b"//!"));
}

#[test]
fn compile_errors_are_clear_and_at_the_right_place() {
    let compiler = Compiler::find();
    let files = fs::read_dir(UI).unwrap();
    let mut count = 0;
    for file in files.map(|entry| entry.unwrap().path()) {
        let errors = compiler.errors(&file);
        assert!(!errors.is_empty(), "{} compiles", file.display());
        let source = fs::read_to_string(&file).unwrap();
        for (index, line) in source.lines().enumerate() {
            let Some((_, expected)) = line.split_once("//~ ") else {
                continue;
            };
            count += 1;
            let is_there = |error: &&Value| {
                let spans = error["spans"].as_array().unwrap();
                let stands_here = spans
                    .iter()
                    .any(|span| span["is_primary"] == true && span["line_start"] == index + 1);
                stands_here && error["rendered"].as_str().unwrap().contains(expected)
            };
            let rendered: Vec<_> = errors.iter().map(|error| &error["rendered"]).collect();
            assert!(
                errors.iter().any(|error| is_there(&error)),
                "{}:{}: {expected}\n{rendered:#?}",
                file.display(),
                index + 1
            );
        }
        // What is missing in an extractor is told once, and not again for the attribute.
        if file.ends_with("no_derive.rs") {
            let told = source.lines().filter(|line| line.contains("//~ ")).count();
            // Functions that are added by calls have two errors for one argument and response, `Valid` needs two traits, and the
            // closure that calls the function of a WebSocket is no handler.
            let rendered: Vec<_> = errors.iter().map(|error| &error["rendered"]).collect();
            assert!(errors.len() <= told + 4, "{told}\n{rendered:#?}");
        }
    }
    assert!(count >= 40, "{count}");
}

/// Programs that do not compile. A comment `//~` has a part of the error message for its line.
const UI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/app/attributes");

/// The compiler, with `apus` as this program has it.
struct Compiler {
    rustc: PathBuf,
    dependencies: PathBuf,
    library: PathBuf,
    out: TempDir,
}

impl Compiler {
    /// Finds the library among those that were built: the newest with attributes.
    fn find() -> Self {
        let program = env::current_exe().unwrap();
        let dependencies = program.parent().unwrap().to_owned();
        let mut libraries: Vec<_> = fs::read_dir(&dependencies)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap_or("");
                name.starts_with("libapus-") && name.ends_with(".rlib")
            })
            .collect();
        libraries.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
        let mut compiler = Self {
            rustc: PathBuf::from(env::var_os("CARGO").unwrap()).with_file_name("rustc"),
            dependencies,
            library: PathBuf::new(),
            out: TempDir::new().unwrap(),
        };
        let sound = compiler.out.path().join("sound.rs");
        let text = "#[apus::get(\"/\")] async fn root() {} \
                    #[derive(apus::sql::Model)] struct Row { id: i64 } \
                    fn main() { let _ = apus::routes![root]; }";
        fs::write(&sound, text).unwrap();
        while let Some(library) = libraries.pop() {
            compiler.library = library;
            if compiler.errors(&sound).is_empty() {
                return compiler;
            }
        }
        panic!("no library in {}", compiler.dependencies.display());
    }

    fn errors(&self, file: &std::path::Path) -> Vec<Value> {
        let output = Command::new(&self.rustc)
            .args([
                "--edition",
                "2024",
                "--emit",
                "metadata",
                "--error-format",
                "json",
            ])
            .arg("--out-dir")
            .arg(self.out.path())
            .arg("-L")
            .arg(format!("dependency={}", self.dependencies.display()))
            .arg("--extern")
            .arg(format!("apus={}", self.library.display()))
            .arg(file)
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stderr).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|message| {
                message["level"] == "error" && !message["spans"].as_array().unwrap().is_empty()
            })
            .collect()
    }
}
