//! The example over a real socket, as a browser uses it.

use apus::sql::Db;
use apus::testing::{TestClient, TestResponse, TestServer};
use tempfile::TempDir;

/// The example on a database in a folder.
fn serve(folder: &TempDir) -> TestServer {
    let address = format!("sqlite:{}", folder.path().join("login.db").display());
    let app = login::app(Db::open(&address).unwrap()).unwrap();
    TestServer::with_workers(app, 2)
}

fn started() -> (TempDir, TestServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&folder);
    (folder, server)
}

/// Opens a page and sends its form.
fn fill(client: &TestClient, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let fields = fields.iter().copied();
    client.post(to).token_of(page).form(fields).send()
}

fn enter(client: &TestClient, page: &str, name: &str, password: &str) -> TestResponse {
    fill(
        client,
        page,
        page,
        &[("name", name), ("password", password)],
    )
}

#[test]
fn who_registers_is_logged_in_until_log_out() {
    let (_folder, server) = started();
    let browser = server.client();
    browser
        .get("/")
        .send()
        .assert_contains("Log in")
        .assert_no_header("set-cookie");
    enter(&browser, "/register", "ann", "correct horse").assert_redirect("/");
    browser
        .get("/")
        .send()
        .assert_contains("Welcome, ann!")
        .assert_contains("Hello, ann");
    let again = browser.get("/").send().text();
    assert!(
        !again.contains("Welcome"),
        "a notice is there once: {again}"
    );
    fill(&browser, "/", "/logout", &[]).assert_redirect("/");
    browser
        .get("/")
        .send()
        .assert_contains("Good-bye!")
        .assert_contains("Log in");
}

#[test]
fn a_member_logs_in_by_the_right_password_only() {
    let (_folder, server) = started();
    enter(&server.client(), "/register", "ann", "correct horse").assert_redirect("/");
    let browser = server.client();
    for (name, password) in [("ann", "correct house"), ("bob", "correct horse"), ("", "")] {
        enter(&browser, "/login", name, password)
            .assert_status(422)
            .assert_contains("There is nobody of this name and password.");
        browser.get("/note").send().assert_redirect("/login");
    }
    enter(&browser, "/login", "ann", "correct horse").assert_redirect("/");
    browser.get("/note").send().assert_ok();
}

#[test]
fn who_guesses_passwords_has_to_wait() {
    let (_folder, server) = started();
    let browser = server.client();
    let mut guesses = (0..100).map(|guess| enter(&browser, "/login", "ann", &guess.to_string()));
    let refused = guesses.position(|mut reply| {
        let status = reply.status().as_u16();
        assert!([422, 429].contains(&status), "{:?}", reply.text());
        status == 429
    });
    // The quota refills during the test.
    assert!(refused.is_some_and(|at| at >= 20), "{refused:?}");
}

#[test]
fn a_name_is_taken_once_and_passwords_are_not_too_short() {
    let (_folder, server) = started();
    enter(&server.client(), "/register", "ann", "correct horse").assert_redirect("/");
    let browser = server.client();
    for (name, password, wrong) in [
        ("ann", "battery staple", "Somebody has this name already."),
        ("bob", "short", "A password has at least 8 characters."),
        (" ", "battery staple", "A name has 1 to 40 characters."),
    ] {
        enter(&browser, "/register", name, password)
            .assert_status(422)
            .assert_contains(wrong);
    }
}

#[test]
fn the_id_of_a_session_changes_at_log_in() {
    let (_folder, server) = started();
    let browser = server.client();
    browser.get("/login").send().assert_ok();
    let before = browser.cookie("session").unwrap();
    enter(&browser, "/register", "ann", "correct horse").assert_redirect("/");
    assert_ne!(browser.cookie("session").unwrap(), before);
    let attacker = server.client();
    attacker.set_cookie("session", &before);
    attacker.get("/note").send().assert_redirect("/login");
}

#[test]
fn a_form_needs_the_token_of_its_page() {
    let (_folder, server) = started();
    let browser = server.client();
    enter(&browser, "/register", "ann", "correct horse").assert_redirect("/");
    browser
        .post("/note")
        .form([("text", "forged")])
        .send()
        .assert_status(403);
    browser.post("/logout").send().assert_status(403);
    fill(&browser, "/note", "/note", &[("text", "<b>mine</b>")]).assert_redirect("/note");
    browser
        .get("/note")
        .send()
        .assert_contains("&lt;b&gt;mine&lt;&#x2f;b&gt;");
    let cross = browser.post("/note").header("sec-fetch-site", "cross-site");
    cross.form([("text", "forged")]).send().assert_status(403);
}

#[test]
fn members_have_notes_of_their_own() {
    let (_folder, server) = started();
    let [ann, bob] = ["ann", "bob"].map(|name| {
        let browser = server.client();
        enter(&browser, "/register", name, "correct horse").assert_redirect("/");
        fill(
            &browser,
            "/note",
            "/note",
            &[("text", &format!("note of {name}"))],
        );
        browser
    });
    ann.get("/note").send().assert_contains("note of ann");
    bob.get("/note").send().assert_contains("note of bob");
}

#[test]
fn a_session_survives_a_restart_and_a_stolen_one_does_not_survive_log_out() {
    let (folder, server) = started();
    let browser = server.client();
    enter(&browser, "/register", "ann", "correct horse").assert_redirect("/");
    let cookie = browser.cookie("session").unwrap();
    drop(server);
    let server = serve(&folder);
    let browser = server.client();
    browser.set_cookie("session", &cookie);
    browser.get("/note").send().assert_ok();
    fill(&browser, "/", "/logout", &[]).assert_redirect("/");
    browser.set_cookie("session", &cookie);
    browser.get("/note").send().assert_redirect("/login");
}
