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
