//! Signatures of requests (RFC 9421) with the tag of Web Bot Auth (draft-ietf-webbotauth-httpsig-protocol).

use std::borrow::Cow;

use apus_http::Request;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

use super::structured_field::{FieldDictionary, FieldItem, FieldList, FieldMember, FieldValue};

/// The signatures of a request that are looked at.
const MAX_SIGNATURES: usize = 4;
/// The most bytes that are signed.
const MAX_BASE_BYTES: usize = 16 * 1024;
/// The longest time from the creation of a signature to its end, in seconds: the draft recommends no more than a day.
const MAX_LIFETIME: u64 = 86_400;
/// How far the clock of a bot may be off, in seconds.
const CLOCK_SKEW: u64 = 30;

/// The fields of a request that are about signatures.
pub(super) struct SignatureFields<'r> {
    input: Cow<'r, str>,
    signature: Cow<'r, str>,
    agent: Option<Cow<'r, str>>,
}

/// A signature of a bot.
pub(super) struct BotSignature<'f> {
    input: FieldList<'f>,
    signature: Vec<u8>,
    agent: Option<SignatureAgent>,
}

/// Where the keys of a bot are, by its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignatureAgent {
    /// In the directory of an origin.
    Directory { origin: String },
    /// At a URL.
    Url(String),
}

impl<'r> SignatureFields<'r> {
    /// The fields of a request; `None` if it is not signed, or if they have bytes that are not ASCII.
    pub(super) fn of(request: &'r Request) -> Option<Self> {
        Some(Self {
            input: field(request, "signature-input")?,
            signature: field(request, "signature")?,
            agent: match request.headers().get("signature-agent") {
                Some(_) => Some(field(request, "signature-agent")?),
                None => None,
            },
        })
    }

    /// The signatures of bots; none if the fields are invalid.
    pub(super) fn signatures(&self) -> Vec<BotSignature<'_>> {
        let inputs = FieldDictionary::parse(&self.input);
        let (Some(inputs), Some(signatures)) = (inputs, FieldDictionary::parse(&self.signature))
        else {
            return Vec::new();
        };
        let found = inputs.iter().filter_map(|(label, input)| {
            let FieldMember::List(input) = input else {
                return None;
            };
            if input.parameters.text("tag") != Some("web-bot-auth") {
                return None;
            }
            let FieldMember::Item(FieldItem {
                value: FieldValue::Bytes(signature),
                ..
            }) = signatures.get(label)?
            else {
                return None;
            };
            let agent = match &self.agent {
                Some(agent) => Some(signed_agent(agent, input, label)?),
                None => None,
            };
            Some(BotSignature {
                input: input.clone(),
                signature: signature.clone(),
                agent,
            })
        });
        found.take(MAX_SIGNATURES).collect()
    }
}

impl BotSignature<'_> {
    /// The thumbprint of the key (RFC 7638).
    pub(super) fn key_id(&self) -> Option<&str> {
        self.input.parameters.text("keyid")
    }

    /// What the bot says of its keys.
    pub(super) fn agent(&self) -> Option<&SignatureAgent> {
        self.agent.as_ref()
    }

    /// Whether the signature is in force at a second, and was not made for a long time.
    pub(super) fn is_in_force(&self, now: u64) -> bool {
        let time = |name| u64::try_from(self.input.parameters.integer(name)?).ok();
        let (Some(created), Some(expires)) = (time("created"), time("expires")) else {
            return false;
        };
        created <= now.saturating_add(CLOCK_SKEW)
            && now <= expires.saturating_add(CLOCK_SKEW)
            && expires
                .checked_sub(created)
                .is_some_and(|lifetime| lifetime <= MAX_LIFETIME)
    }

    /// Whether an Ed25519 key has made the signature for this request.
    pub(super) fn is_of(&self, key: &[u8], request: &Request) -> bool {
        let parameters = &self.input.parameters;
        if parameters.get("alg").is_some() && parameters.text("alg") != Some("ed25519") {
            return false;
        }
        let Some(base) = self.base(request) else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, key)
            .verify(base.as_bytes(), &self.signature)
            .is_ok()
    }

    /// What is signed (RFC 9421 section 2.5). `None` if it is not for one authority, covers what the request does not have, or what
    /// this server does not know.
    fn base(&self, request: &Request) -> Option<String> {
        let mut base = String::new();
        let mut is_for_authority = false;
        for (at, component) in self.input.items.iter().enumerate() {
            if self
                .input
                .items
                .iter()
                .take(at)
                .any(|known| known == component)
            {
                return None;
            }
            let FieldValue::Text(name) = &component.value else {
                return None;
            };
            is_for_authority |= matches!(&**name, "@authority" | "@target-uri");
            component.write(&mut base);
            base.push_str(": ");
            match name.strip_prefix('@') {
                Some(derived) if component.parameters.iter().next().is_none() => {
                    write_derived(derived, request, &mut base)?;
                }
                Some(_) => return None,
                None => write_field(component, name, request, &mut base)?,
            }
            base.push('\n');
            if base.len() > MAX_BASE_BYTES {
                return None;
            }
        }
        base.push_str("\"@signature-params\": ");
        self.input.write(&mut base);
        is_for_authority.then_some(base)
    }
}

/// The lines of a field as one value (RFC 9421 section 2.1).
fn field<'r>(request: &'r Request, name: &'r str) -> Option<Cow<'r, str>> {
    let mut lines = request.headers().get_all(name);
    let text = |line: &'r [u8]| {
        let text = std::str::from_utf8(line.trim_ascii()).ok()?;
        text.is_ascii().then_some(text)
    };
    let first = text(lines.next()?)?;
    let mut value = Cow::Borrowed(first);
    for line in lines {
        let value = value.to_mut();
        value.push_str(", ");
        value.push_str(text(line)?);
        if value.len() > MAX_BASE_BYTES {
            return None;
        }
    }
    Some(value)
}

/// A component that is derived from the request (RFC 9421 section 2.2).
fn write_derived(name: &str, request: &Request, base: &mut String) -> Option<()> {
    let target = request.original_target();
    match name {
        "method" => base.push_str(request.method().as_str()),
        "authority" => base.push_str(request.authority()?),
        "scheme" => base.push_str(request.scheme()),
        "target-uri" => {
            base.push_str(request.scheme());
            base.push_str("://");
            base.push_str(request.authority()?);
            base.push_str(target.path_and_query());
        }
        "request-target" => base.push_str(target.as_str()),
        "path" => base.push_str(target.path()),
        "query" => {
            base.push('?');
            base.push_str(target.query().unwrap_or_default());
        }
        _ => return None,
    }
    Some(())
}

/// A field, or a member of one that is a dictionary (RFC 9421 sections 2.1 and 2.1.2).
fn write_field(
    component: &FieldItem<'_>,
    name: &str,
    request: &Request,
    base: &mut String,
) -> Option<()> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let value = field(request, name)?;
    match member_key(component)? {
        None => base.push_str(&value),
        Some(key) => FieldDictionary::parse(&value)?.get(key)?.write(base),
    }
    Some(())
}

/// The name of the member that a component is; `None` in it for the whole field. Other parameters are unknown.
fn member_key<'c>(component: &'c FieldItem<'_>) -> Option<Option<&'c str>> {
    let mut parameters = component.parameters.iter();
    match (parameters.next(), parameters.next()) {
        (None, _) => Some(None),
        (Some(("key", FieldValue::Text(key))), None) => Some(Some(key)),
        _ => None,
    }
}

/// What `Signature-Agent` says, if the signature covers that.
fn signed_agent(field: &str, input: &FieldList<'_>, label: &str) -> Option<SignatureAgent> {
    let is_agent = |item: &&FieldItem<'_>| matches!(&item.value, FieldValue::Text(name) if name == "signature-agent");
    let mut keys = Vec::new();
    for item in input.items.iter().filter(is_agent) {
        keys.push(member_key(item)?);
    }
    if field.starts_with('"') {
        // The form of earlier drafts.
        let item = FieldDictionary::parse_item(field)?;
        return keys.contains(&None).then(|| SignatureAgent::read(&item))?;
    }
    let agents = FieldDictionary::parse(field)?;
    let member = match keys.first()? {
        None => agents.get(label),
        Some(_) if keys.contains(&Some(label)) => agents.get(label),
        Some(key) => agents.get(key),
    };
    match member? {
        FieldMember::Item(item) => SignatureAgent::read(item),
        FieldMember::List(_) => None,
    }
}

impl SignatureAgent {
    fn read(item: &FieldItem<'_>) -> Option<Self> {
        let FieldValue::Text(url) = &item.value else {
            return None;
        };
        match item.parameters.get("type") {
            None | Some(FieldValue::Token("directory")) => Some(Self::Directory {
                origin: origin(url)?,
            }),
            Some(FieldValue::Token("jwks_uri" | "cimd")) => {
                Some(Self::Url(url.clone().into_owned()))
            }
            Some(_) => None,
        }
    }

    /// Whether these are the keys at a URL.
    pub(super) fn is_at(&self, directory: &str) -> bool {
        match self {
            Self::Directory { origin: named } => origin(directory).as_ref() == Some(named),
            Self::Url(url) => url == directory,
        }
    }
}

/// The origin of a URL (RFC 6454 section 6.2), without the default port.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match &*scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let authority = authority.strip_suffix(port).unwrap_or(&authority);
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    Some(format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use apus_testkit::ask;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    /// The key of RFC 9421 appendix B.1.4.
    const TEST_KEY: &str = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";

    fn key() -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(TEST_KEY).unwrap()
    }

    /// The request of RFC 9421 appendix B.2.
    const TEST_REQUEST: [&str; 5] = [
        "Date: Tue, 20 Apr 2021 02:07:55 GMT",
        "Content-Type: application/json",
        "Content-Digest: sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
        "Content-Length: 18",
        "X-Unused: 1",
    ];

    const B26_INPUT: &str = "sig-b26=(\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \"content-length\")\
         ;created=1618884473;keyid=\"test-key-ed25519\"";
    const B26_SIGNATURE: &str =
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==";

    fn is_signed(lines: &[&str], method: &str) -> bool {
        let request = ask(method, "/foo?param=Value&Pet=dog")
            .lines(lines)
            .request();
        let fields = SignatureFields::of(&request).unwrap();
        let inputs = FieldDictionary::parse(&fields.input).unwrap();
        let signatures = FieldDictionary::parse(&fields.signature).unwrap();
        let Some(FieldMember::List(input)) = inputs.get("sig-b26") else {
            panic!("no list");
        };
        let Some(FieldMember::Item(FieldItem {
            value: FieldValue::Bytes(signature),
            ..
        })) = signatures.get("sig-b26")
        else {
            panic!("no signature");
        };
        let signature = BotSignature {
            input: input.clone(),
            signature: signature.clone(),
            agent: None,
        };
        signature.is_of(&key(), &request)
    }

    #[test]
    fn the_signature_of_rfc_9421_appendix_b_2_6_is_valid() {
        let input = format!("Signature-Input: {B26_INPUT}");
        let signature = format!("Signature: sig-b26=:{B26_SIGNATURE}:");
        let mut lines = TEST_REQUEST.to_vec();
        lines.extend([&*input, &*signature]);
        assert!(is_signed(&lines, "POST"));
        assert!(!is_signed(&lines, "PUT"));
        for at in 0..4 {
            let mut changed = lines.clone();
            let longer = format!("{}1", lines[at]);
            changed[at] = &longer;
            // The digest is not covered.
            assert_eq!(is_signed(&changed, "POST"), at == 2, "{longer}");
        }
        let twice = "Date: Tue, 20 Apr 2021 02:07:55 GMT";
        lines.push(twice);
        assert!(
            !is_signed(&lines, "POST"),
            "the lines of a field are joined"
        );
    }

    /// The test vectors of the draft that are of Ed25519: the fields, and what they say of the keys.
    const VECTORS: [([&str; 3], Option<&str>); 3] = [
        (
            [
                "Signature-Input: sig1=(\"@authority\");created=1735689600;keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\";alg=\"ed25519\";expires=4889289600;nonce=\"zIW8+cdmA3vdYagbxojpONwa/l0EKJ/O3/wD486VvsQjO/RxPaSt6ZxvQaMcQzNnqKN/mQ6hpGiFro2L2qkz5A==\";tag=\"web-bot-auth\"",
                "Signature: sig1=:QKN4fTdIYfh82fvoZCQiQA1weuozfCS/Led2zTMbewMMqH8PI2Wsy/5c4ao6B6D09nraNQdBNOADg8aM1MqfCg==:",
                "X-Unused: 1",
            ],
            None,
        ),
        (
            [
                "Signature-Input: sig2=(\"@authority\" \"signature-agent\";key=\"agent2\");created=1735689600;keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\";alg=\"ed25519\";expires=4889289600;nonce=\"n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==\";tag=\"web-bot-auth\"",
                "Signature: sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
                "Signature-Agent: agent2=\"https://signature-agent.test\"",
            ],
            Some("https://signature-agent.test"),
        ),
        (
            // The form of earlier drafts.
            [
                "Signature-Input: sig2=(\"@authority\" \"signature-agent\");created=1735689600;keyid=\"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U\";alg=\"ed25519\";expires=1735693200;nonce=\"e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==\";tag=\"web-bot-auth\"",
                "Signature: sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
                "Signature-Agent: \"https://signature-agent.test\"",
            ],
            Some("https://signature-agent.test"),
        ),
    ];

    fn request(host: &str, lines: &[&str]) -> Request {
        let request = ask("GET", "/path/to/resource").lines(lines);
        request.with("host", host).request()
    }

    #[test]
    fn the_test_vectors_of_web_bot_auth_are_valid() {
        for (lines, agent) in VECTORS {
            let of = |host: &str| {
                let request = request(host, &lines);
                let fields = SignatureFields::of(&request).unwrap();
                let signatures = fields.signatures();
                let [signature] = &*signatures else {
                    panic!("{} signatures of {lines:?}", signatures.len());
                };
                assert_eq!(
                    signature.key_id(),
                    Some("poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U")
                );
                let origin = agent.map(|origin| SignatureAgent::Directory {
                    origin: origin.to_owned(),
                });
                assert_eq!(signature.agent(), origin.as_ref());
                signature.is_of(&key(), &request)
            };
            assert!(of("example.com"), "{lines:?}");
            assert!(of("EXAMPLE.com:80"), "{lines:?}");
            assert!(!of("www.example.com"), "{lines:?}");
        }
    }

    fn signatures(lines: &[&str]) -> usize {
        let request = request("example.com", lines);
        SignatureFields::of(&request).map_or(0, |fields| fields.signatures().len())
    }

    #[test]
    fn an_agent_that_is_not_signed_makes_the_signature_invalid() {
        let ([input, signature, _], _) = VECTORS[0];
        assert_eq!(signatures(&[input, signature]), 1);
        for agent in [
            "Signature-Agent: \"https://signature-agent.test\"",
            "Signature-Agent: sig1=\"https://signature-agent.test\"",
            "Signature-Agent: ",
            "Signature-Agent: \u{e4}",
        ] {
            assert_eq!(signatures(&[input, signature, agent]), 0, "{agent}");
        }
        let ([input, signature, agent], _) = VECTORS[1];
        assert_eq!(signatures(&[input, signature, agent]), 1);
        for other in [
            "Signature-Agent: sig2=\"https://signature-agent.test\"",
            "Signature-Agent: agent2=https",
            "Signature-Agent: agent2=\"data:text/plain,a\"",
            "Signature-Agent: agent2=\"https://signature-agent.test\";type=other",
            "Signature-Agent: agent2=(\"https://signature-agent.test\")",
        ] {
            assert_eq!(signatures(&[input, signature, other]), 0, "{other}");
            assert_eq!(
                signatures(&[input, signature, agent, other]),
                usize::from(other.contains(" sig2"))
            );
        }
    }

    #[test]
    fn signatures_for_other_purposes_and_odd_fields_are_none() {
        let ([input, signature, _], _) = VECTORS[0];
        for (input, signature) in [
            (&*input.replace("web-bot-auth", "other"), signature),
            (
                &*input.replace("tag=\"web-bot-auth\"", "tag=web-bot-auth"),
                signature,
            ),
            (&*input.replace("sig1", "sig2"), signature),
            (&*input.replace("created=", "created=1;created="), signature),
            (
                &*input.replace("(\"@authority\")", "\"@authority\""),
                signature,
            ),
            (input, &*signature.replace("=:", "=x:")),
            (input, &*signature.replace(":QK", ":QK ")),
            (input, "X: 1"),
            ("X: 1", signature),
        ] {
            assert_eq!(signatures(&[input, signature]), 0, "{input} {signature}");
        }
        assert_eq!(signatures(&[input, input, signature]), 0);
        assert_eq!(signatures(&[input, signature, signature]), 0);
    }

    #[test]
    fn only_what_the_request_has_is_signed() {
        let base = |components: &str| {
            let input = format!("Signature-Input: a=({components});created=1;tag=\"web-bot-auth\"");
            let lines = [
                &*input,
                "Signature: a=:aGk=:",
                "X: 1",
                "X:  2 ",
                "D: a=1,b=\"x\"",
                "E:",
            ];
            let request = ask("GET", "/p?q=1").lines(&lines);
            let request = request.with("host", "A.example:8080").request();
            let fields = SignatureFields::of(&request).unwrap();
            let signatures = fields.signatures();
            signatures
                .first()
                .and_then(|signature| signature.base(&request))
        };
        for (components, expected) in [
            (r#""@authority""#, "\"@authority\": a.example:8080\n"),
            (
                r#""@target-uri""#,
                "\"@target-uri\": http://a.example:8080/p?q=1\n",
            ),
            (
                r#""@authority" "@method" "@scheme" "@request-target" "@path" "@query""#,
                "\"@authority\": a.example:8080\n\"@method\": GET\n\"@scheme\": http\n\"@request-target\": /p?q=1\n\"@path\": /p\n\"@query\": ?q=1\n",
            ),
            (
                r#""@authority" "x" "e""#,
                "\"@authority\": a.example:8080\n\"x\": 1, 2\n\"e\": \n",
            ),
            (
                r#""@authority" "d";key="b" "d";key="a""#,
                "\"@authority\": a.example:8080\n\"d\";key=\"b\": \"x\"\n\"d\";key=\"a\": 1\n",
            ),
        ] {
            let expected = format!(
                "{expected}\"@signature-params\": ({components});created=1;tag=\"web-bot-auth\""
            );
            assert_eq!(
                base(components).as_deref(),
                Some(&*expected),
                "{components}"
            );
        }
        for components in [
            "",
            r#""@method""#,
            r#""@authority" "@authority""#,
            r#""@authority" "nothing""#,
            r#""@authority" "X""#,
            r#""@authority" "d";key="c""#,
            r#""@authority" "x";sf"#,
            r#""@authority" "x";bs"#,
            r#""@authority" "d";key="a";req"#,
            r#""@authority";req"#,
            r#""@authority" "@signature-params""#,
            r#""@authority" "@status""#,
            r#""@authority" "@query-param";name="q""#,
            r#""@authority" x"#,
        ] {
            assert_eq!(base(components), None, "{components}");
        }
    }

    #[test]
    fn a_signature_is_in_force_for_a_day_at_most() {
        let is_in_force = |parameters: &str, now: u64| {
            let input =
                format!("Signature-Input: a=(\"@authority\"){parameters};tag=\"web-bot-auth\"");
            let request = request("a.example", &[&input, "Signature: a=:aGk=:"]);
            let fields = SignatureFields::of(&request).unwrap();
            fields.signatures()[0].is_in_force(now)
        };
        let of_a_minute = ";created=1000;expires=1060";
        for (now, expected) in [(969, false), (970, true), (1090, true), (1091, false)] {
            assert_eq!(is_in_force(of_a_minute, now), expected, "{now}");
        }
        assert!(is_in_force(";created=1000;expires=87400", 1000));
        for parameters in [
            ";created=1000;expires=87401",
            ";created=1000",
            ";expires=1060",
            ";created=1060;expires=1000",
            ";created=-1;expires=1060",
            ";created=\"1000\";expires=1060",
        ] {
            assert!(!is_in_force(parameters, 1000), "{parameters}");
        }
    }

    #[test]
    fn an_origin_has_one_form() {
        for (url, expected) in [
            ("https://A.example:443/x?y", Some("https://a.example")),
            ("HTTPS://a.example", Some("https://a.example")),
            ("http://a.example:80", Some("http://a.example")),
            ("http://a.example:443", Some("http://a.example:443")),
            ("https://u@a.example", None),
            ("https:///x", None),
            ("a.example", None),
            ("data://x", None),
        ] {
            assert_eq!(origin(url).as_deref(), expected, "{url}");
        }
    }
}
