//! Presets under attack: uploaded files never run, private files and source code are not sent, and a request
//! cannot forge its parameters. ATTACKS.md of the project has this class as "paths and programs".

use super::server::{Server, Site};
use super::stack::Stack;
use crate::wire::{Received, Wire};

/// A program that prints a text that its source does not contain.
const EVIL: &str = "<?php /* secret source */ echo 'it ', 'ran: ', $_SERVER['SCRIPT_NAME'] ?? '';";
const RAN: &str = "it ran: ";

/// Prints its parameters, one per line.
const ECHO_PARAMS: &str = "<?php header('Content-Type: text/plain');
    foreach ($_SERVER as $name => $value) { if (is_string($value)) echo \"$name=$value\\n\"; }";

/// A site of an application that has only these files.
fn serve(name: &str, apus: &str, files: &[(&str, &str)]) -> Server {
    let stack = Stack::scripts();
    for (file, content) in files {
        stack.write(&format!("{name}/{file}"), content);
    }
    Server::apus(&Site {
        host: "app.test",
        root: &stack.path(name),
        socket: &stack.socket(),
        apus,
        nginx: "location / { try_files $uri $uri/ /index.php?$args; }",
    })
}

/// Sends hostile requests over one connection as long as it stays open.
struct RawClient<'a> {
    server: &'a Server,
    wire: Wire,
}

impl<'a> RawClient<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            server,
            wire: Wire::connect(server.clear()),
        }
    }

    fn request(&mut self, line: &str, fields: &[&str]) -> Received {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let request = format!("{line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n");
        self.wire.send(request);
        let reply = self.wire.read();
        if reply.field("connection") == Some("close") {
            self.wire = Wire::connect(self.server.clear());
        }
        reply
    }

    fn get(&mut self, path: &str) -> Received {
        self.request(&format!("GET {path}"), &[])
    }
}

fn get(server: &Server, path: &str) -> Received {
    RawClient::new(server).get(path)
}

/// Spellings of a path, and paths that a server might confuse with it.
fn spellings(path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let mut all = vec![path.to_owned()];
    for end in [
        "/",
        "//",
        "/.",
        "/x",
        "/x.php",
        "/x.jpg",
        "/.php",
        "/index.php",
        "?x=/index.php",
        "%20",
        "%00",
        "%00.jpg",
        "%00.php",
        "%0a",
        ".",
        "..",
        "%2f",
        "%2fx.php",
        "/..%2f",
        "%5c",
        "\\",
        ";.php",
        ";x",
        "::$DATA",
        "~",
        "#x",
    ] {
        all.push(format!("{path}{end}"));
    }
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    all.extend([
        format!("{folder}/{encoded}"),
        format!("{folder}//{name}"),
        format!("{folder}/./{name}"),
        format!("{folder}/x/../{name}"),
        format!("{folder}/x/%2e%2e/{name}"),
        format!("{folder}%2f{name}"),
        format!("{folder}%252f{name}"),
        format!("/index.php/..{path}"),
        format!("/index.php/%2e%2e{path}"),
        format!("/index.php/x/..%2f..{path}"),
        format!("/{path}"),
        format!("/.{path}"),
        format!("/x/..{path}"),
        format!("/x{path}"),
        format!("/x/y{path}"),
        path.to_uppercase(),
        format!("{folder}/{}", name.to_uppercase()),
        path.replace(".php", ".pHp"),
        format!("http://app.test{path}"),
    ]);
    all.extend(
        path.match_indices('/')
            .skip(1)
            .map(|(slash, _)| format!("{}%2F{}", &path[..slash], &path[slash + 1..])),
    );
    all
}

fn assert_harmless(reply: &Received, how: &str) {
    let text = reply.text();
    assert!(!text.contains(RAN), "{how} ran: {text}");
    assert!(
        !text.contains("secret source") && !text.contains("<?php"),
        "{how} leaks: {text}"
    );
}

#[test]
fn uploaded_files_never_run() {
    for (preset, uploads) in [
        ("wordpress", "wp-content/uploads/2026"),
        ("typecho", "usr/uploads/2026"),
        ("laravel", "storage/app"),
    ] {
        let names = [
            "evil.php",
            "evil.jpg",
            "evil.php.jpg",
            "evil.phtml",
            "evil.php5",
            "evil.phar",
            "index.php",
        ];
        let files: Vec<_> = names
            .iter()
            .map(|name| format!("{uploads}/{name}"))
            .collect();
        let mut files: Vec<_> = files.iter().map(|file| (file.as_str(), EVIL)).collect();
        files.push(("index.php", "<?php echo 'front';"));
        let server = serve(preset, &format!("preset = \"{preset}\""), &files);
        assert_eq!(get(&server, "/some/page").text(), "front", "{preset}");
        let mut client = RawClient::new(&server);
        for name in ["evil.php", "index.php"] {
            for path in spellings(&format!("/{uploads}/{name}")) {
                assert_harmless(&client.get(&path), &format!("{preset} {path}"));
            }
        }
        assert_harmless(&get(&server, &format!("/{uploads}/")), uploads);
        // A file that only looks like a program is sent or refused; it never runs.
        for name in &names[1..6] {
            for end in [
                "",
                "/x.php",
                "/.php",
                "%00.php",
                "/index.php",
                "%20.php",
                "%0a.php",
            ] {
                let path = format!("/{uploads}/{name}{end}");
                let text = client.get(&path).text();
                assert!(!text.contains(RAN), "{preset} {path}: {text}");
            }
        }
    }
}

#[test]
fn no_source_code_is_sent() {
    let files = [
        ("index.php", EVIL),
        ("admin/index.php", EVIL),
        ("lib/part.php", EVIL),
        ("lib/part.inc", EVIL),
        ("index.php.bak", EVIL),
        ("index.php~", EVIL),
        ("index.php.swp", EVIL),
        (".index.php.swp", EVIL),
        ("index.php.old", EVIL),
        ("index.php_", EVIL),
    ];
    for preset in [
        "",
        "preset = \"wordpress\"",
        "preset = \"typecho\"",
        "preset = \"laravel\"",
    ] {
        let server = serve("sources", preset, &files);
        assert!(
            get(&server, "/lib/part.php").text().contains(RAN),
            "{preset}"
        );
        let mut client = RawClient::new(&server);
        // Only a preset forbids to send copies of programs.
        let is_tried = |file: &str| !preset.is_empty() || file.ends_with(".php");
        for (file, _) in files.into_iter().filter(|(file, _)| is_tried(file)) {
            for path in spellings(&format!("/{file}")) {
                for (method, fields) in [
                    ("GET", &[][..]),
                    ("GET", &["Range: bytes=0-30"]),
                    ("GET", &["Translate: f"]),
                    ("PROPFIND", &[]),
                ] {
                    let text = client.request(&format!("{method} {path}"), fields).text();
                    let leaks = text.contains("secret source") || text.contains("<?php");
                    assert!(!leaks, "{preset} {method} {path} {fields:?}: {text}");
                }
            }
        }
    }
}

#[test]
fn private_files_of_an_application_are_not_served() {
    let private = [
        (
            "wordpress",
            &[
                "wp-config.php",
                "wp-config.php.bak",
                "wp-config.php~",
                "wp-config.php.save",
                "wp-config-sample.php",
                ".htaccess",
                ".env",
                ".git/config",
                "dump.sql",
                "backup.sql.gz",
                "wp-content/debug.log",
                "readme.html",
            ][..],
        ),
        (
            "typecho",
            &[
                "config.inc.php",
                "config.inc.php.bak",
                ".env",
                ".git/config",
                "dump.sql",
                "var/Typecho/Db.php",
            ],
        ),
        (
            "laravel",
            &[
                ".env",
                ".env.production",
                ".git/config",
                "composer.json",
                "composer.lock",
                "artisan",
                "dump.sql",
            ],
        ),
    ];
    for (preset, names) in private {
        let name = format!("private-{preset}");
        let mut files: Vec<_> = names.iter().map(|name| (*name, EVIL)).collect();
        files.push((
            "index.php",
            "<?php http_response_code(404); echo 'front: none';",
        ));
        let server = serve(&name, &format!("preset = \"{preset}\""), &files);
        let mut client = RawClient::new(&server);
        for name in names {
            for path in spellings(&format!("/{name}")) {
                assert_harmless(&client.get(&path), &format!("{preset} {path}"));
            }
            let status = client.get(&format!("/{name}")).status;
            assert!(matches!(status, 403 | 404), "{preset} /{name}: {status}");
        }
    }
}

#[test]
fn a_request_cannot_forge_its_cgi_parameters() {
    let server = serve(
        "tell",
        "",
        &[
            ("tell.php", ECHO_PARAMS),
            ("folder/tell.php", ECHO_PARAMS),
            ("folder.php/tell.php", ECHO_PARAMS),
        ],
    );
    let echo = |path: &str, headers: &[&str]| {
        let reply = RawClient::new(&server).request(&format!("GET {path}"), headers);
        assert_eq!(reply.status, 200, "{path}");
        reply.text()
    };
    let param = |text: &str, name: &str| {
        let start = format!("{name}=");
        text.lines()
            .find_map(|line| line.strip_prefix(&start))
            .map(str::to_owned)
    };
    // httpoxy: CVE-2016-5385 and related ones.
    let text = echo("/tell.php", &["Proxy: http://evil.test:3128"]);
    assert!(!text.contains("evil.test"), "{text}");
    // Field names that map to the variable of another field are dropped.
    let text = echo(
        "/tell.php",
        &[
            "X_Forwarded_For: 6.6.6.6",
            "X.Real.IP: 6.6.6.6",
            "Content_Type: evil",
            "Https: on",
        ],
    );
    assert!(
        !text.contains("6.6.6.6") && !text.contains("evil"),
        "{text}"
    );
    assert!(
        param(&text, "HTTPS").is_none_or(|value| value.is_empty() || value == "off"),
        "{text}"
    );
    // This client is not a trusted proxy.
    let text = echo(
        "/tell.php",
        &[
            "X-Forwarded-For: 6.6.6.6",
            "X-Forwarded-Proto: https",
            "Forwarded: for=6.6.6.6;proto=https",
        ],
    );
    assert_eq!(
        param(&text, "REMOTE_ADDR").as_deref(),
        Some("127.0.0.1"),
        "{text}"
    );
    assert!(
        param(&text, "HTTPS").is_none_or(|value| value.is_empty() || value == "off"),
        "{text}"
    );
    assert_eq!(
        param(&text, "REQUEST_SCHEME").as_deref(),
        Some("http"),
        "{text}"
    );
    // A client cannot set the program or the document root.
    let text = echo(
        "/tell.php",
        &[
            "Script-Filename: /etc/passwd",
            "Document-Root: /",
            "PHP-Value: auto_prepend_file=/etc/passwd",
        ],
    );
    assert!(!text.contains("root:"), "{text}");
    assert!(
        param(&text, "SCRIPT_FILENAME")
            .unwrap()
            .ends_with("/tell/tell.php"),
        "{text}"
    );
    assert_eq!(param(&text, "PHP_VALUE"), None, "{text}");
    // The path after the program is decoded once in PATH_INFO and does not change SCRIPT_NAME.
    for (path, info) in [
        ("/tell.php/a/b", "/a/b"),
        ("/tell.php/a%20b", "/a b"),
        ("/tell.php/x.php/y", "/x.php/y"),
    ] {
        let text = echo(path, &[]);
        assert!(
            text.contains(&format!("\nPATH_INFO={info}\n")),
            "{path}: {text}"
        );
        assert_eq!(
            param(&text, "SCRIPT_NAME").as_deref(),
            Some("/tell.php"),
            "{path}: {text}"
        );
    }
    let text = echo("/folder.php/tell.php/z", &[]);
    assert_eq!(
        param(&text, "SCRIPT_NAME").as_deref(),
        Some("/folder.php/tell.php"),
        "{text}"
    );
    assert_eq!(param(&text, "PATH_INFO").as_deref(), Some("/z"), "{text}");
    assert_eq!(get(&server, "/nowhere.php").status, 404);
    assert_eq!(get(&server, "/nowhere.php/tell.php").status, 404);
    assert_eq!(get(&server, "/tell.php%2fx").status, 400);
}
