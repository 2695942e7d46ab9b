//! The shop in Chromium: sign-up, validation errors, log-in, upload, chat and reset by mail, by typing and clicking.

use std::process::Command;

use serde_json::{Value, json};

use crate::servers::Shop;

#[test]
fn a_visitor_uses_the_shop_in_a_browser() {
    let shop = Shop::on_any();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/visitor.py");
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .arg(format!("http://{}", shop.server.address()))
        .output()
        .expect("run `make tools`");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let saw: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "wrong address": "This is not an e-mail address.",
        "wrong password": "This password is one of those that are guessed first.",
        "signed up": "Hello, ada!",
        "wrong log-in": "There is no account with this address and password.",
        "logged in": "Hello, ada!",
        "wrong picture": "Choose a picture: PNG, JPEG, GIF or WebP.",
        "picture": [8, 8],
        "chat": "ada: hello <b>all</b>",
        "reset": "Your password has changed. Log in with the new one.",
        "logged in again": "Hello, ada!",
        "errors": [],
    });
    assert_eq!(saw, expected);
}
