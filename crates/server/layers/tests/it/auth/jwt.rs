//! JSON Web Tokens, valid and not (RFC 8725).

use std::time::{SystemTime, UNIX_EPOCH};

use apus_layers::auth::jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode};
use apus_layers::auth::{Claims, JwtAuth};
use apus_testkit::{LocalClient, Reply, get};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bearer;
use crate::harness::Routes;

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

#[derive(Clone, Deserialize)]
struct User {
    sub: String,
}

fn client(auth: JwtAuth<User>) -> LocalClient {
    LocalClient::of(
        &Routes::new()
            .layer(auth)
            .get("/", async |Claims(user): Claims<User>| user.sub)
            .get("/open", async |claims: Option<Claims<User>>| {
                claims.map_or("nobody".to_owned(), |Claims(user)| user.sub)
            }),
    )
}

/// Asserts that a request without a valid token is rejected with this challenge.
fn assert_rejected(reply: &Reply, challenge: &str) {
    assert_eq!(reply.status, 401);
    assert_eq!(reply.field("www-authenticate"), Some(challenge));
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn token_of(claims: &Value, algorithm: Algorithm, secret: &[u8]) -> String {
    encode(
        &Header::new(algorithm),
        claims,
        &EncodingKey::from_secret(secret),
    )
    .unwrap()
}

fn token(claims: Value) -> String {
    token_of(&claims, Algorithm::HS256, SECRET)
}

#[test]
fn a_valid_token_is_accepted_with_its_claims() {
    let client = client(JwtAuth::hs256(SECRET).unwrap());
    let valid = token(json!({"sub": "ann", "exp": now() + 60}));
    assert_eq!(client.send(bearer("/", &valid)).text(), "ann");
    assert_rejected(&client.send(get("/")), "Bearer");
}

#[test]
fn expired_tokens_and_tokens_for_others_are_rejected() {
    let auth = JwtAuth::hs256(SECRET)
        .unwrap()
        .issuer("id")
        .audience("shop");
    let client = client(auth);
    let exp = now() + 600;
    let good = json!({"sub": "ann", "exp": exp, "iss": "id", "aud": "shop", "nbf": now()});
    assert_eq!(client.send(bearer("/", &token(good.clone()))).status, 200);
    for (name, value) in [
        ("exp", json!(now() - 120)),
        ("exp", Value::Null),
        ("nbf", json!(now() + 120)),
        ("iss", json!("another")),
        ("iss", Value::Null),
        ("aud", json!("another")),
        ("aud", Value::Null),
        ("sub", json!(7)),
    ] {
        let mut claims = good.clone();
        claims[name] = value.clone();
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        }
        let reply = client.send(bearer("/", &token(claims)));
        assert_rejected(&reply, "Bearer error=\"invalid_token\"");
    }
}

#[test]
fn a_token_with_an_audience_needs_an_audience() {
    let client = client(JwtAuth::hs256(SECRET).unwrap());
    let claims = json!({"sub": "ann", "exp": now() + 60, "aud": "another service"});
    assert_eq!(client.send(bearer("/", &token(claims))).status, 401);
}

#[test]
fn the_algorithm_of_the_token_is_ignored() {
    let client = client(JwtAuth::hs256(SECRET).unwrap());
    let claims = json!({"sub": "ann", "exp": now() + 60});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let valid = token(claims.clone());
    let signature = valid.rsplit('.').next().unwrap();
    for algorithm in ["none", "None", "HS384", "RS256"] {
        let head = part(&json!({"alg": algorithm, "typ": "JWT"}));
        for end in ["", signature] {
            let forged = format!("{head}.{}.{end}", part(&claims));
            assert_eq!(client.send(bearer("/", &forged)).status, 401);
        }
    }
    let other = token_of(&claims, Algorithm::HS512, SECRET);
    assert_eq!(client.send(bearer("/", &other)).status, 401);
    let other = token_of(
        &claims,
        Algorithm::HS256,
        b"another secret, which is long enough too",
    );
    assert_eq!(client.send(bearer("/", &other)).status, 401);
    for nonsense in ["", "a", "a.b", "a.b.c", "..", &valid[..valid.len() - 2]] {
        let field = format!("Bearer {nonsense}");
        let request = get("/").with("authorization", &field);
        assert_eq!(client.send(request).status, 401, "{nonsense}");
    }
}

#[test]
fn tokens_of_an_old_key_are_accepted() {
    let new = b"the new secret has thirty-two bytes";
    let auth = JwtAuth::hs256(new)
        .unwrap()
        .accept(DecodingKey::from_secret(SECRET));
    let client = client(auth);
    let claims = json!({"sub": "ann", "exp": now() + 60});
    for secret in [SECRET, new] {
        let token = token_of(&claims, Algorithm::HS256, secret);
        assert_eq!(client.send(bearer("/", &token)).text(), "ann");
    }
}

#[test]
fn an_optional_token_must_be_valid() {
    let client = client(JwtAuth::hs256(SECRET).unwrap().optional());
    assert_eq!(client.send(get("/open")).text(), "nobody");
    assert_eq!(client.send(get("/")).status, 401);
    assert_eq!(client.send(bearer("/open", "a.b.c")).status, 401);
    let valid = token(json!({"sub": "ann", "exp": now() + 60}));
    assert_eq!(client.send(bearer("/open", &valid)).text(), "ann");
}

#[test]
fn a_short_secret_is_rejected() {
    assert!(JwtAuth::<User>::hs256(b"secret").is_err());
}
