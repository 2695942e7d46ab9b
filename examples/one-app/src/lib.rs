//! Files, PHP, an application behind a proxy and handlers, from one `App` on one port.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use apus::layers::{Logged, RequestIds};
use apus::php::{Php, PhpSettings};
use apus::proxy::{Proxy, ProxySettings, RedirectRule};
use apus::upstream::plan::{GroupPlan, NodePlan, Place};
use apus::upstream::{Address, Protocol, Upstreams};
use apus::{App, Files, Json, Path};
use serde_json::{Value, json};

/// What the application is made of besides its handlers.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The folder of files and of PHP programs.
    pub site: PathBuf,
    /// The application behind the proxy.
    pub origin: SocketAddr,
    /// The socket of PHP-FPM or `php-cgi`; without it no program is run.
    pub php: Option<PathBuf>,
}

/// The application.
pub fn app(parts: &Parts) -> App {
    let upstreams = Upstreams::new();
    let origin = NodePlan::new("old", Place::Address(Address::Ip(parts.origin)));
    let mut groups = vec![GroupPlan::new("old", vec![origin])];

    let mut files = Files::new(&parts.site).index(["index.html", "index.php"]);
    if let Some(socket) = &parts.php {
        let address = Address::Unix(socket.as_path().into());
        let node = NodePlan::new("php", Place::Address(address));
        groups.push(GroupPlan {
            protocol: Protocol::FastCgi,
            ..GroupPlan::new("php", vec![node])
        });
        let programs = PhpSettings::new(&parts.site);
        files = files.programs(Arc::new(Php::new(&upstreams, "php", programs)));
    }
    upstreams.apply(groups);

    App::new()
        .layer(RequestIds::new())
        .layer(Logged::new())
        .get("/hello/{name}", hello)
        // A route that moved in from the old application already.
        .get("/old/status", async || Json(json!({ "moved": true })))
        .mount("/old", Proxy::new(&upstreams, "old", behind("/old/")))
        .mount("/", files)
}

async fn hello(Path(name): Path<String>) -> Json<Value> {
    Json(json!({ "hello": name }))
}

/// An application that knows nothing of the path that it is mounted at: where it sends clients to a path
/// of its own, they are sent below that one.
fn behind(path: &str) -> ProxySettings {
    ProxySettings {
        redirects: vec![RedirectRule {
            from: "/".into(),
            to: path.into(),
        }],
        ..ProxySettings::default()
    }
}
