//! Which clients are served.

use std::fs;

use crate::documents::{folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

/// The names of the layers of the site and of its location, in order.
fn layers(keys: &str, location: &str) -> [Vec<String>; 2] {
    let folder = folder();
    let text = format!("{SITE}{keys}\n[[sites.locations]]\npath = \"/a/\"\n{location}\n");
    let plan = parse_in(folder.path(), &text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let site = &plan.sites[0];
    [&site.settings, &site.locations[0].settings].map(|settings| {
        let text = format!("{settings:?}");
        let names = text.split("Layer { name: \"").skip(1);
        names
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect()
    })
}

#[test]
fn locations_inherit_each_check_of_clients_unless_they_set_another_one() {
    let auth = "basic_auth = { users_file = \"htpasswd\" }";
    let allow = "allow = \"10.0.0.0/8\"";
    for (site, location, of_site, of_location) in [
        (format!("{allow}\n{auth}"), "", "allow basic_auth", ""),
        (
            format!("{allow}\n{auth}"),
            "allow = false",
            "allow basic_auth",
            "basic_auth",
        ),
        (
            format!("{allow}\n{auth}"),
            "satisfy = \"any\"",
            "allow basic_auth",
            "satisfy any",
        ),
        (
            format!("{allow}\n{auth}\nsatisfy = \"any\""),
            "satisfy = \"all\"\ndeny = \"10.0.0.1\"",
            "satisfy any",
            "deny allow basic_auth",
        ),
        (
            format!("{allow}\n{auth}\nsatisfy = \"any\""),
            "basic_auth = false\nallow = false",
            "satisfy any",
            "",
        ),
        (
            format!("{allow}\n{auth}\nsatisfy = \"any\"\nreferers = true"),
            "signed_url = { key_file = \"jwt.key\" }",
            "referers satisfy any",
            "referers signed_url satisfy any",
        ),
    ] {
        let [site_layers, location_layers] = layers(&site, location).map(|names| names.join(" "));
        assert_eq!(site_layers, of_site, "{site}");
        assert_eq!(location_layers, of_location, "{site} {location}");
    }
}

#[test]
fn weak_hashes_of_passwords_are_a_warning() {
    let folder = folder();
    let text = format!("{SITE}basic_auth.users_file = \"htpasswd\"\n");
    let plan = parse_in(folder.path(), &text).unwrap();
    assert!(
        !plan.warnings.to_string().contains("MD5"),
        "{}",
        plan.warnings
    );
    let weak = "a:$apr1$saltsalt$M2b95Jota4AKoI/tH3eyJ/\nb:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n";
    fs::write(folder.path().join("htpasswd"), weak).unwrap();
    let plan = parse_in(folder.path(), &text).unwrap();
    let warning = plan.warnings.to_string();
    assert!(
        warning.contains("2 users have hashes of MD5 or SHA-1"),
        "{warning}"
    );
    assert!(warning.contains("htpasswd -B"), "{warning}");
}

#[test]
fn mistakes_in_a_challenge_are_reported_and_rules_have_one_without_the_key() {
    for (keys, message) in [
        ("rate = \"1mb/s\"", "a rate of bytes"),
        ("levels = [10, 20]", "no weights of three levels"),
        ("levels = [10, 30, 20]", "no weights of three levels"),
        (
            "difficulty = 20, max_difficulty = 19",
            "`difficulty` is above `max_difficulty`",
        ),
        ("weights = [{ add = 1001 }]", "the number is out of range"),
        (
            "weights = [{ when = \"status == 404\", add = 1 }]",
            "status",
        ),
        ("weights = [{ when = \"tls\" }]", "`add` is missing"),
        ("key_file = \"htpasswd.none\"", "cannot"),
        ("except = \"nothing == 1\"", "nothing"),
        ("preset = \"calm\"", "under_attack"),
    ] {
        let folder = folder();
        let error = parse_in(folder.path(), &format!("{SITE}challenge = {{ {keys} }}\n"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(message), "{keys}: {error}");
    }
    let folder = folder();
    fs::write(folder.path().join("short.key"), "short").unwrap();
    let error = parse_in(
        folder.path(),
        &format!("{SITE}challenge = {{ key_file = \"short.key\" }}\n"),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the secret has 5 bytes"), "{error}");
    let has_challenge = |text: &str| {
        let plan = parse_in(folder.path(), text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        plan.sites[0].challenge.is_some()
    };
    let rule = "rules = [{ challenge = true }]\n";
    assert!(!has_challenge(SITE));
    assert!(!has_challenge(&format!("{SITE}challenge = false\n")));
    assert!(has_challenge(&format!("{SITE}{rule}")));
    assert!(has_challenge(&format!("[global]\n{rule}{SITE}")));
    assert!(has_challenge(&format!(
        "{SITE}locations = [{{ path = \"/a\", {} }}]\n",
        rule.trim()
    )));
    assert!(has_challenge(&format!("{SITE}challenge = true\n")));
}
