//! Keys of tokens and of bots that are fetched over TLS from a server with a certificate of the operator's own authority.

use std::time::SystemTime;

use apus_testkit::CertificateAuthority;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::bots::BotKey;
use crate::harness::{Apus, Home, free_port};
use crate::wire::Wire;

/// A server that has the keys, with a certificate of this authority for localhost.
fn key_server(authority: &CertificateAuthority, keys: &str) -> (Home, Apus, u16) {
    let (home, port) = (Home::new(), free_port());
    let issued = authority.ecdsa(&["localhost"]);
    home.write("cert.pem", issued.pem);
    home.write("key.pem", issued.key);
    home.write("site/keys.json", keys);
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"localhost\"\nlisten_tls = \"127.0.0.1:{port}\"\n\
             tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\nroot = \"site\"\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    (home, apus, port)
}

#[test]
fn keys_are_fetched_from_a_server_whose_certificate_is_of_an_authority_of_the_operator_and_of_no_other()
 {
    let (authority, other) = (
        CertificateAuthority::generate(),
        CertificateAuthority::generate(),
    );
    let key = BotKey::new(9);
    let (_keys, _server, port) = key_server(&authority, &key.directory());
    let home = Home::new();
    home.write("own.pem", &authority.pem);
    home.write("other.pem", &other.pem);
    let url = format!("https://localhost:{port}/keys.json");
    let location = |path: &str, tls: &str| {
        format!(
            "[[sites.locations]]\npath = \"{path}\"\nreturn = {{ status = 200, text = \"in\" }}\n\
             jwt = {{ jwks_url = \"{url}\"{tls} }}\n"
        )
    };
    let listen = free_port();
    home.write(
        "apus.toml",
        format!(
            "[[global.bots]]\nname = \"own\"\ndirectory = \"{url}\"\ntls = {{ ca = \"own.pem\" }}\n\
             [[sites]]\nlisten = \"127.0.0.1:{listen}\"\nroot = \"site\"\n\
             [[sites.rules]]\nwhen = 'bot == \"own\"'\ndeny = 410\n{}{}{}",
            location("/own/", ", tls = { ca = \"own.pem\" }"),
            location("/other/", ", tls = { ca = \"other.pem\" }"),
            location("/system/", ""),
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let status = |path: &str, fields: &str| {
        let mut wire = Wire::connect(apus.address());
        wire.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}Connection: close\r\n\r\n"
        ));
        wire.read().status
    };
    let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3600;
    let [header, claims] = [
        r#"{"alg":"EdDSA"}"#.to_owned(),
        format!(r#"{{"sub":"ada","exp":{expires}}}"#),
    ]
    .map(|part| URL_SAFE_NO_PAD.encode(part));
    let signed = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    let token = format!("Authorization: Bearer {signed}.{signature}\r\n");
    // Those who were trusted for one do not make the others believe it.
    for _ in 0..2 {
        assert_eq!(status("/own/", &token), 200);
        assert_eq!(status("/own/", ""), 401);
        assert_eq!(status("/other/", &token), 503);
        assert_eq!(status("/system/", &token), 503);
        home.expect(&["reload"], 0);
    }
    let fields = key.fields("a.example", &format!("https://localhost:{port}"));
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    assert_eq!(status("/", &fields), 410);
}
