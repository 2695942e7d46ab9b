//! Fuzz targets of files of users, of key sets, and of signatures of bots.

use std::time::SystemTime;

use apus_layers::auth::{KeySet, Users};
use apus_layers::{BotClaim, BotProof, Bots, KnownBot};
use apus_testkit::get;

/// The key set of a bot, whose secret key is 32 bytes of 1.
const BOT: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"}]}"#;

/// A file of users. Each line is a user, or is named with its number and without its text. What is valid stays valid when lines
/// are read one by one.
pub fn htpasswd(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let is_user = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    };
    match Users::from_htpasswd(&text) {
        Ok(users) => {
            let lines: Vec<_> = text.lines().filter(|line| is_user(line)).collect();
            assert_eq!(users.is_empty(), lines.is_empty());
            assert!(users.weak() <= lines.len());
            for line in lines {
                assert!(Users::from_htpasswd(line).is_ok(), "{line}");
            }
            // The names are shown, and no hash.
            assert!(!format!("{users:?}").contains("$2y$05$"));
        }
        Err(invalid) => {
            let numbers: Vec<_> = invalid.iter().map(|user| user.line).collect();
            assert!(numbers.is_sorted() && !numbers.is_empty());
            for number in numbers {
                let line = text.lines().nth(number - 1).expect("a line of the file");
                assert!(is_user(line), "{line}");
            }
        }
    }
}

/// A key set is read or refused, and what is read has a key for signatures.
pub fn jwks(data: &[u8]) {
    let Ok(keys) = KeySet::parse(data) else {
        return;
    };
    assert!((1..=100).contains(&keys.len()));
    // Each key alone is read as well, or left out again.
    let whole: serde_json::Value = serde_json::from_slice(data).expect("a set that was read");
    let members = whole["keys"].as_array().expect("a set that was read");
    let alone = members.iter().filter(|key| {
        let set = serde_json::json!({ "keys": [key] }).to_string();
        KeySet::parse(set.as_bytes()).is_ok()
    });
    assert_eq!(alone.count(), keys.len());
}

/// A signed request: the lines are `Signature-Input`, `Signature`, `Signature-Agent` and others. `KEY` stands for the thumbprint of the key
/// of a bot, and `NOW` for the time, so that more than the syntax is looked at. Without the key nobody is the bot.
pub fn bot_signature(data: &[u8]) {
    let set = KeySet::parse(BOT.as_bytes()).expect("a set of one key");
    let thumbprint = set.thumbprints().next().expect("its thumbprint").to_owned();
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    let now = now.as_secs().to_string();
    let text = String::from_utf8_lossy(data)
        .replace("KEY", &thumbprint)
        .replace("NOW", &now);
    let mut request = get("/a?b").with("host", "a.example").request();
    let fields = ["signature-input", "signature", "signature-agent", "x"];
    let names = fields
        .into_iter()
        .chain(std::iter::repeat("signature-input"));
    for (name, line) in names.zip(text.lines()).take(16) {
        let _ = request.headers_mut().try_append(name, line);
    }
    let bots = Bots::new().bot(KnownBot::new("bot").key_set(set));
    assert!(bots.identify(&mut request).is_none(), "the keys are here");
    if let Some(claim) = BotClaim::of(&request) {
        assert_eq!(claim.proof, BotProof::Refuted);
    }
}
