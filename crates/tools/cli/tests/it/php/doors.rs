//! The ways in which a script runs: over FastCGI in PHP-FPM, and in a resident worker.

use super::server::{Server, Site};
use super::stack::Stack;

/// A server for each way, in front of the scripts of a folder; `keys` are lines of the site.
pub(crate) fn doors(
    folder: &str,
    files: &[(&str, &str)],
    keys: &str,
) -> [(&'static str, Server); 2] {
    let stack = Stack::scripts();
    for (name, text) in files {
        stack.write(&format!("{folder}/{name}"), text);
    }
    let root = stack.path(folder);
    let resident = format!(
        "fastcgi.front_controller = \"/index.php\"\n\
         fastcgi.workers = {{ mode = \"classic\", max = 2 }}\n{keys}"
    );
    let with_front = format!("fastcgi.front_controller = \"/index.php\"\n{keys}");
    [
        ("FastCGI", stack.socket(), with_front),
        ("resident", "/usr/bin/php-cgi8.2".into(), resident),
    ]
    .map(|(door, socket, keys)| {
        let site = Site {
            host: "app.test",
            root: &root,
            socket: &socket,
            apus: &keys,
            nginx: "",
        };
        (door, Server::apus(&site))
    })
}
