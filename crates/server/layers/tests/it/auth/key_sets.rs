//! Tokens that are signed with a key of a JSON Web Key Set (RFC 7517), from a file and from a URL.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_http::{Body, Request, Response, ServiceFactory, StatusCode, service_fn};
use apus_layers::auth::jsonwebtoken::jwk::Jwk;
use apus_layers::auth::jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use apus_layers::auth::{InvalidKeySet, JwtAuth, KeySet, RemoteKeySet};
use apus_testkit::LocalClient;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::bearer;
use crate::harness::Routes;

/// Keys for these tests only.
const RSA: &str = "-----BEGIN PRIVATE KEY-----
MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQCuO7zj/RQbkt4A
jIff+uY6KZiQaT1+aHsDz1WXSWyksl/EDhH3Jy00AB75evEoDCcTptt5ZJhrh3WB
3iTmevniPEeBAMn95UBiOalgeFZav51iJTbPCrVl63T4HlHaICt5tXR/EpqT+NRe
6TqTwJpcfJyTYq8FYtTQgpc/nnssN/hXUF6zTeTGbzwgSRRo76P9FoVSyFm4skOn
TDoh6QtMlVSsMykiXYMsRy9o4oOm+ZettkiGGdfelxktyMXhKxiuAY4mZwI5Zyy6
ILbJW5AnT2WaFxzWPQTEayQLGirRL/z6tmrF/oruelTCOWtHY1UJbFXui1ASTAIp
hbMtSw+lAgMBAAECggEAAUW359KlDId/yLFosPAdhslfecHUUbbpxmRuS6lyWj3g
OP0LpgpP8vGDnbmcsbjBqfZ9uKRNVaRarWeweCC9RZOVnRb4TVBDg67H8nJRL8lM
Q6zMZT9+2snuTn01hqTV/xtIs2swxvRZ+VXK2EyKLrM37H6bvcET7Jrg3QrR+50W
P0AGLAOH4aVb59nizori/Mb93NX2MC8Cvwz6IuYEvmSVl/AgHhhcMVmuHrVDNwn7
QadvEV8Sr6feMe7uBN8l8r1xQ4A/MOUeouJ17MlJzDDouWe8uV0uR/kcG6T8X6c9
UxD8yBVtSyNm34QIxa/3N7HqiSzaYhrUz2vNfAsE6QKBgQDuIsDuYkoClfh9Vk7Q
6r7kM0YApgoC2UOYNKhYO1J04zU9kwV5c77ELYzdTdgh4JquZjTRAkEiikHv527T
KNpKXJrOSnggCh3wxHyxBzBXUPQwWzkyjx7Kx1sf04Nt9lHxiajVqp/WkwnRdZwh
ZdsgUcKGi+e6+8zBCOIrD8aTLQKBgQC7TcdsX53nthuatChcIxt4bHBh0cp+6diH
1+LyU6ChVeYA+glTvM6lHhaQe5DdRHXX9LcmwiIMtbPJaLKAZkukboX+yUAK/Ctl
abWZIN4xwsQYl+fgJkWZQRlsWCsTtCjPgGYO2btPW47Rh5frTk3RUO7pxR9LSuST
l4HWj/yZWQKBgQDUeLm/eH8kc371Bc7o5KpRndX1ui/wfr2qzkDuCG/3zsmwGL+n
r7gj/ahTxKL1Bxu8Q4EYg3RuRwGx9cKSMT8jXiDZsuQfYid4rTe8E/fz0E0v4BTW
oZANyXXqnaQEtuRCKFs12TkoEKWP9+nIesLawVhZB/dIhGYaTbzOQxMgOQKBgFo/
IpxEAdg4NVq3/U5PmBfQ3+Ex7QhzceIaEf5Cbv3tXnIQB1hye3qxYZvh/a2vI7yW
63xgQ3muPt8HdCJLp5ylqChYHWRtlhc59MbAQG7ncgaLgqzMo/IwnKhIXxESWCuK
qSH0pLya19h7Jaa5xuLYxRSb5vUnM7UtZeDU5ZeZAoGBAMpIMWkZx/wAQADd+DI2
y+ppHOunIKB0Qh+7kZK66HrhFJhL7kBfycUGpyIKSJX4J/o7Cp6W41TAYnLc41Gr
fH8ZRL1gj3wsyZhDAZXVJPhtJq52OgTH3pL9fc+Qqy9KjV2pHgzvZuZbWAEAcd5i
U2WGbwu/+ujq6T8qFt+ZZv/A
-----END PRIVATE KEY-----
";
const EC: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgI/sfF1W9Nx8Hicld
q64A9QdytO2HwdJe5gVPheymEBqhRANCAARY33Lwo4FcEBraZ7BzizhGqPYyQDlX
LUxCkL1UBd1rI/vLNPCgN/HSinbYmc//Pm7oLftihLdQiEUrI0zbsxNh
-----END PRIVATE KEY-----
";
const ED: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJpK+EXVfsqkDAogjGxJpKDxk8UT5Bjto9QP6jk6yrIA
-----END PRIVATE KEY-----
";

fn key(pem: &str) -> EncodingKey {
    let pem = pem.as_bytes();
    match pem.len() {
        ..200 => EncodingKey::from_ed_pem(pem),
        200..1000 => EncodingKey::from_ec_pem(pem),
        _ => EncodingKey::from_rsa_pem(pem),
    }
    .unwrap()
}

/// The public key, with further members.
fn jwk(pem: &str, algorithm: Algorithm, members: Value) -> Value {
    let jwk = Jwk::from_encoding_key(&key(pem), algorithm).unwrap();
    let mut jwk = serde_json::to_value(jwk).unwrap();
    jwk.as_object_mut().unwrap().remove("alg");
    for (name, value) in members.as_object().unwrap() {
        jwk[name] = value.clone();
    }
    jwk
}

fn token(pem: &str, algorithm: Algorithm, id: Option<&str>) -> String {
    let header = Header {
        kid: id.map(str::to_owned),
        ..Header::new(algorithm)
    };
    let claims = json!({"sub": "ada", "exp": 4_000_000_000_u64});
    encode(&header, &claims, &key(pem)).unwrap()
}

fn set(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn issuer_keys() -> Vec<u8> {
    set(&[
        jwk(RSA, Algorithm::RS256, json!({"kid": "rsa", "use": "sig"})),
        jwk(
            RSA,
            Algorithm::RS256,
            json!({"kid": "rs256", "alg": "RS256"}),
        ),
        jwk(
            RSA,
            Algorithm::RS256,
            json!({"kid": "encryption", "use": "enc"}),
        ),
        jwk(
            EC,
            Algorithm::ES256,
            json!({"kid": "ec", "key_ops": ["verify"]}),
        ),
        jwk(
            EC,
            Algorithm::ES256,
            json!({"kid": "signing", "key_ops": ["sign"]}),
        ),
        jwk(ED, Algorithm::EdDSA, json!({"kid": "ed"})),
        json!({"kty": "oct", "kid": "secret", "k": URL_SAFE_NO_PAD.encode([7; 32])}),
        json!({"kty": "future", "kid": "future"}),
        json!("nonsense"),
    ])
}

fn client(auth: JwtAuth<Value>) -> LocalClient {
    LocalClient::of(&Routes::new().layer(auth).get("/", async || "in"))
}

#[test]
fn tokens_are_accepted_by_the_key_and_the_algorithm_that_the_key_is_for_and_by_no_other() {
    use Algorithm::{ES256, EdDSA, PS256, RS256, RS512};
    let all = client(JwtAuth::key_set(KeySet::parse(&issuer_keys()).unwrap()));
    let only = JwtAuth::key_set(KeySet::parse(&issuer_keys()).unwrap());
    let only = client(only.algorithms(&[ES256, Algorithm::HS256]));
    for (pem, algorithm, id, is_accepted) in [
        (RSA, RS256, Some("rsa"), true),
        (RSA, RS512, Some("rsa"), true),
        (RSA, PS256, Some("rsa"), true),
        (RSA, RS256, Some("rs256"), true),
        (RSA, PS256, Some("rs256"), false),
        (RSA, RS512, Some("rs256"), false),
        (RSA, RS256, Some("encryption"), false),
        (RSA, RS256, Some("ec"), false),
        (EC, ES256, Some("ec"), true),
        (EC, ES256, Some("signing"), false),
        (EC, ES256, Some("rsa"), false),
        (ED, EdDSA, Some("ed"), true),
        (ED, EdDSA, Some("unknown"), false),
        (ED, EdDSA, Some(""), false),
        (RSA, PS256, None, true),
        (EC, ES256, None, true),
        (ED, EdDSA, None, true),
    ] {
        let token = token(pem, algorithm, id);
        let status = all.send(bearer("/", &token)).status;
        assert_eq!(status == 200, is_accepted, "{algorithm:?} {id:?} {status}");
        let status = only.send(bearer("/", &token)).status;
        assert_eq!(
            status == 200,
            is_accepted && algorithm == ES256,
            "{algorithm:?} {id:?}"
        );
    }
}

#[test]
fn no_public_key_of_a_set_is_a_secret_and_no_token_goes_without_a_signature() {
    let client = client(JwtAuth::key_set(KeySet::parse(&issuer_keys()).unwrap()));
    let claims = json!({"sub": "eve", "exp": 4_000_000_000_u64});
    let jwks: Value = serde_json::from_slice(&issuer_keys()).unwrap();
    let mut secrets: Vec<Vec<u8>> = vec![vec![7; 32], Vec::new()];
    for key in jwks["keys"].as_array().unwrap() {
        secrets.push(key.to_string().into_bytes());
        for member in ["n", "x", "y", "k"] {
            if let Some(text) = key[member].as_str() {
                secrets.push(text.as_bytes().to_vec());
                secrets.push(URL_SAFE_NO_PAD.decode(text).unwrap());
            }
        }
    }
    for id in ["rsa", "rs256", "ec", "ed", "secret", "future"] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            for secret in &secrets {
                let header = Header {
                    kid: Some(id.to_owned()),
                    ..Header::new(algorithm)
                };
                let forged = encode(&header, &claims, &EncodingKey::from_secret(secret)).unwrap();
                assert_eq!(client.send(bearer("/", &forged)).status, 401, "{id}");
            }
        }
        for name in ["none", "None", "NONE", "nOnE", ""] {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let head = part(&json!({"alg": name, "typ": "JWT", "kid": id}));
            for signature in ["", "AAAA"] {
                let forged = format!("{head}.{}.{signature}", part(&claims));
                assert_eq!(client.send(bearer("/", &forged)).status, 401, "{name}");
            }
        }
    }
}

#[test]
fn texts_that_are_no_key_sets_are_errors() {
    let key = jwk(ED, Algorithm::EdDSA, json!({}));
    for (text, expected) in [
        (b"".to_vec(), Some(InvalidKeySet::Syntax)),
        (b"[]".to_vec(), Some(InvalidKeySet::Syntax)),
        (b"{}".to_vec(), Some(InvalidKeySet::Syntax)),
        (set(&[]), Some(InvalidKeySet::NoKeys)),
        (
            set(&[json!({"kty": "oct", "k": "AAAA"})]),
            Some(InvalidKeySet::NoKeys),
        ),
        (set(&vec![key.clone(); 100]), None),
        (set(&vec![key; 101]), Some(InvalidKeySet::TooManyKeys)),
    ] {
        assert_eq!(KeySet::parse(&text).err(), expected);
    }
}

/// An issuer that responds with what the test says.
#[derive(Clone, Default)]
struct Issuer {
    requests: Arc<AtomicUsize>,
    response: Arc<Mutex<(u16, Vec<u8>, String)>>,
}

impl Issuer {
    fn responds(&self, status: u16, body: Vec<u8>, cache_control: &str) {
        *self.response.lock().unwrap() = (status, body, cache_control.to_owned());
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn factory(&self) -> impl ServiceFactory + 'static {
        let issuer = self.clone();
        move || {
            let issuer = issuer.clone();
            service_fn(move |request: Request| {
                issuer.requests.fetch_add(1, Ordering::SeqCst);
                assert_eq!(request.target().as_str(), "/keys?p=1");
                assert_eq!(request.authority(), Some("id.example"));
                assert_eq!(request.client().ip, None);
                let (status, body, cache_control) = issuer.response.lock().unwrap().clone();
                let mut response = Response::new(StatusCode::from_u16(status).unwrap());
                let fields = response.headers_mut();
                fields.try_append("cache-control", cache_control).unwrap();
                *response.body_mut() = Body::from(body);
                response.into()
            })
        }
    }
}

#[test]
fn keys_are_fetched_again_when_they_are_old_or_unknown_and_stay_when_that_fails() {
    let clock = apus_clock::TestClock::default();
    let _entered = clock.enter();
    clock.freeze();
    let issuer = Issuer::default();
    let keys = || RemoteKeySet::new(issuer.factory(), "https://id.example/keys?p=1").unwrap();
    let remote = keys();
    let client = client(JwtAuth::remote_key_set(remote.clone()));
    let ed = token(ED, Algorithm::EdDSA, Some("ed"));
    let new = token(EC, Algorithm::ES256, Some("new"));
    let none = token(EC, Algorithm::ES256, Some("none"));
    let status = |token: &str| client.send(bearer("/", token)).status;
    // Nobody is admitted without keys, and the issuer is not asked for each token.
    issuer.responds(500, Vec::new(), "");
    assert_eq!((status(&ed), status(&ed), issuer.requests()), (503, 503, 1));
    clock.advance(Duration::from_secs(2));
    issuer.responds(200, b"no keys".to_vec(), "");
    assert_eq!((status(&ed), issuer.requests()), (503, 2));
    clock.advance(Duration::from_secs(2));
    issuer.responds(200, issuer_keys(), "max-age=600");
    assert_eq!((status(&ed), status(&ed), issuer.requests()), (200, 200, 3));
    // An unknown key: at most once in half a minute.
    assert_eq!(
        (status(&none), status(&none), issuer.requests()),
        (401, 401, 3)
    );
    clock.advance(Duration::from_nanos(29_999_999_999));
    assert_eq!((status(&none), issuer.requests()), (401, 3));
    clock.advance(Duration::from_nanos(1));
    issuer.responds(
        200,
        set(&[
            jwk(EC, Algorithm::ES256, json!({"kid": "new"})),
            jwk(ED, Algorithm::EdDSA, json!({"kid": "ed"})),
        ]),
        "max-age=1",
    );
    assert_eq!(
        (status(&new), status(&none), issuer.requests()),
        (200, 401, 4)
    );
    // A second would be too often: a minute. The request that finds the keys old does not wait.
    clock.advance(Duration::from_secs(59));
    assert_eq!((status(&new), issuer.requests()), (200, 4));
    clock.advance(Duration::from_secs(1));
    issuer.responds(502, Vec::new(), "");
    assert_eq!(status(&new), 200);
    let is_asked = async || issuer.requests() == 5;
    client.run(apus_testkit::eventually_async(
        "the keys are fetched again",
        is_asked,
    ));
    assert_eq!(
        (status(&new), status(&ed), issuer.requests()),
        (200, 200, 5)
    );
    // The next configuration begins with these keys.
    let next = keys();
    next.continue_from(&remote);
    let client = self::client(JwtAuth::remote_key_set(next));
    assert_eq!(client.send(bearer("/", &new)).status, 200);
}
