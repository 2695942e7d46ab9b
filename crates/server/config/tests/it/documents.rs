//! Reading configurations: how mistakes are shown, includes, the environment, paths.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use apus_config::{self as config, Diagnostics, FilesRoot, HandlerPlan, ServerPlan};
use apus_net::Limits;
use apus_testkit::geo_database;
use tempfile::TempDir;

/// A folder with `public/`, and a certificate for example.com.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["public", "other", "sites"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("plans.map"), "ada gold\n").unwrap();
    for (name, host) in [("", "example.com"), ("other-", "example.org")] {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        let write = |file: &str, text: String| {
            let path = folder.path().join(format!("{name}{file}"));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("cert.pem", made.cert.pem());
        write("key.pem", made.signing_key.serialize_pem());
        let issuer = rcgen::Issuer::new(rcgen::CertificateParams::default(), made.signing_key);
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(4096, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        write("crl.pem", list.signed_by(&issuer).unwrap().pem().unwrap());
        // RFC 8037 appendix A.2.
        let jwk = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let jwk = format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{host}","x":"{jwk}"}}"#);
        let record = serde_json::json!({"country": {"iso_code": "DE"}});
        let database = geo_database("GeoLite2-Country", &[("192.0.2.0/24", record)]);
        fs::write(folder.path().join(format!("{name}geo.mmdb")), database).unwrap();
        write("jwks.json", format!(r#"{{"keys":[{jwk}]}}"#));
        // `openssl passwd -5 -salt saltsalt correct`.
        let hash = "$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1";
        write("htpasswd", format!("{name}ada:{hash}\n"));
        write(
            "accounts.toml",
            format!("[[accounts]]\nname = \"{name}ada\"\nrole = \"read\"\npassword = \"{hash}\"\n"),
        );
        write(
            "jwt.key",
            format!("{host}{}\n", "0123456789abcdef".repeat(4)),
        );
    }
    folder
}

pub(crate) fn parse_in(folder: &Path, text: &str) -> Result<ServerPlan, Diagnostics> {
    config::parse_str(text, "apus.toml", folder, &|name| match name {
        "PORT" => Some("8081".to_owned()),
        "PURGE_TOKEN" | "REDIS_PASSWORD" | "OTLP_TOKEN" => Some("0123456789abcdef".to_owned()),
        "ACME_DNS_KEY" => Some("MDEyMzQ1Njc4OWFiY2RlZg==".to_owned()),
        _ => None,
    })
}

/// The findings about `text` as `line:column severity: message; label; help`.
pub(crate) fn findings(text: &str) -> Vec<String> {
    let folder = folder();
    let diagnostics = match parse_in(folder.path(), text) {
        Ok(plan) => plan.warnings,
        Err(diagnostics) => diagnostics,
    };
    let json = diagnostics.to_json();
    json.as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let mut line = format!(
                "{}:{} {}; {}",
                finding["line"],
                finding["column"],
                finding["message"].as_str().unwrap(),
                finding["label"].as_str().unwrap_or_default(),
            );
            if let Some(help) = finding["help"].as_str() {
                line.push_str("; ");
                line.push_str(help);
            }
            line.replace(&format!("{}/", folder.path().display()), "")
        })
        .collect()
}

pub(crate) const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

#[test]
fn reports_all_mistakes_in_one_run_and_in_order() {
    let text = "[global]\nworker_threads = -1\nkeepalive = 1\n\n[[sites]]\nlisten = 0x1FFFF\n\
                root = \"nothere\"\nlisting = \"yes\"\n\n[[sites.locations]]\npath = \"a\"\n\n\
                [[sites]]\nlisten_tls = 443\nroot = \"public\"\n";
    let positions: Vec<_> = findings(text)
        .iter()
        .map(|finding| finding.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        positions,
        ["2:18", "3:1", "6:10", "7:8", "8:11", "11:8", "14:14"]
    );
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    let folder = folder();
    let text = "[[sites]]\nlisten = 80\nroot = \"public\"\nlistin = true\n";
    let shown = parse_in(folder.path(), text).unwrap_err().to_string();
    assert_eq!(
        shown,
        "error: unknown key `listin`\n \
         --> apus.toml:4:1\n  \
         |\n\
         4 | listin = true\n  \
         | ^^^^^^ no such key in this table\n  \
         |\n  \
         = help: did you mean `listing`?\n\n\
         1 error"
    );
}

#[test]
fn shows_the_position_of_a_conflicting_key_too() {
    let folder = folder();
    let text = "[[sites]]\nlisten = 80\nroot = \"public\"\n[[sites.locations]]\npath = \"/a\"\n\
                [[sites.locations]]\npath = \"^~ /a\"\n";
    let shown = parse_in(folder.path(), text).unwrap_err().to_string();
    assert!(shown.contains("---- the other one"), "{shown}");
}

#[test]
fn colours_are_only_for_terminals() {
    let folder = folder();
    let mistakes = parse_in(folder.path(), "a = 1").unwrap_err();
    assert!(!mistakes.render(false).contains('\u{1b}'));
    assert!(mistakes.render(true).contains('\u{1b}'));
}

#[test]
fn a_certificate_that_expires_soon_is_a_warning() {
    let folder = folder();
    let mut parameters = rcgen::CertificateParams::new(["example.com".to_owned()]).unwrap();
    parameters.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(3);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    fs::write(folder.path().join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let text = "[[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    let warnings = parse_in(folder.path(), text).unwrap().warnings;
    assert_eq!((warnings.errors(), warnings.warnings()), (0, 1));
    assert!(warnings.to_string().contains("expires soon"));
}

#[test]
fn a_private_key_that_everybody_can_read_is_a_warning() {
    let folder = folder();
    let key = folder.path().join("key.pem");
    fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    let text = "[[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    let warnings = parse_in(folder.path(), text).unwrap().warnings;
    assert_eq!((warnings.errors(), warnings.warnings()), (0, 1));
    assert!(warnings.to_string().contains("chmod 600"), "{warnings}");
}

#[test]
fn a_key_log_is_a_warning_and_nothing_is_made_when_it_is_read() {
    let folder = folder();
    let text = "[global]\ntls_key_log = \"public/keys.log\"\n\
                [[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\", http3.qlog = \"public/qlog\" }\n";
    let plan = parse_in(folder.path(), text).unwrap();
    let warnings = plan.warnings.to_string();
    assert!(
        warnings.contains("whoever reads it can decrypt the traffic"),
        "{warnings}"
    );
    assert_eq!(
        plan.global.tls_key_log.as_deref(),
        Some(&*folder.path().join("public/keys.log"))
    );
    let http3 = plan.sites[0].http3.as_ref().unwrap();
    let qlog = folder.path().join("public/qlog");
    assert_eq!(http3.qlog.as_deref(), Some(&*qlog));
    // Nothing is made when a configuration is read.
    assert!(!qlog.exists() && !folder.path().join("public/keys.log").exists());
}

#[test]
fn the_defaults_are_those_of_the_engine() {
    let folder = folder();
    let plan = parse_in(folder.path(), SITE).unwrap();
    assert_eq!(plan.global.limits, Limits::default());
    assert!(plan.warnings.is_empty());
}

#[test]
fn included_files_hold_sites_and_their_mistakes_are_located_there() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "sites/a.toml",
        "[[sites]]\nname = \"a\"\nlisten = 81\nroot = \"../public\"\n",
    );
    write(
        "sites/b.toml",
        "[[sites]]\nname = \"b\"\nlisten = 82\nroot = \"../other\"\n",
    );
    let text = format!("include = [\"sites/*.toml\"]\n{SITE}");
    write("apus.toml", &text);
    let plan = config::load(&folder.path().join("apus.toml")).unwrap();
    let names: Vec<_> = plan.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["site-1", "a", "b"]);
    let Some(HandlerPlan::Files(files)) = &plan.sites[1].handler else {
        panic!("the site serves files");
    };
    let FilesRoot::Root(root) = &files.root else {
        panic!("the site has a root");
    };
    assert_eq!(
        root.canonicalize().unwrap(),
        folder.path().join("public").canonicalize().unwrap()
    );

    write(
        "sites/b.toml",
        "[global]\n\n[[sites]]\nlisten = 82\nrot = \"../other\"\n",
    );
    let mistakes = config::load(&folder.path().join("apus.toml"))
        .unwrap_err()
        .to_json();
    let places: Vec<_> = mistakes
        .as_array()
        .unwrap()
        .iter()
        .map(|mistake| {
            let file = mistake["file"].as_str().unwrap();
            let file = file.rsplit('/').next().unwrap();
            format!(
                "{file}:{}: {}",
                mistake["line"],
                mistake["message"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            "b.toml:1: `[global]` stands in an included file",
            "b.toml:3: the site has nothing to serve",
            "b.toml:5: unknown key `rot`",
        ]
    );
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("apus.toml", &format!("include = \"sites/a.toml\"\n{SITE}"));
    write("sites/a.toml", "include = \"../apus.toml\"\n");
    let mistakes = config::load(&folder.path().join("apus.toml")).unwrap_err();
    assert_eq!(mistakes.errors(), 1, "{mistakes}");
    assert!(
        mistakes.to_string().contains("sites/a.toml:1:11"),
        "{mistakes}"
    );
}

#[test]
fn sites_for_old_clients_have_certificates_with_rsa_keys_beside_others() {
    let kinds = |tls: &str| {
        let text = format!(
            "[global]\nacme_agree = true\n[[sites]]\nserver_name = \"example.com\"\nlisten_tls = 443\n\
             root = \"public\"\ntls = {{ {tls} }}\n"
        );
        let plan = parse_in(folder().path(), &text).unwrap();
        let orders = plan.sites[0].acme.iter();
        orders
            .map(|one| one.settings.key_type.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(""), ["p256"]);
    assert_eq!(kinds("policy = \"modern\""), ["p256"]);
    assert_eq!(kinds("policy = \"legacy\""), ["p256", "rsa2048"]);
    let given = kinds("policy = \"legacy\", acme_key_type = \"p384\"");
    assert_eq!(given, ["p384"]);
}

#[test]
fn http_2_is_offered_before_http_1_1() {
    let folder = folder();
    let offered = |keys: &str| {
        let tls = format!("tls = {{ cert = \"cert.pem\", key = \"key.pem\"{keys} }}");
        let text = format!("[[sites]]\nlisten_tls = 443\nroot = \"public\"\n{tls}\n");
        let plan = parse_in(folder.path(), &text).unwrap();
        let alpn = plan.sites[0].tls.clone().unwrap().alpn;
        let names = alpn
            .into_iter()
            .map(|name| String::from_utf8(name).unwrap());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(offered(""), "h2 http/1.1 http/1.0");
    assert_eq!(offered(", protocols = \"http/1.1\""), "http/1.1 http/1.0");
    assert_eq!(offered(", protocols = [\"h2\"]"), "h2");
    assert_eq!(
        offered(", protocols = [\"http/1.1\", \"h2\"]"),
        "http/1.1 http/1.0 h2"
    );
}

#[test]
fn the_limits_of_http_2_have_their_defaults_and_bounds() {
    let folder = folder();
    let limits = |global: &str| {
        let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
        parse_in(folder.path(), &format!("[global]\n{global}\n{site}"))
            .map(|plan| plan.global.limits)
    };
    let default = limits("").unwrap();
    let engine = Limits::default();
    assert_eq!(
        default.h2_max_concurrent_streams,
        engine.h2_max_concurrent_streams
    );
    assert_eq!(default.h2_max_frame_size, engine.h2_max_frame_size);
    assert_eq!(
        default.h2_requests_per_connection,
        engine.h2_requests_per_connection
    );
    assert_eq!(default.h2_ping_interval, engine.h2_ping_interval);
    assert_eq!(default.h2_receive_window, engine.h2_receive_window);
    let widest = limits(
        "h2_max_concurrent_streams = 32768\nh2_max_frame_size = 16777215\n\
         h2_ping_interval = 0\nh2_receive_window = 2097151",
    )
    .unwrap();
    assert_eq!(widest.h2_max_concurrent_streams, 32_768);
    assert_eq!(widest.h2_max_frame_size, 16_777_215);
    assert!(widest.h2_ping_interval.is_zero());
    assert!(widest.h2_receive_window <= i32::MAX as u32);
    for beyond in [
        "h2_max_concurrent_streams = 0",
        "h2_max_concurrent_streams = 32769",
        "h2_max_frame_size = 16383",
        "h2_max_frame_size = 16777216",
        "h2_receive_window = 255",
        "h2_receive_window = 2097152",
    ] {
        assert!(limits(beyond).is_err(), "{beyond}");
    }
}

#[test]
fn the_environment_fills_in_strings() {
    let folder = folder();
    let text = "[[sites]]\nlisten = \"127.0.0.1:${PORT}\"\nroot = \"${DIR:-public}\"\n";
    let plan = parse_in(folder.path(), text).unwrap();
    assert_eq!(
        plan.sites[0].listeners[0].address.to_string(),
        "127.0.0.1:8081"
    );
}

#[test]
fn reports_a_missing_file() {
    let mistakes = config::load(Path::new("/no/such/apus.toml")).unwrap_err();
    assert!(
        mistakes
            .to_string()
            .starts_with("error: cannot read /no/such/apus.toml: there is no such"),
        "{mistakes}"
    );
}

#[test]
fn the_examples_of_the_guides_are_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let mut examples = 0;
    for guide in fs::read_dir(docs).unwrap() {
        let path = guide.unwrap().path();
        // The files of `apus bench` are tested with it.
        let is_other = path.ends_with("benchmarking.md");
        if is_other || path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let guide = fs::read_to_string(&path).unwrap();
        let in_guide = guide
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        for example in in_guide {
            examples += 1;
            let text = match example {
                part if part.starts_with("[[sites.") => format!("{SITE}{part}"),
                part if part.starts_with("[sites.fastcgi") => {
                    format!("{SITE}php_fastcgi = \"[::1]:9\"\n{part}")
                }
                part if part.starts_with("[sites.tls.") => {
                    let tls =
                        "[sites.tls]\ncert = \"example.com.pem\"\nkey = \"example.com.key\"\n";
                    format!("{SITE}listen_tls = 443\n{tls}{part}")
                }
                part if part.starts_with("[sites.tls]") => {
                    format!("{SITE}listen_tls = 443\n{part}")
                }
                whole => whole.to_owned(),
            };
            // The folders, files and users that they name are not there.
            let mut others = findings(&text);
            let missing = [
                "there is no such file or folder",
                "there is no folder",
                "there is no socket",
                "there is no /index.php in",
                "there is no user `app`",
            ];
            others.retain(|finding| !missing.iter().any(|what| finding.contains(what)));
            assert!(others.is_empty(), "{}\n{text}\n{others:#?}", path.display());
        }
    }
    assert!(examples > 5);
}

#[test]
fn long_values_are_cut_in_messages() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(5000);
    let text = format!(
        "[[sites]]\nname = \"{long}\"\nlisten = \"{long}\"\nroot = \".\"\n{long} = 1\n\
         charset = \"{long}=\"\n[[sites]]\nname = \"{long}\"\nlisten = 1\nroot = \".\"\n"
    );
    let mistakes = parse_in(folder.path(), &text).unwrap_err();
    assert!(mistakes.errors() >= 3);
    for line in mistakes.render(false).lines() {
        assert!(line.chars().count() < 1000, "{line}");
    }
}
