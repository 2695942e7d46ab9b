//! Requests that reach a script, or must not: to HEAD, of users, with repeated fields, behind names that start with a
//! dot and behind exact locations.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::doors::doors;
use super::server::Server;
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor};
use apus_testkit::scripted::{Action, ScriptedServer};

use crate::clients::{Curl, certificate};
use crate::harness::{Home, free_port, wait_until};
use crate::wire::{Received, Wire};

fn send(server: &Server, method: &str, path: &str, fields: &str) -> Received {
    let mut wire = Wire::connect(server.clear());
    wire.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n"
    ));
    match method {
        "HEAD" => wire.read_head(),
        _ => wire.read(),
    }
}

fn get(server: &Server, path: &str) -> Received {
    send(server, "GET", path, "")
}

/// Sends its head, waits until the file `go` exists, and then ends.
const WAITS: &str = "<?php ignore_user_abort(true);
    if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
    if (isset($_GET['length'])) header('Content-Length: ' . $_GET['length']);
    header('X-Head: sent');
    // PHP sends the head with the first output.
    echo 'x';
    while (ob_get_level()) ob_end_flush();
    flush();
    while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(1000); }
    file_put_contents(__DIR__ . '/ended', $_GET['n'] . \"\\n\", FILE_APPEND);";

#[test]
fn a_response_without_a_body_is_sent_when_its_head_is_there_and_the_script_runs_to_its_end() {
    let folder = "waits";
    let stack = Stack::scripts();
    for (door, server) in doors(folder, &[("index.php", WAITS)], "") {
        let ended = stack.write(&format!("{folder}/ended"), "");
        fs::set_permissions(&ended, Permissions::from_mode(0o666)).unwrap();
        let mut runs = 0;
        for (method, query) in [
            ("HEAD", ""),
            ("HEAD", "&length=5"),
            ("GET", "&status=204"),
            ("GET", "&status=304"),
            ("GET", "&length=0"),
            ("POST", "&status=204"),
        ] {
            runs += 1;
            let _ = fs::remove_file(stack.path(&format!("{folder}/go")));
            let path = format!("/index.php?n={runs}{query}");
            let mut wire = Wire::connect(server.clear());
            wire.send(format!(
                "{method} {path} HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n"
            ));
            let reply = wire.read_head();
            assert_eq!(
                reply.field("x-head"),
                Some("sent"),
                "{door} {method} {query}"
            );
            stack.write(&format!("{folder}/go"), "");
            wait_until("the script has ended", || {
                fs::read_to_string(&ended).unwrap().lines().count() == runs
            });
        }
    }
}

/// `grace` in `sub`, for the key below, until the year 2100.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJncmFjZSIsImV4cCI6NDEwMjQ0NDgwMH0.\
    icG_jeu6yMvdUDVsRo4N_KjwUZw7Iy2Ett8J-gQ_-EI";
const KEY: &str = "0123456789abcdef0123456789abcdef";
/// The password is `pw`.
const USERS: &str = "ada:$6$rounds=1000$saltsalt$nII71HJmawaDYdXrUHYtoWV/pe6ZN/eQzrZXdKjhrcMU0onLRg6A5m38udZu.lA6f53rIQturF4FMx1X99KF/0\n";

#[test]
fn scripts_fields_and_logs_get_the_user_whom_a_layer_or_a_certificate_authenticated() {
    const ECHO: &str =
        "<?php foreach (['REMOTE_USER', 'AUTH_TYPE', 'HTTP_X_USER', 'NAMED'] as $name)
        echo $_SERVER[$name] ?? '-', ' ';";
    let stack = Stack::scripts();
    let users = stack.write("users.htpasswd", USERS);
    let key = stack.write("users.key", KEY);
    let authority = ScriptedServer::start(|_| {
        Action::Respond(b"HTTP/1.1 200 OK\r\nX-Name: hopper\r\nContent-Length: 0\r\n\r\n".into())
    });
    let keys = format!(
        "request_headers.set = {{ X-User = \"$remote_user\" }}\n\
         headers.set = {{ X-Seen = \"$remote_user\" }}\n\
         fastcgi.params = {{ NAMED = \"u:$remote_user\" }}\n\
         access_log = {{ path = \"access.log\", format = \"$remote_user $request_uri\" }}\n\
         [[sites.locations]]\npath = \"/basic/\"\nbasic_auth = {{ users_file = \"{users}\" }}\n\
         [[sites.locations]]\npath = \"/token/\"\njwt = {{ key_file = \"{key}\", algorithm = \"HS256\" }}\n\
         [[sites.locations]]\npath = \"/asked/\"\nforward_auth = {{ to = \"{authority}\", user_header = \"X-Name\" }}\n",
        authority = authority.url("/"),
        users = users.display(),
        key = key.display(),
    );
    let files = [
        ("index.php", ECHO),
        ("basic/index.php", ECHO),
        ("token/index.php", ECHO),
        ("asked/index.php", ECHO),
    ];
    for (door, server) in doors("users", &files, &keys) {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let fields_of_client = "Remote-User: eve\r\nX-Remote-User: eve\r\nAuth-Type: eve\r\n";
        for (path, fields, status, expected, seen) in [
            (
                "/basic/",
                "Authorization: Basic YWRhOnB3\r\n",
                200,
                "ada Basic ada u:ada ",
                Some("ada"),
            ),
            (
                "/token/",
                &*token,
                200,
                "grace Bearer grace u:grace ",
                Some("grace"),
            ),
            (
                "/asked/",
                "X-Name: eve\r\nX_Name: eve\r\nRemote-User: eve\r\n",
                200,
                "hopper FORWARD hopper u:hopper ",
                Some("hopper"),
            ),
            // A name that nobody has checked is none.
            (
                "/",
                "Authorization: Basic YWRhOnB3\r\n",
                200,
                "- - - u: ",
                None,
            ),
            ("/", fields_of_client, 200, "- - - u: ", None),
            (
                "/basic/",
                "Authorization: Basic YWRhOnh4\r\n",
                401,
                "",
                None,
            ),
            // A layer that checks one of two would let the other one through.
            (
                "/basic/",
                "Authorization: Basic YWRhOnB3\r\nAuthorization: Basic YWRhOnh4\r\n",
                400,
                "",
                None,
            ),
        ] {
            let reply = send(&server, "GET", path, fields);
            assert_eq!(reply.status, status, "{door} {path} {fields}");
            if status == 200 {
                assert_eq!(reply.text(), expected, "{door} {path} {fields}");
            }
            assert_eq!(
                reply.field("x-seen").filter(|seen| !seen.is_empty()),
                seen,
                "{door} {path}"
            );
        }
        wait_until("the users are logged", || {
            let log = server.home.read("access.log");
            let lines = ["ada /basic/", "grace /token/", "- /", "- /basic/"];
            lines
                .iter()
                .all(|line| log.lines().any(|logged| logged == *line))
        });
    }
}

#[test]
fn the_subject_of_a_client_certificate_is_the_user_and_its_pages_are_not_shared() {
    const ECHO: &str =
        "<?php echo $_SERVER['REMOTE_USER'] ?? '-', ' ', $_SERVER['AUTH_TYPE'] ?? '-';";
    let stack = Stack::scripts();
    stack.write("certificates/index.php", ECHO);
    let socket = format!("php_fastcgi = \"{}\"", stack.socket().display());
    let resident = "php_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
        fastcgi.workers = { mode = \"classic\", max = 2 }\nfastcgi.front_controller = \"/index.php\"";
    for php in [&*socket, resident] {
        let (home, port) = (Home::new(), free_port());
        certificate(&home, "site", "app.test");
        certificate(&home, "client", "client.test");
        home.write(
            "apus.toml",
            format!(
                "[[sites]]\nserver_name = \"app.test\"\nlisten_tls = \"127.0.0.1:{port}\"\nroot = \"{root}\"\n\
                 tls = {{ cert = \"site.pem\", key = \"site.key\", client_auth = \"optional\", \
                 client_ca = \"client.pem\" }}\n\
                 access_log = {{ path = \"access.log\", format = \"$remote_user $request_uri\" }}\n\
                 {php}\nfastcgi.cache = {{ ttl = 600 }}\n",
                root = stack.path("certificates").display(),
            ),
        );
        let _apus = home.serve(&[]);
        let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
        let (cert, key) = (path("client.pem"), path("client.key"));
        let page = |identity: &[&str]| {
            let to = format!("app.test:443:127.0.0.1:{port}");
            let curl = Curl::new().args(&["--noproxy", "*", "--insecure", "--connect-to", &to]);
            curl.args(identity).get("https://app.test/").text()
        };
        for _ in 0..2 {
            let known = page(&["--cert", &cert, "--key", &key]);
            assert_eq!(known, "CN=client.test CLIENT_CERT", "{php}");
            assert_eq!(page(&[]), "- -", "{php}");
        }
        wait_until("the user is logged", || {
            let log = home.read("access.log");
            let has = |line: &str| log.lines().any(|logged| logged == line);
            has("CN=client.test /") && has("- /")
        });
    }
}

#[test]
fn a_field_with_one_value_never_reaches_a_script_twice_and_no_script_gets_trace() {
    const ECHO: &str = "<?php echo $_SERVER['HTTP_AUTHORIZATION'] ?? '-', '|', $_SERVER['HTTP_USER_AGENT'] ?? '-', '|',
        $_SERVER['HTTP_ACCEPT'] ?? '-';";
    for (door, server) in doors("repeated", &[("index.php", ECHO)], "") {
        for (fields, status, body) in [
            ("Authorization: Basic eDp5\r\n", 200, "Basic eDp5|-|-"),
            (
                "Authorization: Basic eDp5\r\nAuthorization: Basic eDp5\r\n",
                400,
                "",
            ),
            (
                "Authorization: Basic eDp5\r\nX: 1\r\nAuthorization: Bearer x\r\n",
                400,
                "",
            ),
            ("Content-Type: a/b\r\nContent-Type: c/d\r\n", 400, ""),
            ("If-Modified-Since: x\r\nIf-Modified-Since: y\r\n", 400, ""),
            ("If-Range: x\r\nIf-Range: y\r\n", 400, ""),
            ("Origin: http://a\r\nOrigin: http://b\r\n", 400, ""),
            // The last one, as behind nginx; and a list.
            ("User-Agent: a\r\nUser-Agent: b\r\n", 200, "-|b|-"),
            ("Accept: a/b\r\nAccept: c/d\r\n", 200, "-|-|a/b, c/d"),
        ] {
            let reply = send(&server, "GET", "/index.php", fields);
            assert_eq!(reply.status, status, "{door} {fields}");
            if status == 200 {
                assert_eq!(reply.text(), body, "{door} {fields}");
            }
        }
        for protocol in [ClientProtocol::Http2, ClientProtocol::Tls] {
            let twice = [
                "--header",
                "Authorization: Basic eDp5",
                "--header",
                "Authorization: Bearer x",
            ];
            let reply = Visitor::new(protocol).request(&server, "/index.php", &twice);
            assert_eq!(reply.status, 400, "{door} {protocol:?}");
        }
        for path in ["/index.php", "/", "/virtual"] {
            let reply = send(&server, "TRACE", path, "Cookie: secret=1\r\n");
            assert_eq!(reply.status, 405, "{door} {path}");
            assert!(
                reply.field("allow").is_some() && !reply.text().contains("secret"),
                "{door}"
            );
        }
    }
}

#[test]
fn names_with_a_dot_behind_a_script_and_in_virtual_urls_are_not_files() {
    const ECHO: &str = "<?php echo basename(__FILE__), ' ', $_SERVER['PATH_INFO'] ?? '', ' ', $_SERVER['REQUEST_URI'];";
    let files = [
        ("index.php", ECHO),
        ("remote.php", ECHO),
        (".env", "SECRET"),
        (".git/config", "SECRET"),
        (".git/hook.php", "<?php echo 'SECRET';"),
        ("open/.hidden/x.txt", "SECRET"),
    ];
    for (door, server) in doors("dots", &files, "") {
        for (path, expected) in [
            (
                "/remote.php/dav/uploads/u/1/.file",
                "remote.php /dav/uploads/u/1/.file",
            ),
            ("/remote.php/.a/.b.php/c", "remote.php /.a/.b.php/c"),
            ("/index.php/.env", "index.php /.env"),
            ("/files/.file", "index.php "),
            ("/.file", "index.php "),
            ("/.git2/config", "index.php "),
            ("/a/.b/c.php", "index.php "),
        ] {
            for method in ["GET", "PUT", "PROPFIND"] {
                let reply = send(&server, method, path, "Content-Length: 0\r\n");
                let expected = format!("{expected} {path}");
                assert_eq!(
                    (reply.status, reply.text()),
                    (200, expected),
                    "{door} {method}"
                );
            }
        }
        for path in [
            "/.env",
            "/%2eenv",
            "/.env/x",
            "/.git/config",
            "/.git/",
            "/.git/none",
            "/.git/hook.php",
            "/.git/hook.php/x",
            "/open/.hidden/x.txt",
            "/open/.hidden/",
        ] {
            let reply = get(&server, path);
            assert_eq!(reply.status, 404, "{door} {path}");
            assert!(!reply.text().contains("SECRET"), "{door} {path}");
        }
    }
}

#[test]
fn an_exact_location_of_a_script_holds_for_all_paths_that_run_it() {
    const ECHO: &str = "<?php echo basename(__FILE__), ' ', $_SERVER['PATH_INFO'] ?? '';";
    let stack = Stack::scripts();
    let users = stack.write("exact.htpasswd", USERS);
    let auth = format!("basic_auth = {{ users_file = \"{}\" }}\n", users.display());
    let keys = format!(
        "[[sites.locations]]\npath = \"= /wp-login.php\"\n{auth}\
         [[sites.locations]]\npath = \"= /admin/index.php\"\n{auth}\
         [[sites.locations]]\npath = \"= /moved.php\"\nreturn = {{ status = 301, location = \"/\" }}\n\
         [[sites.locations]]\npath = \"~ [^/]\\\\.php(/|$)\"\n"
    );
    let files = [
        ("index.php", ECHO),
        ("wp-login.php", ECHO),
        ("moved.php", ECHO),
        ("admin/index.php", ECHO),
    ];
    for (door, server) in doors("exact", &files, &keys) {
        for (path, status) in [
            ("/wp-login.php", 401),
            ("/wp-login.php/", 401),
            ("/wp-login.php/x", 401),
            ("/wp-login.php/x.php", 401),
            ("/wp-login.php//x", 401),
            ("/x/../wp-login.php/x", 401),
            ("/wp-login%2ephp/x", 401),
            ("/admin/index.php", 401),
            ("/admin/index.php/x", 401),
            ("/admin/", 401),
            ("/moved.php", 301),
            ("/moved.php/x", 200),
            ("/wp-login.phpx", 200),
            ("/", 200),
        ] {
            let reply = get(&server, path);
            assert_eq!(reply.status, status, "{door} {path} {}", reply.text());
            assert!(
                status == 200 || !reply.text().contains(".php "),
                "{door} {path}"
            );
        }
        let login = "Authorization: Basic YWRhOnB3\r\n";
        let reply = send(&server, "GET", "/wp-login.php/x", login);
        assert_eq!(reply.text(), "wp-login.php /x", "{door}");
    }
}
