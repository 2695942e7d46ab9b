//! The chapter of accounts.

use std::time::Duration;

use apus::account::{
    AccountTokens, EmailAddress, LocalPath, MemoryTokens, PasswordRules, RememberMe,
};
use apus::auth::password;
use apus::extract::Cookies;
use apus::layers::ClientInfo;
use apus::testing::TestClient;
use apus::{App, Result, State};
use apus_testkit::block_on;

#[test]
fn passwords_have_10_to_128_characters_and_are_not_guessed_first() {
    let rules = PasswordRules::default();
    let is_good = |password: &str| rules.check(password, &["ada@example.com", "ada"]).is_ok();
    for (password, expected) in [
        ("qwm4-tz8k", false),
        ("qwm4-tz8kx", true),
        ("ÄÖÜ äöü ßé", true),
        (&"xy4-".repeat(32), true),
        (&"xy4-".repeat(33), false),
        ("1234567890", false),
        ("password123", false),
        ("ada@example.com", false),
    ] {
        assert_eq!(is_good(password), expected, "{password}");
    }
}

#[test]
fn addresses_that_are_the_same_to_a_mail_server_are_one() {
    let of = |text: &str| EmailAddress::parse(text).map(|address| address.as_str().to_owned());
    assert_eq!(of(" Ada@Example.COM "), of("ada@example.com"));
    assert_eq!(of("ada@example.com").as_deref(), Some("ada@example.com"));
    for text in [
        "ada",
        "@example.com",
        "ada@",
        "a da@example.com",
        "ada@exämple.com",
    ] {
        assert_eq!(of(text), None, "{text}");
    }
}

#[test]
fn a_next_parameter_leads_to_this_site_only() {
    for (text, expected) in [
        ("/orders?page=2", true),
        ("//other.example/", false),
        ("/\\other.example/", false),
        ("https://other.example/", false),
        ("javascript:alert(1)", false),
        ("", false),
    ] {
        assert_eq!(LocalPath::parse(text).is_some(), expected, "{text}");
    }
}

#[test]
fn a_log_in_is_remembered_for_thirty_days() {
    type Arguments = (State<RememberMe>, Cookies, ClientInfo);
    let app = App::new()
        .state(RememberMe::new(AccountTokens::new(MemoryTokens::new())))
        .post(
            "/",
            async |(State(remember), mut cookies, client): Arguments| -> Result<(Cookies, &str)> {
                remember.remember(&mut cookies, client, 7, "").await?;
                Ok((cookies, ""))
            },
        )
        .get(
            "/",
            async |(State(remember), cookies, client): Arguments| -> Result<String> {
                let found = remember.find(&cookies, client).await?;
                Ok(found.is_some().to_string())
            },
        );
    let client = TestClient::new(app);
    let clock = client.clock();
    clock.freeze();
    client.post("/").send();
    let cookie = client.cookie("remember").unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    clock.advance(30 * day - Duration::from_secs(1));
    client.get("/").send().assert_text("true");
    clock.advance(Duration::from_secs(1));
    // A browser that keeps the cookie for longer is not known either.
    client.set_cookie("remember", &cookie);
    client.get("/").send().assert_text("false");
}

#[test]
fn a_password_takes_nineteen_mebibytes() {
    let stored = block_on(password::hash(None, "correct horse")).unwrap();
    let parameters = stored.split('$').nth(3).unwrap();
    assert!(
        parameters.split(',').any(|one| one == "m=19456"),
        "{stored}"
    );
}
