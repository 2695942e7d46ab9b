//! Responds with a greeting: `cargo run -p apus-example-hello`, then open <http://127.0.0.1:8080/>.

#![forbid(unsafe_code)]

use apus::assets::Assets;
use apus::template::{Page, Renderer, Templates, context};
use apus::{App, Path, StartError, get, routes};

#[get("/", name = "home")]
async fn home(renderer: Renderer) -> Page {
    renderer.page("home.html", context! { name => "world" })
}

#[get("/hello/{name}", name = "hello")]
async fn hello(renderer: Renderer, Path(name): Path<String>) -> Page {
    renderer.page("home.html", context! { name })
}

#[get("/plain/{name}")]
async fn plain(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}

fn app() -> Result<App, StartError> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let assets = Assets::folder(format!("{folder}/assets")).load()?;
    let templates = Templates::folder(format!("{folder}/templates"))
        .assets(&assets)
        .load()?;
    Ok(App::new()
        .state(templates)
        .mount("/assets", assets)
        .register(routes![home, hello, plain]))
}

fn main() -> Result<(), StartError> {
    app()?.serve("127.0.0.1:8080")
}

#[cfg(test)]
mod tests {
    use apus::testing::{TestClient, TestServer};

    use super::app;

    #[test]
    fn people_are_greeted_by_name() {
        let client = TestClient::new(app().unwrap());
        client
            .get("/")
            .send()
            .assert_ok()
            .assert_contains("Hello, world!");
        client
            .get("/hello/<you>")
            .send()
            .assert_ok()
            .assert_header("content-type", "text/html; charset=utf-8")
            .assert_contains("Hello, &lt;you&gt;!");
        client.get("/nowhere").send().assert_status(404);
    }

    #[test]
    fn programs_are_greeted_over_a_socket() {
        let server = TestServer::start(app().unwrap());
        let client = server.client();
        client
            .get("/plain/you")
            .send()
            .assert_ok()
            .assert_text("Hello, you!\n");
    }

    #[test]
    fn the_page_names_a_style_sheet_that_is_there() {
        let client = TestClient::new(app().unwrap());
        let page = client.get("/").send().text();
        let (_, rest) = page.split_once("href=\"").unwrap();
        let (address, _) = rest.split_once('"').unwrap();
        client
            .get(address)
            .send()
            .assert_ok()
            .assert_header("content-type", "text/css; charset=utf-8");
    }
}
