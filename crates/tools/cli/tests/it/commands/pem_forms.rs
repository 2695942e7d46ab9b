//! What `apus check` says of certificates and keys in other forms than PEM, and whether the commands that it names help.

use std::fs;
use std::process::Command;

use crate::harness::Home;

/// Makes a root, an intermediate, a certificate of each for `localhost`, and all forms of them.
const MAKE: &str = r#"
set -e
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
for name in root middle leaf other; do key $name.key; done
openssl req -new -x509 -key root.key -subj /CN=Root -days 300 -out root.pem 2>/dev/null
sign() { # name, subject, issuer, extensions
    openssl req -new -key $1.key -subj /CN=$2 -out $1.csr
    printf "$4" > $1.ext
    openssl x509 -req -in $1.csr -CA $3.pem -CAkey $3.key -CAcreateserial -days 200 -extfile $1.ext -out $1.pem 2>/dev/null
}
sign middle Middle root "basicConstraints=critical,CA:true\nkeyUsage=keyCertSign\n"
sign leaf localhost middle "subjectAltName=DNS:localhost\n"
cat leaf.pem middle.pem > full.pem
cat middle.pem leaf.pem > reversed.pem
cat leaf.pem root.pem > gap.pem
# Forms of certificates.
printf '\xEF\xBB\xBF' | cat - full.pem > bom.pem
iconv -f ASCII -t UTF-16 full.pem > utf16.pem
openssl x509 -in leaf.pem -outform DER -out der.pem
openssl x509 -in leaf.pem -trustout -out trusted.pem
openssl crl2pkcs7 -nocrl -certfile full.pem -out p7.pem
openssl crl2pkcs7 -nocrl -certfile full.pem -outform DER -out p7der.pem
openssl pkcs12 -export -in full.pem -inkey leaf.key -passout pass: -out p12.pem
openssl pkey -in leaf.key -pubout -out public.pem
sed 's/^/    /' full.pem > indented.pem
awk '{printf "%s\\n", $0}' full.pem > escaped.pem
sed 's/$/\r/' full.pem > dos.pem
(echo "Bag Attributes"; echo "subject=CN = localhost"; cat full.pem) > text.pem
head -n 5 leaf.pem > cut.pem
: > empty.pem
mkdir folder.pem
# Forms of keys.
openssl pkey -in leaf.key -aes256 -passout pass:secret -out encrypted.key
openssl ec -in leaf.key -aes256 -passout pass:secret -out encrypted-ec.key 2>/dev/null
openssl pkey -in leaf.key -outform DER -out der.key
(openssl ecparam -name prime256v1; openssl ec -in leaf.key 2>/dev/null) > parameters.key
openssl ecparam -name prime256v1 > curve.key
cat other.key leaf.key > two.key
cat other.key root.key > two-wrong.key
sed 's/$/\r/' leaf.key > dos.key
(echo "Key Attributes"; cat leaf.key) > text.key
chmod 600 *.key
"#;

fn home() -> Home {
    let home = Home::new();
    let output = Command::new("bash")
        .args(["-c", MAKE])
        .current_dir(home.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    home
}

/// The output of `apus check` for a site with these files.
fn check(home: &Home, cert: &str, key: &str, is_good: bool) -> String {
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"localhost\"\nroot = \"site\"\nlisten_tls = 443\n\
             tls = {{ cert = \"{cert}\", key = \"{key}\" }}\n"
        ),
    );
    let (out, errors) = home.expect(&["check"], i32::from(!is_good));
    out + &errors
}

#[test]
fn certificates_and_keys_in_other_forms_are_said_in_words_with_the_command_that_helps() {
    let home = home();
    // The file, what is said of it, and the command.
    for (cert, words, command) in [
        ("empty.pem", "the file is empty", ""),
        ("folder.pem", "it is a folder, expected a file", ""),
        (
            "bom.pem",
            "byte order mark",
            "sed -i '1s/^\\xEF\\xBB\\xBF//' ",
        ),
        ("utf16.pem", "UTF-16", "iconv -f UTF-16 "),
        (
            "der.pem",
            "a certificate in the form DER",
            "openssl x509 -inform DER -in ",
        ),
        ("trusted.pem", "`TRUSTED CERTIFICATE`", "openssl x509 -in "),
        ("p7.pem", "PKCS#7", "openssl pkcs7 -in "),
        ("p7der.pem", "PKCS#7", "openssl pkcs7 -inform DER -in "),
        ("p12.pem", "PKCS#12", "openssl pkcs12 -in "),
        ("leaf.csr", "a request for one (CSR)", ""),
        ("public.pem", "a public key", ""),
        (
            "leaf.key",
            "but a private key: are the two files exchanged?",
            "",
        ),
        (
            "indented.pem",
            "its lines begin with spaces",
            "sed -i 's/^[[:space:]]*//' ",
        ),
        ("escaped.pem", "the two characters \\n", "printf '%b' "),
        ("cut.pem", "a block in it is damaged", ""),
        (
            "reversed.pem",
            "the private key belongs to number 2",
            "cat cert.pem issuer.pem",
        ),
        ("apus.toml", "there is no certificate in it", ""),
    ] {
        let said = check(&home, cert, "leaf.key", false);
        assert!(said.contains(words), "{cert}: {said}");
        assert!(said.contains(command), "{cert}: {said}");
    }
    for (key, words, command) in [
        ("empty.pem", "the file is empty", ""),
        ("folder.pem", "it is a folder, expected a file", ""),
        (
            "encrypted.key",
            "the private key is encrypted",
            "openssl pkey -in ",
        ),
        (
            "encrypted-ec.key",
            "the private key is encrypted",
            "openssl pkey -in ",
        ),
        (
            "der.key",
            "a private key in the form DER",
            "openssl pkey -inform DER -in ",
        ),
        ("p12.pem", "PKCS#12", "openssl pkcs12 -in "),
        ("curve.key", "the parameters of a curve", "openssl ecparam "),
        ("public.pem", "a public key", ""),
        (
            "full.pem",
            "but a certificate: are the two files exchanged?",
            "",
        ),
        ("leaf.csr", "a request for one (CSR)", ""),
        (
            "other.key",
            "the private key belongs to another certificate",
            "openssl pkey -in ",
        ),
        ("two-wrong.key", "none of the 2 private keys in it", ""),
    ] {
        let said = check(&home, "full.pem", key, false);
        assert!(said.contains(words), "{key}: {said}");
        assert!(said.contains(command), "{key}: {said}");
    }
    // What is only unusual is served, with a warning if clients may stumble over it.
    for (cert, key, warning) in [
        ("full.pem", "leaf.key", ""),
        ("dos.pem", "dos.key", ""),
        ("text.pem", "text.key", ""),
        ("full.pem", "parameters.key", ""),
        ("full.pem", "two.key", ""),
        (
            "leaf.pem",
            "leaf.key",
            "the certificate of its issuer (`CN=Middle`) is missing",
        ),
        (
            "gap.pem",
            "leaf.key",
            "in the wrong order, or one is missing: number 2 (`CN=Root`)",
        ),
    ] {
        let said = check(&home, cert, key, true);
        assert!(said.contains(warning), "{cert} {key}: {said}");
        assert_eq!(
            said.contains("missing"),
            !warning.is_empty(),
            "{cert} {key}: {said}"
        );
    }
}

#[test]
fn the_commands_that_help_with_other_forms_do_help() {
    let home = home();
    for (cert, key) in [
        ("bom.pem", "leaf.key"),
        ("utf16.pem", "leaf.key"),
        ("der.pem", "leaf.key"),
        ("trusted.pem", "leaf.key"),
        ("p7.pem", "leaf.key"),
        ("p7der.pem", "leaf.key"),
        ("p12.pem", "leaf.key"),
        ("indented.pem", "leaf.key"),
        ("escaped.pem", "leaf.key"),
        ("full.pem", "encrypted.key"),
        ("full.pem", "der.key"),
        ("full.pem", "p12.pem"),
    ] {
        let json = {
            check(&home, cert, key, false);
            home.expect(&["check", "--json"], 1).0
        };
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let text = json.to_string();
        let found = find_help(&json).unwrap_or_else(|| panic!("{cert} {key}: {text}"));
        // The passphrase is asked for.
        let given = found
            .replace("openssl pkey -in", "openssl pkey -passin pass:secret -in")
            .replace("openssl pkcs12 -in", "openssl pkcs12 -passin pass: -in");
        let output = Command::new("bash")
            .args(["-c", &given])
            .current_dir(home.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{given}: {output:?}");
        let mended = if home.path("new.pem").exists() {
            "new.pem"
        } else {
            // It was changed in its place.
            cert
        };
        let (cert, key) = match cert {
            "full.pem" => (cert, mended),
            _ => (mended, key),
        };
        check(&home, cert, key, true);
        let _ = fs::remove_file(home.path("new.pem"));
    }
}

fn find_help(json: &serde_json::Value) -> Option<String> {
    match json {
        serde_json::Value::Object(fields) => fields
            .get("help")
            .and_then(|help| help.as_str().map(str::to_owned))
            .or_else(|| fields.values().find_map(find_help)),
        serde_json::Value::Array(list) => list.iter().find_map(find_help),
        _ => None,
    }
}

#[test]
fn authorities_of_clients_and_origins_and_their_certificates_are_checked_in_the_same_way() {
    let home = home();
    for (file, words) in [
        ("der.pem", "openssl x509 -inform DER -in "),
        ("trusted.pem", "openssl x509 -in "),
        ("bom.pem", "byte order mark"),
        ("p7.pem", "openssl pkcs7 -in "),
        ("leaf.key", "but a private key"),
        ("empty.pem", "the file is empty"),
        ("folder.pem", "it is a folder"),
    ] {
        let client = format!(
            "[[sites]]\nserver_name = \"localhost\"\nroot = \"site\"\nlisten_tls = 443\n\
             tls = {{ cert = \"full.pem\", key = \"leaf.key\", client_auth = \"required\", client_ca = \"{file}\" }}\n"
        );
        let upstream = |tls: &str| {
            format!(
                "[[sites]]\nlisten = 0\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"https://localhost:1\"\n\
                 tls = {{ {tls} }}\n[[sites.locations]]\npath = \"/\"\nupstream = \"app\"\n"
            )
        };
        let mut configurations = vec![client, upstream(&format!("ca = \"{file}\""))];
        if file != "leaf.key" {
            configurations.push(upstream(&format!("cert = \"{file}\", key = \"leaf.key\"")));
        }
        for text in configurations {
            home.write("apus.toml", &text);
            let (out, errors) = home.expect(&["check"], 1);
            let said = out + &errors;
            assert!(said.contains(words), "{file}: {text}: {said}");
        }
    }
    let said = {
        let text = "[[sites]]\nlisten = 0\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"https://localhost:1\"\n\
             tls = { cert = \"full.pem\", key = \"encrypted.key\" }\n[[sites.locations]]\npath = \"/\"\nupstream = \"app\"\n";
        home.write("apus.toml", text);
        home.expect(&["check"], 1).1
    };
    assert!(said.contains("openssl pkey -in "), "{said}");
}

#[test]
fn an_import_says_of_other_forms_what_check_says() {
    let home = home();
    home.write(
        "apus.toml",
        "[global]\nacme_agree = true\nacme_folder = \"acme\"\n\
         [[sites]]\nserver_name = \"example.com\"\nroot = \"site\"\nlisten = 80\nlisten_tls = 443\n",
    );
    for (number, (cert, key, words)) in [
        ("der.pem", "leaf.key", "openssl x509 -inform DER -in "),
        ("full.pem", "encrypted.key", "openssl pkey -in "),
        ("bom.pem", "leaf.key", "byte order mark"),
        ("p12.pem", "leaf.key", "PKCS#12"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = format!("certbot-{number}");
        let live = home.path(&format!("{folder}/live/example.com"));
        fs::create_dir_all(&live).unwrap();
        fs::copy(home.path(cert), live.join("fullchain.pem")).unwrap();
        fs::copy(home.path(key), live.join("privkey.pem")).unwrap();
        let output = home.run(&["cert", "import", &folder]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{cert} {key}: {said}");
        assert!(said.contains(&folder), "{cert} {key}: {said}");
    }
}
