//! The chapter of accounts.

use apus::account::{EmailAddress, LocalPath, PasswordRules};

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
