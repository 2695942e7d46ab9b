//! Explanations of requests, which list their steps without serving them.

use std::fs;
use std::net::TcpListener;

use apus_server::{ConfigSource, ExplainRequest, explain};

fn post(url: &str) -> ExplainRequest {
    ExplainRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
    }
}

#[test]
fn reports_the_origins_of_a_request_without_connecting_to_them() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    origin.set_nonblocking(true).unwrap();
    let address = origin.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("apus.toml");
    let text = format!(
        "[[sites]]\nname = \"one\"\nlisten = 80\nupstream = \"app\"\nheaders.set = {{ x-a = \"b\" }}\n\
         [[sites.upstreams]]\nname = \"app\"\nnodes = \"{address}\"\n\
         [[sites.locations]]\npath = \"= /gone\"\nreturn = {{ status = 410 }}\n"
    );
    fs::write(&file, text).unwrap();
    let explained = |url: &str| explain(ConfigSource::File(file.clone()), &post(url)).unwrap();
    let proxied = explained("http://example.com/a");
    assert_eq!(proxied.status, None);
    let steps: Vec<_> = proxied
        .steps
        .iter()
        .map(|step| format!("{} {}", step.kind, step.what))
        .collect();
    assert_eq!(
        steps,
        [
            "site one",
            "location /",
            "handler reverse_proxy one/app",
            "origins one/app"
        ]
    );
    assert!(
        proxied
            .headers
            .contains(&("x-a".to_owned(), "b".to_owned()))
    );
    assert_eq!(proxied.content_length, None);
    assert!(origin.accept().is_err(), "the origin got a connection");
    let fixed = explained("http://example.com/gone");
    assert_eq!(fixed.status.map(|status| status.as_u16()), Some(410));
}

#[test]
fn reports_the_cache_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("apus.toml");
    let text = "[[sites]]\nname = \"one\"\nlisten = 80\nupstream = \"http://[::1]:1\"\n\
                [sites.cache]\nkey.query = { except = \"utm_*\" }\nbypass_cookies = \"sid\"\n";
    fs::write(&file, text).unwrap();
    let key = |method: &str, cookie: &str| {
        let request = ExplainRequest {
            method: method.to_owned(),
            headers: vec![("cookie".to_owned(), cookie.to_owned())],
            ..post("http://Example.com/x/../a?b=1&utm_source=x")
        };
        let steps = explain(ConfigSource::File(file.clone()), &request)
            .unwrap()
            .steps;
        let cache = steps.iter().find(|step| step.kind.to_string() == "cache");
        cache.unwrap().what.clone()
    };
    assert_eq!(key("GET", "a=1"), "http://example.com/a?b=1");
    assert_eq!(key("GET", "a=1; sid=2"), "bypass");
    assert_eq!(key("POST", "a=1"), "bypass");
}

#[test]
fn reports_the_script_and_its_variables() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("public/index.php", "<?php"),
        ("public/uploads/a.php", "<?php"),
        ("public/style.css", "a {}"),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let file = folder.path().join("apus.toml");
    let text = "[[sites]]\nserver_name = \"a.example\"\nlisten = 80\nroot = \"public\"\n\
                php_fastcgi = \"[::1]:9\"\n[sites.fastcgi]\nfront_controller = \"/index.php\"\n\
                no_php = \"/uploads/**\"\nparams = { MINE = \"of $host\" }\ncache.ttl = 60\n";
    fs::write(&file, text).unwrap();
    let steps = |url: &str| {
        let request = ExplainRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: vec![("proxy".to_owned(), "evil".to_owned())],
        };
        let explained = explain(ConfigSource::File(file.clone()), &request).unwrap();
        let steps: Vec<_> = explained
            .steps
            .iter()
            .map(|step| format!("{} {}", step.kind, step.what))
            .collect();
        (explained.status, steps)
    };
    let has = |steps: &[String], wanted: &str| steps.iter().any(|step| step == wanted);
    let (status, listed) = steps("http://a.example/pretty?a=b");
    assert_eq!(status, None);
    let root = folder.path().canonicalize().unwrap().join("public");
    let script = root.join("index.php").display().to_string();
    for wanted in [
        format!("script {script}"),
        format!("variable SCRIPT_FILENAME = {script}"),
        "variable REQUEST_URI = /pretty?a=b".to_owned(),
        "variable MINE = of a.example".to_owned(),
        "cache http://a.example:80/pretty?a=b".to_owned(),
        "origins a.example/php".to_owned(),
    ] {
        let wanted = wanted.replace(":80/", "/");
        assert!(has(&listed, &wanted), "{wanted}\n{listed:#?}");
    }
    assert!(!listed.iter().any(|step| step.contains("HTTP_PROXY")));
    let (status, listed) = steps("http://a.example/uploads/a.php");
    assert_eq!(status.unwrap().as_u16(), 404);
    assert!(has(&listed, "script none"), "{listed:#?}");
    let (status, listed) = steps("http://a.example/style.css");
    assert_eq!(status.unwrap().as_u16(), 200);
    assert!(
        !listed.iter().any(|step| step.starts_with("script")),
        "{listed:#?}"
    );
}
