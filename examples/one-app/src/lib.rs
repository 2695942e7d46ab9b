//! Files, PHP, an application behind a proxy and handlers, from one `App` on one port.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use apus::layers::{Logged, RequestIds};
use apus::php::Php;
use apus::proxy::{InvalidOrigin, Proxy, RedirectRule};
use apus::{App, Files, Json, Path};
use serde_json::{Value, json};

/// The services of the application besides its handlers.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The folder of files and of PHP programs.
    pub site: PathBuf,
    /// The application behind the proxy, as `http://127.0.0.1:9000`.
    pub origin: String,
    /// The socket of PHP-FPM or `php-cgi`; without it PHP is disabled.
    pub php: Option<PathBuf>,
}

/// The application.
///
/// # Errors
/// The address of the application behind the proxy is not valid.
pub fn app(parts: &Parts) -> Result<App, InvalidOrigin> {
    let mut files = Files::new(&parts.site).index(["index.html", "index.php"]);
    if let Some(socket) = &parts.php {
        files = files.programs(Arc::new(Php::fpm(socket, &parts.site)));
    }
    Ok(App::new()
        .layer(RequestIds::new())
        .layer(Logged::new())
        .get("/hello/{name}", hello)
        // A route that already moved from the old application.
        .get("/old/status", async || Json(json!({ "moved": true })))
        .mount("/old", old(&parts.origin)?)
        .mount("/", files))
}

/// The old application. It does not know the path that it is mounted at: redirects to its own paths are
/// rewritten to paths below that one.
fn old(origin: &str) -> Result<Proxy, InvalidOrigin> {
    let behind = RedirectRule {
        from: "/".into(),
        to: "/old/".into(),
    };
    Ok(Proxy::to(origin)?.configure(|settings| settings.redirects = vec![behind]))
}

async fn hello(Path(name): Path<String>) -> Json<Value> {
    Json(json!({ "hello": name }))
}
