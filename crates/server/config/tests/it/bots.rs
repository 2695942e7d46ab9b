//! Bots that prove who they are.

use std::fs;

use crate::documents::{folder, parse_in};

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

/// What is wrong with a file, and where.
fn findings(text: &str) -> Vec<String> {
    let folder = folder();
    // RFC 9421 appendix B.1.4.
    let test_key = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}]}"#;
    fs::write(folder.path().join("test.jwks"), test_key).unwrap();
    let rsa = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#;
    fs::write(folder.path().join("rsa.jwks"), rsa).unwrap();
    let found = match parse_in(folder.path(), text) {
        Ok(plan) => plan.warnings.to_string(),
        Err(diagnostics) => diagnostics.to_string(),
    };
    let findings = found
        .split("\n\n")
        .filter(|finding| finding.contains("-->"));
    findings
        .map(|finding| finding.lines().take(2).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn mistakes_of_bots_are_told_with_their_places() {
    for (lines, expected) in [
        (
            "[[global.bots]]\nname = \"a\"\n",
            "nothing proves that a request is from this bot",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nhosts = \"com\"\n",
            "`com` is not a name of hosts",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\nuser_agent = \"b\"\n",
            "`user_agent` without `hosts`",
        ),
        (
            "[global]\nbots_resolver = \"192.0.2.53\"\n",
            "no bot has `hosts`",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\ndirectory = \"https://a.example/k\"\n",
            "the keys of a bot come from one place",
        ),
        (
            "[[global.bots]]\nname = \"a b\"\nkeys_file = \"jwks.json\"\n",
            "`a b` is not a name",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\n[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\n",
            "two bots are called `a`",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"public\"\n",
            "cannot read",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwt.key\"\n",
            "this is no JSON Web Key Set",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"rsa.jwks\"\n",
            "no key of the set is of Ed25519",
        ),
        (
            "[[global.bots]]\nname = \"a\"\nkeys_file = \"test.jwks\"\n",
            "the key of RFC 9421, with which everybody can sign",
        ),
        (
            "[[global.bots]]\nname = \"a\"\ndirectory = \"http://a.example/k\"\n",
            "keys come in clear text",
        ),
        (
            "[[global.bots]]\nname = \"a\"\ndirectory = \"a.example\"\n",
            "`a.example` is not a URL",
        ),
    ] {
        let found = findings(&format!("{lines}{SITE}"));
        assert_eq!(found.len(), 1, "{lines}\n{found:#?}");
        assert!(found[0].contains(expected), "{lines}\n{found:#?}");
    }
}

#[test]
fn a_condition_on_a_bot_that_there_is_not_is_a_mistake() {
    let bot = "[[global.bots]]\nname = \"search\"\nkeys_file = \"jwks.json\"\n";
    let rule = |when: &str| format!("{SITE}[[sites.rules]]\nwhen = '{when}'\ndeny = 403\n");
    for (when, expected) in [
        ("bot == \"serach\"", "no bot is called `serach`, but search"),
        (
            "bot.claimed in [\"search\", \"other\"]",
            "no bot is called `other`, but search",
        ),
    ] {
        let found = findings(&format!("{bot}{}", rule(when)));
        assert_eq!(found.len(), 1, "{when}\n{found:#?}");
        assert!(found[0].contains(expected), "{when}\n{found:#?}");
    }
    let found = findings(&rule("bot == \"search\""));
    assert!(found[0].contains("no bots are known here"), "{found:#?}");
    for when in [
        "bot == \"search\"",
        "bot exists",
        "bot ~ \"^s\"",
        "bot.false",
        "not bot exists and bot.claimed != \"search\"",
    ] {
        assert_eq!(findings(&format!("{bot}{}", rule(when))), [""; 0], "{when}");
    }
}
