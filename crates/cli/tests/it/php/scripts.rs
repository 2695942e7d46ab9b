//! Which program answers, and what becomes of its answer: the order of files, programs and the front
//! controller, internal redirects, error pages, the log, and a full pool.

use super::stack::Stack;
use crate::harness::{Apus, Home, wait_until};
use crate::wire::{Received, Wire};

/// Says which program it is, and how it was asked for.
const WHO: &str = "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '', ' ',
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

fn ask(apus: &Apus, line: &str) -> Received {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!("{line} HTTP/1.1\r\nHost: run.test\r\n\r\n"));
    wire.read()
}

fn get(apus: &Apus, path: &str) -> Received {
    ask(apus, &format!("GET {path}"))
}

#[test]
fn files_go_before_programs_and_programs_before_the_front_controller() {
    let (_home, apus) = serve(
        "order",
        "fastcgi.front_controller = \"/index.php\"",
        &[
            ("index.php", WHO),
            ("index.html", "html"),
            ("admin/index.php", WHO),
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
    let posted = ask(&apus, "POST /pretty");
    assert_eq!(posted.text(), "/index.php  /pretty ");
    for refused in ["/a%2fb", "/a%00.php", "/../index.php", "/index.php%00.jpg"] {
        assert_eq!(get(&apus, refused).status, 400, "{refused}");
    }
}

#[test]
fn what_a_rewrite_or_a_list_of_files_says_is_run_and_the_client_is_quoted() {
    let (_home, apus) = serve(
        "lists",
        "try_files = [\"$uri\", \"$uri/\", \"/app.php?way=list&$args\"]\n\
         [[sites.locations]]\npath = \"/old/\"\n\
         rewrite = [{ from = \"^/old/(.*)\", to = \"/app.php/$1\", then = \"last\" }]\n",
        &[("app.php", WHO), ("in/index.php", WHO), ("a.txt", "text")],
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
            ("index.php", WHO),
            ("wp-login.php", WHO),
            ("wp-admin/index.php", WHO),
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
fn a_program_has_the_site_send_a_file_and_has_its_own_status() {
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
fn what_a_program_complains_of_is_logged_with_its_request() {
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
    let identities = || -> Vec<String> {
        let log = std::fs::read_to_string(home.path("access.log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(identity, _)| identity.to_owned()).collect()
    };
    wait_until("both requests are in the access log", || {
        identities().len() == 2
    });
    let identities = identities();
    assert_ne!(identities[0], identities[1]);
    for identity in identities {
        assert_eq!(identity.len(), 16, "{identity}");
        wait_until(
            "the complaint is logged with the identity of its request",
            || {
                let log = apus.log();
                let mut lines = log.lines().filter(|line| line.contains("/c.php?a=b"));
                lines.any(|line| {
                    line.contains("127.0.0.1") && line.contains("GET") && line.contains(&identity)
                })
            },
        );
    }
}

#[test]
fn a_request_too_many_is_told_to_come_again() {
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
    wait_until("the place is free", || {
        get(&apus, "/quick.php").text() == "quick"
    });
}

#[test]
fn a_folder_whose_program_is_known_gets_its_new_index_and_loses_its_old_one() {
    let (_home, apus) = serve("changing", "", &[("index.php", WHO)]);
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
