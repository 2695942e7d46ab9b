//! `apus explain`.

use crate::harness::Home;

#[test]
fn explain_shows_the_site_the_location_the_file_and_the_response() {
    let home = Home::new();
    home.write("site/a.css", "a {}");
    home.write(
        "apus.toml",
        r#"
        [[sites]]
        name = "blog"
        server_name = ["example.com"]
        listen = [8081]
        root = "site"
        [[sites.rewrite]]
        from = "^/old/(.*)$"
        to = "/$1"
        then = "last"
        [[sites.locations]]
        path = "~ \\.css$"
        "#,
    );
    let (out, _) = home.expect(&["explain", "GET", "http://example.com/old/a.css"], 0);
    for text in [
        "blog",
        &format!("file      {}", home.path("site/a.css").display()),
        "location",
        "status    200 OK",
        "content-type: text/css",
    ] {
        assert!(out.contains(text), "{text} is missing:\n{out}");
    }

    let arguments = ["explain", "GET", "http://example.com/none", "--json"];
    let (json, _) = home.expect(&arguments, 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"], 404);
    assert_eq!(json["steps"][0]["kind"], "site");
}

#[test]
fn a_url_without_a_listener_is_an_error_that_names_both() {
    let home = Home::new();
    home.write("apus.toml", "[[sites]]\nroot = \"site\"\nlisten = [8081]\n");
    let (_, errors) = home.expect(&["explain", "GET", "https://example.com/"], 1);
    assert!(
        errors.contains("https://example.com") && errors.contains("8081"),
        "{errors}"
    );
    home.expect(&["explain", "GET", "http://example.com:9/"], 1);
}

#[test]
fn explain_accepts_a_folder() {
    let home = Home::new();
    let (out, _) = home.expect(
        &[
            "explain",
            "GET",
            "http://localhost:8080/",
            "--config",
            "site",
        ],
        0,
    );
    assert!(
        out.contains(&format!(
            "file      {}",
            home.path("site/index.html").display()
        )) && out.contains("200 OK"),
        "{out}"
    );
}
