//! The choice of the program and the handling of its response: the order of files, programs and the front
//! controller, internal redirects, error pages, the log, and a full pool.

use super::stack::Stack;
use crate::harness::{Apus, Home, wait_until};
use crate::wire::{Received, Wire};

/// Prints the name of the program and its request.
const ECHO_REQUEST: &str =
    "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '', ' ',
    $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'];";

fn serve(name: &str, site: &str, files: &[(&str, &str)]) -> (Home, Apus) {
    let stack = Stack::scripts();
    for (file, content) in files {
        stack.write(&format!("{name}/{file}"), content);
    }
    let home = Home::new();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"run.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n\
             php_fastcgi = \"{}\"\n{site}\n",
            stack.path(name).display(),
            stack.socket().display()
        ),
    );
    let apus = home.serve(&[]);
    (home, apus)
}

fn send_request(apus: &Apus, line: &str) -> Received {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!("{line} HTTP/1.1\r\nHost: run.test\r\n\r\n"));
    wire.read()
}

fn get(apus: &Apus, path: &str) -> Received {
    send_request(apus, &format!("GET {path}"))
}

#[test]
fn files_take_precedence_over_programs_and_programs_over_the_front_controller() {
    let (_home, apus) = serve(
        "order",
        "fastcgi.front_controller = \"/index.php\"",
        &[
            ("index.php", ECHO_REQUEST),
            ("index.html", "html"),
            ("admin/index.php", ECHO_REQUEST),
            ("plain/index.html", "html"),
            ("lib.php/style.css", "css"),
            ("image.jpg", "<?php echo 'ran';"),
        ],
    );
    for (path, expected) in [
        ("/", "/index.php  / "),
        ("/?a=b", "/index.php  /?a=b a=b"),
        ("/index.html", "html"),
        ("/admin/", "/admin/index.php  /admin/ "),
        (
            "/admin/index.php/x/y",
            "/admin/index.php /x/y /admin/index.php/x/y ",
        ),
        ("/plain/", "html"),
        ("/lib.php/style.css", "css"),
        ("/pretty/%75rl?a=b", "/index.php  /pretty/%75rl?a=b a=b"),
        ("/none.php", "/index.php  /none.php "),
        ("/image.jpg/x.php", "/index.php  /image.jpg/x.php "),
        ("/image.jpg", "<?php echo 'ran';"),
    ] {
        let reply = get(&apus, path);
        assert_eq!((reply.status, &*reply.text()), (200, expected), "{path}");
    }
    assert_eq!(get(&apus, "/admin").status, 301);
    let posted = send_request(&apus, "POST /pretty");
    assert_eq!(posted.text(), "/index.php  /pretty ");
    for refused in ["/a%2fb", "/a%00.php", "/../index.php", "/index.php%00.jpg"] {
        assert_eq!(get(&apus, refused).status, 400, "{refused}");
    }
}

#[test]
fn rewrites_and_try_files_choose_the_program_and_request_uri_is_that_of_the_client() {
    let (_home, apus) = serve(
        "lists",
        "try_files = [\"$uri\", \"$uri/\", \"/app.php?way=list&$args\"]\n\
         [[sites.locations]]\npath = \"/old/\"\n\
         rewrite = [{ from = \"^/old/(.*)\", to = \"/app.php/$1\", then = \"last\" }]\n",
        &[
            ("app.php", ECHO_REQUEST),
            ("in/index.php", ECHO_REQUEST),
            ("a.txt", "text"),
        ],
    );
    for (path, expected) in [
        ("/x?y=z", "/app.php  /x?y=z way=list&y=z"),
        ("/a.txt", "text"),
        ("/in/", "/in/index.php  /in/ "),
        ("/app.php/x", "/app.php /x /app.php/x "),
        ("/old/page?b=c", "/app.php /page /old/page?b=c b=c"),
    ] {
        let reply = get(&apus, path);
        assert_eq!((reply.status, &*reply.text()), (200, expected), "{path}");
    }
}

#[test]
fn a_network_of_sites_shares_the_files_of_wordpress() {
    let (_home, apus) = serve(
        "network",
        "preset = \"wordpress\"",
        &[
            ("index.php", ECHO_REQUEST),
            ("wp-login.php", ECHO_REQUEST),
            ("wp-admin/index.php", ECHO_REQUEST),
            ("wp-content/themes/a/style.css", "css"),
        ],
    );
    for (path, expected) in [
        ("/blog/hello/", "/index.php  /blog/hello/ "),
        ("/blog/wp-login.php", "/wp-login.php  /blog/wp-login.php "),
        ("/blog/wp-admin/", "/wp-admin/index.php  /blog/wp-admin/ "),
        ("/blog/wp-content/themes/a/style.css", "css"),
    ] {
        let reply = get(&apus, path);
        assert_eq!((reply.status, &*reply.text()), (200, expected), "{path}");
    }
    assert_eq!(
        get(&apus, "/blog/wp-admin").field("location"),
        Some("/blog/wp-admin/")
    );
}

#[test]
fn a_program_can_send_a_file_by_x_accel_redirect_and_set_its_own_status() {
    let (_home, apus) = serve(
        "answers",
        "fastcgi.accel = true\nfastcgi.hide = \"X-Powered-By\"\n\
         [[sites.locations]]\npath = \"/kept/\"\ninternal = true\nroot = \"ROOT\"\n"
            .replace("ROOT", Stack::scripts().path("answers").to_str().unwrap())
            .as_str(),
        &[
            ("kept/file.txt", "a secret"),
            (
                "send.php",
                "<?php header('X-Accel-Redirect: /kept/file.txt'); echo 'not this';",
            ),
            (
                "gone.php",
                "<?php http_response_code(410); echo 'it is gone';",
            ),
            (
                "away.php",
                "<?php header('Location: /elsewhere'); header('X-Powered-By: x');",
            ),
            (
                "same.php",
                "<?php http_response_code(304); header('ETag: \"a\"');",
            ),
        ],
    );
    assert_eq!(get(&apus, "/kept/file.txt").status, 404);
    let sent = get(&apus, "/send.php");
    assert_eq!((sent.status, &*sent.text()), (200, "a secret"));
    let gone = get(&apus, "/gone.php");
    assert_eq!((gone.status, &*gone.text()), (410, "it is gone"));
    let away = get(&apus, "/away.php");
    assert_eq!(
        (away.status, away.field("location")),
        (302, Some("/elsewhere"))
    );
    assert_eq!(away.field("x-powered-by"), None);
    let mut wire = Wire::connect(apus.address());
    wire.send("GET /same.php HTTP/1.1\r\nHost: run.test\r\n\r\nHEAD /gone.php HTTP/1.1\r\nHost: run.test\r\n\r\n");
    assert_eq!(wire.read().status, 304);
    assert_eq!(wire.read_head().status, 410);
}

#[test]
fn errors_that_a_program_reports_are_logged_with_its_request() {
    let (home, apus) = serve(
        "complains",
        "access_log = { path = \"access.log\", format = \"$request_id $request_uri\" }",
        &[(
            "c.php",
            "<?php file_put_contents('php://stderr', \"alas\\n\"); error_log('oh'); echo 1;",
        )],
    );
    assert_eq!(get(&apus, "/c.php?a=b").text(), "1");
    assert_eq!(get(&apus, "/c.php?a=b").text(), "1");
    let request_ids = || -> Vec<String> {
        let log = std::fs::read_to_string(home.path("access.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(request_id, _)| request_id.to_owned()).collect()
    };
    wait_until("both requests are in the access log", || {
        request_ids().len() == 2
    });
    let request_ids = request_ids();
    assert_ne!(request_ids[0], request_ids[1]);
    for request_id in request_ids {
        assert_eq!(request_id.len(), 32, "{request_id}");
        wait_until(
            "the error is logged with the identifier of its request",
            || {
                let log = apus.log();
                let mut lines = log.lines().filter(|line| line.contains("/c.php?a=b"));
                lines.any(|line| {
                    line.contains("127.0.0.1") && line.contains("GET") && line.contains(&request_id)
                })
            },
        );
    }
}

#[test]
fn a_request_beyond_the_pool_and_the_queue_gets_a_503_with_retry_after() {
    let waiting = "<?php while (ob_get_level()) { ob_end_flush(); } echo 'begun,'; flush();
        while (!file_exists(__DIR__ . '/go')) { usleep(1000); clearstatcache(); } echo 'done';";
    let (home, apus) = serve(
        "full",
        "[sites.fastcgi]\npool_size = 1\nqueue.max = 0\n",
        &[("wait.php", waiting), ("quick.php", "<?php echo 'quick';")],
    );
    let mut slow = Wire::connect(apus.address());
    slow.send("GET /wait.php HTTP/1.0\r\nHost: run.test\r\n\r\n");
    assert_eq!(slow.read_head().status, 200);
    let refused = get(&apus, "/quick.php");
    assert_eq!(refused.status, 503);
    assert!(refused.field("retry-after").is_some());
    let (status, _) = home.expect(&["status"], 0);
    assert!(status.contains("run.test/php"), "{status}");
    Stack::scripts().write("full/go", "");
    assert_eq!(slow.rest(), b"begun,done");
    wait_until("the connection of the pool is free", || {
        get(&apus, "/quick.php").text() == "quick"
    });
}

#[test]
fn a_folder_requested_before_serves_its_new_index_and_not_its_removed_one() {
    let (_home, apus) = serve("changing", "", &[("index.php", ECHO_REQUEST)]);
    let root = Stack::scripts().path("changing");
    assert_eq!(get(&apus, "/").text(), "/index.php  / ");
    std::fs::rename(root.join("index.php"), root.join("moved.php")).unwrap();
    wait_until("the program is gone", || get(&apus, "/").status != 200);
    std::fs::write(root.join("index.html"), "html").unwrap();
    wait_until("the page is there", || get(&apus, "/").text() == "html");
    std::fs::remove_file(root.join("index.html")).unwrap();
    std::fs::rename(root.join("moved.php"), root.join("index.php")).unwrap();
    wait_until("the program is back", || {
        get(&apus, "/").text() == "/index.php  / "
    });
}
