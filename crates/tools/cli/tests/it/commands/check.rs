//! `apus check`.

use crate::harness::Home;

#[test]
fn a_file_without_mistakes_passes() {
    let home = Home::new();
    home.write("apus.toml", "[[sites]]\nroot = \"site\"\nlisten = [0]\n");
    let (out, _) = home.expect(&["check"], 0);
    assert_eq!(out, "apus.toml: good\n");
}

#[test]
fn every_mistake_is_reported_with_its_position() {
    let home = Home::new();
    home.write(
        "bad.toml",
        "[global]\nworker_thread = 2\n[[sites]]\nroot = \"site\"\nlisten = [\"nowhere\"]\n",
    );
    let (_, errors) = home.expect(&["check", "bad.toml"], 1);
    for text in ["bad.toml:2:1", "worker_threads", "bad.toml:5:"] {
        assert!(errors.contains(text), "{text} is missing:\n{errors}");
    }
    let (json, _) = home.expect(&["check", "bad.toml", "--json"], 1);
    assert!(json.contains("worker_thread"), "{json}");
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
}

#[test]
fn a_folder_is_checked_as_a_configuration_or_as_one_to_serve() {
    let home = Home::new();
    let (out, _) = home.expect(&["check", "site"], 0);
    assert_eq!(out, "site: good; `apus serve site` serves this folder\n");
    let (out, _) = home.expect(&["check", "site", "--json"], 0);
    assert_eq!(out.trim(), "[]");
    home.make_folder("conf");
    home.write(
        "conf/apus.toml",
        "[[sites]]\nroot = \"../site\"\nlisten = 8080\n",
    );
    let (out, _) = home.expect(&["check", "conf"], 0);
    assert_eq!(
        out,
        "conf/apus.toml: good\n\
         `apus serve conf/apus.toml` serves this configuration, and `apus serve conf` the files of the folder\n"
    );
    home.write(
        "conf/apus.toml",
        "[[sites]]\nroot = \"nothere\"\nlisten = 8080\n",
    );
    let (_, errors) = home.expect(&["check", "conf"], 1);
    assert!(errors.contains("conf/apus.toml:2:8"), "{errors}");
}

#[test]
fn the_status_is_1_for_mistakes_and_2_for_what_does_not_exist() {
    let home = Home::new();
    let missing =
        "there is no such file or folder; expected a configuration file or a folder to serve\n";
    let (_, errors) = home.expect(&["check"], 2);
    assert_eq!(errors, format!("error: apus.toml: {missing}"));
    let (_, errors) = home.expect(&["check", "no.toml"], 2);
    assert_eq!(errors, format!("error: no.toml: {missing}"));
    let (json, _) = home.expect(&["check", "no.toml", "--json"], 2);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["severity"], "error");
    for arguments in [
        &["serve", "no.toml"][..],
        &["explain", "GET", "http://a/", "--config", "no.toml"],
        &["reload", "no.toml"],
        &["check", "--nothing"],
    ] {
        home.expect(arguments, 2);
    }
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = 0\nrooot = 1\n",
    );
    for arguments in [
        &["check"][..],
        &["serve"],
        &["explain", "GET", "http://a/"],
        &["reload"],
    ] {
        let (_, errors) = home.expect(arguments, 1);
        assert!(
            errors.contains("unknown key `rooot`"),
            "{arguments:?} {errors}"
        );
    }
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = 0\nreturn = { status = 404 }\n",
    );
    let (out, warnings) = home.expect(&["check"], 0);
    assert_eq!(out, "apus.toml: good\n");
    assert!(
        warnings.contains("warning: `root` has no effect"),
        "{warnings}"
    );
}

#[test]
fn check_and_explain_create_no_file() {
    let home = Home::new();
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = [0]\naccess_log = \"access.log\"\n",
    );
    home.expect(&["check"], 0);
    home.expect(&["explain", "GET", "http://localhost/"], 0);
    assert!(!home.path("access.log").exists());
}

#[test]
fn check_and_explain_say_where_certificates_come_from_and_why() {
    let home = Home::new();
    home.write(
        "apus.toml",
        "[global]\nacme_email = \"a@example.com\"\nacme_provider = [\"zerossl\", \"letsencrypt\"]\nacme_folder = \"acme\"\n\
         [[sites]]\nname = \"shop\"\nroot = \"site\"\nlisten = 8080\nlisten_tls = 443\n\
         server_name = [\"example.com\", \"www.example.com\"]\n\
         [[sites]]\nname = \"own\"\nroot = \"site\"\nlisten_tls = 443\nserver_name = \"own.example.com\"\n\
         tls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
    );
    let made = apus_testkit::CertificateAuthority::generate().ecdsa(&["own.example.com"]);
    home.write("cert.pem", made.pem);
    let key = home.write("key.pem", made.key);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(key, mode).unwrap();
    let (out, _) = home.expect(&["check"], 0);
    for line in [
        "shop: a certificate for example.com www.example.com is ordered from zerossl or letsencrypt, by http-01 or tls-alpn-01\n",
        "  because acme_email = \"a@example.com\" agrees to the terms, and the site names no certificate\n",
        "  there is none yet: until it is there, clients get a TLS alert\n",
        "  not by dns-01: there is neither `acme_dns` nor `acme_dns_hook`\n",
        "  http-01 needs a listener at port 80, and no site has it: ",
        &format!(
            "own: the certificate of {}\n",
            home.path("cert.pem").display()
        ),
        "  because [sites.tls] names it, so that none is ordered\n",
        "apus.toml: good\n",
    ] {
        assert!(out.contains(line), "{line} is missing:\n{out}");
    }
    assert!(!out.contains("tls-alpn-01 needs"), "{out}");
    let (out, _) = home.expect(&["explain", "GET", "https://www.example.com/"], 0);
    let tls = "tls       a certificate for example.com www.example.com is ordered from zerossl";
    assert!(out.contains(tls), "{out}");
    let (out, _) = home.expect(&["explain", "GET", "https://own.example.com/"], 0);
    assert!(out.contains("tls       the certificate of "), "{out}");
    assert!(out.contains("because [sites.tls] names it"), "{out}");
}
