//! Mails that are caught, and the page that shows them.

use apus_handler::{HandlerService, State};
use apus_http::MountPrefix;
use apus_mail::{Mail, MailError, Mailer};
use apus_testkit::{LocalClient, Reply, RequestBuilder, ask, get};

const FROM: &str = "Shop <shop@example.com>";

fn mail() -> Mail {
    Mail::new("Ada <ada@example.com>", "Your <order>")
        .text("See https://shop.example/orders/7?a=1&b=2 or\nhttps://shop.example/help")
        .html("<p>See <script>alert(1)</script>")
        .attach("invoice.txt", "text/plain", "19.99")
}

/// A worker with the page of mails.
fn worker(mailer: &Mailer) -> LocalClient {
    LocalClient::of(&mailer.page().unwrap())
}

/// A request of this machine below `/mails`, where an application mounts the page.
fn mounted(request: RequestBuilder) -> RequestBuilder {
    let request = request.with("host", "localhost");
    request.extension(MountPrefix("/mails".into()))
}

fn assert_contains(reply: &Reply, part: &str) {
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains(part), "{part}: {}", reply.text());
}

#[test]
fn a_caught_mail_can_be_read_in_a_test() {
    let mailer = Mailer::open("memory:", FROM).unwrap();
    let worker = worker(&mailer);
    worker.run(mailer.clone().send(mail())).unwrap();
    let mails = mailer.mails();
    let [mail] = &*mails else { panic!("{mails:?}") };
    assert_eq!(mail.from, FROM);
    assert_eq!(mail.to, ["Ada <ada@example.com>"]);
    assert_eq!(mail.subject, "Your <order>");
    assert_eq!(
        mail.link("/orders/"),
        Some("https://shop.example/orders/7?a=1&b=2")
    );
    assert_eq!(mail.link("/reset/"), None);
    assert_eq!(mail.attachments[0].bytes, b"19.99");
    assert!(mail.source.starts_with(b"From: Shop"));
}

#[test]
fn the_page_shows_mails_and_runs_no_script_of_them() {
    let mailer = Mailer::open("memory:", FROM).unwrap();
    let worker = worker(&mailer);
    let page = |path: &str| worker.send(mounted(get(path)));
    assert_contains(&page("/"), "No mail was sent yet.");
    worker.run(mailer.clone().send(mail())).unwrap();
    let link = "<a href=\"/mails/1\">Your &lt;order&gt;</a>";
    assert_contains(&page("/"), link);
    let shown = page("/1");
    for part in [
        "Ada &lt;ada@example.com&gt;",
        "<a href=\"https://shop.example/orders/7?a=1&amp;b=2\">",
        "src=\"/mails/1/html\"",
    ] {
        assert_contains(&shown, part);
    }
    assert!(!shown.text().contains("<script>"));
    let html = page("/1/html");
    let policy = html.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("sandbox allow-popups; default-src 'none'"),
        "{policy}"
    );
    let attachment = page("/1/attachments/0");
    assert_eq!((attachment.status, attachment.text()), (200, "19.99"));
    assert_eq!(
        attachment.field("content-type"),
        Some("application/octet-stream")
    );
    assert_contains(&page("/1/source"), "multipart/mixed");
    for path in [
        "2",
        "x",
        "1/html/2",
        "1/attachments",
        "1/attachments/1",
        "1/none",
    ] {
        assert_eq!(page(&format!("/{path}")).status, 404, "{path}");
    }
    assert_eq!(worker.send(mounted(ask("POST", "/"))).status, 405);
}

#[test]
fn mails_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mails = folder.path().join("mails");
    let mailer = Mailer::open(&format!("folder:{}", mails.display()), FROM).unwrap();
    let worker = worker(&mailer);
    worker.run(mailer.clone().send(mail())).unwrap();
    let files: Vec<_> = std::fs::read_dir(&mails).unwrap().collect();
    let [Ok(file)] = &*files else {
        panic!("{files:?}")
    };
    let name = file.file_name().into_string().unwrap();
    assert!(name.ends_with("-1.eml"), "{name}");
    assert_eq!(
        std::fs::read(file.path()).unwrap(),
        mailer.mails()[0].source
    );
    // A folder that cannot be made.
    let mailer = Mailer::open("folder:/proc/none", FROM).unwrap();
    let error = worker.run(mailer.send(mail())).unwrap_err();
    assert!(matches!(error, MailError::Folder { .. }), "{error}");
    assert!(error.to_string().contains("/proc/none/"), "{error}");
}

#[test]
fn only_the_last_mails_are_kept() {
    let mailer = Mailer::open("memory:", FROM).unwrap();
    let worker = worker(&mailer);
    worker.run(async {
        for number in 1..=205 {
            mailer
                .send(Mail::new("a@b.c", number.to_string()).text("x"))
                .await
                .unwrap();
        }
    });
    let mails = mailer.mails();
    assert_eq!(mails.len(), 200);
    assert_eq!([&*mails[0].subject, &*mails[199].subject], ["6", "205"]);
}

#[test]
fn a_mail_that_is_sent_later_does_not_hold_up_the_response() {
    let mailer = Mailer::open("memory:", FROM).unwrap();
    // The mail is not sent before the handler waits.
    let send = async |State(mailer): State<Mailer>| {
        mailer.send_later(Mail::new("a@b.c", "later").text("x"));
        mailer.mails().len().to_string()
    };
    let worker = LocalClient::of(&HandlerService::new(send).state(mailer.clone()));
    assert_eq!(worker.send(ask("POST", "/")).text(), "0");
    worker.run(async {
        while mailer.mails().is_empty() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_sender_that_is_no_mailbox_is_an_error_at_the_start() {
    let error = Mailer::open("memory:", "shop").unwrap_err().to_string();
    assert!(
        error.contains("\"shop\" is not the address of a mailbox"),
        "{error}"
    );
    assert!(Mailer::open("folder:", FROM).is_err());
    let sends = Mailer::open("smtps://localhost", FROM).unwrap();
    assert!(sends.page().is_none());
    assert!(sends.mails().is_empty());
}

/// A page of another site can lead a browser to this machine under a name of that site (DNS rebinding).
#[test]
fn mails_are_not_shown_under_names_of_other_sites() {
    let mailer = Mailer::open("memory:", FROM).unwrap();
    let page = mailer.page().unwrap().host("shop.test");
    let worker = LocalClient::of(&page);
    worker.run(mailer.clone().send(mail())).unwrap();
    let paths = ["/", "/1", "/1/html", "/1/source", "/1/attachments/0"];
    let status = |path: &str, host: &str| worker.send(mounted(get(path)).with("host", host)).status;
    for path in paths {
        for host in [
            "localhost",
            "127.0.0.1:8080",
            "[::1]:8080",
            "shop.localhost",
            "shop.test:3000",
        ] {
            assert_eq!(status(path, host), 200, "{path} of {host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "shop.test.evil.example",
            "192.0.2.7",
        ] {
            assert_eq!(status(path, host), 421, "{path} of {host}");
        }
    }
}
