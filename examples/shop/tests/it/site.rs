//! The pages: accounts, pictures and the chat, on each database.

use apus::testing::{TestClient, TestResponse};
use apus_testkit::wait_until;
use serde_json::json;

use crate::servers::Shop;

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A file whose first bytes make it a picture in PNG.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n0000";

impl Shop {
    /// Waits for a mail after the first `known`, and returns the path of its link.
    pub(crate) fn link(&self, known: usize) -> String {
        let mail = wait_until("a mail", || self.mailer.mails().into_iter().nth(known));
        let link = mail.link("").unwrap();
        link.strip_prefix("https://shop.example")
            .unwrap()
            .to_owned()
    }

    fn sign_up(&self, email: &str) -> TestClient {
        let client = self.client();
        let known = self.mailer.mails().len();
        send(&client, "/sign-up", "/sign-up", &[("email", email)]).assert_redirect("/log-in");
        let link = self.link(known);
        let token = token_of(&link);
        send(
            &client,
            "/welcome",
            &link,
            &[("token", token), ("password", PASSWORD)],
        )
        .assert_redirect("/");
        client
    }
}

fn send(client: &TestClient, path: &str, page: &str, fields: &[(&str, &str)]) -> TestResponse {
    let fields = fields.iter().copied();
    client.post(path).token_of(page).form(fields).send()
}

fn token_of(link: &str) -> &str {
    link.split_once("token=").unwrap().1
}

#[test]
fn a_visitor_signs_up_logs_in_and_resets_the_password() {
    for shop in Shop::on_each() {
        let ada = shop.sign_up("Ada@Example.com");
        ada.get("/")
            .send()
            .assert_ok()
            .assert_contains("Hello, ada!");
        // The member is a user of the API.
        let user = json!({ "id": 1, "name": "ada", "email": "ada@example.com" });
        ada.get("/users/1").send().assert_json(&user);
        let other = shop.client();
        let known = shop.mailer.mails().len();
        send(
            &other,
            "/forgot",
            "/forgot",
            &[("email", "ada@example.com")],
        )
        .assert_redirect("/log-in");
        let link = shop.link(known);
        let fields = [
            ("token", token_of(&link)),
            ("password", "another horse battery"),
        ];
        send(&other, "/reset", &link, &fields).assert_redirect("/log-in");
        send(&other, "/reset", "/log-in", &fields).assert_status(410);
        ada.get("/pictures")
            .send()
            .assert_redirect("/log-in?next=/pictures");
        let log_in = |password| {
            let fields = [
                ("email", "ada@example.com"),
                ("password", password),
                ("remember", "true"),
            ];
            send(&other, "/log-in", "/log-in", &fields)
        };
        log_in(PASSWORD).assert_status(422);
        log_in("another horse battery").assert_redirect("/");
        let remembered = other.cookie("remember").unwrap();
        let browser = shop.client();
        browser.set_cookie("remember", &remembered);
        browser.get("/pictures").send().assert_ok();
        send(&other, "/log-out", "/pictures", &[]).assert_redirect("/log-in");
        let browser = shop.client();
        browser.set_cookie("remember", &remembered);
        browser
            .get("/pictures")
            .send()
            .assert_redirect("/log-in?next=/pictures");
    }
}

#[test]
fn a_member_uploads_pictures_and_nothing_else() {
    for shop in Shop::on_each() {
        let ada = shop.sign_up("ada@example.com");
        let upload = |title: &str, bytes: &'static [u8]| {
            ada.post("/pictures")
                .token_of("/pictures")
                .multipart(
                    [("title", title)],
                    [("picture", "../page.png", "image/png", bytes)],
                )
                .send()
        };
        for (title, bytes, wrong) in [
            (
                "Swift",
                &b"<script>alert(1)</script>"[..],
                "PNG, JPEG, GIF or WebP",
            ),
            ("", PICTURE, "A title has 1 to 100 characters."),
        ] {
            upload(title, bytes).assert_redirect("/pictures");
            ada.get("/pictures").send().assert_contains(wrong);
        }
        upload("A <swift>", PICTURE).assert_redirect("/pictures");
        ada.get("/pictures")
            .send()
            .assert_contains("The picture is stored.")
            .assert_contains("<img src=\"/pictures/1\" alt=\"A &lt;swift&gt;\">");
        let mut picture = ada.get("/pictures/1").send();
        picture
            .assert_ok()
            .assert_header("content-type", "image/png")
            .assert_header("x-content-type-options", "nosniff");
        assert_eq!(picture.bytes(), PICTURE);
        ada.get("/pictures/2").send().assert_status(404);
        shop.client()
            .get("/pictures/1")
            .send()
            .assert_redirect("/log-in?next=/pictures/1");
    }
}

#[test]
fn members_chat() {
    let shop = Shop::on_any();
    let [ada, bob] = ["ada@example.com", "bob@example.com"].map(|email| shop.sign_up(email));
    let mut heard = bob.get("/chat/socket").websocket();
    let mut said = ada.get("/chat/socket").websocket();
    // Who hears a line of his own has entered.
    heard.send("first");
    heard.assert_text(r#"{"name":"bob","text":"first"}"#);
    said.send("<b>hello</b>");
    heard.assert_text(r#"{"name":"ada","text":"<b>hello</b>"}"#);
    shop.client()
        .get("/chat")
        .send()
        .assert_redirect("/log-in?next=/chat");
}
