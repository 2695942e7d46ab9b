//! The alternative chains of a certificate that an authority offers (RFC 8555 section 7.4.2).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode};
use instant_acme::{BodyWrapper, HttpClient};
use serde::Deserialize;
use serde_json::json;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority_client::AuthorityClient;
use crate::issue_error::IssueError;

/// The most alternative chains that are looked at.
const MAX_CHAINS: usize = 8;
/// Attempts of one request whose nonce the authority refuses (RFC 8555 section 6.5).
const NONCE_ATTEMPTS: u32 = 5;

/// The account by which requests are signed, as it is stored.
#[derive(Deserialize)]
pub(crate) struct SigningAccount {
    id: String,
    /// DER (PKCS#8), base64url.
    key_pkcs8: String,
}

/// The first chain whose topmost certificate was issued by an authority with this common name: the one that was offered first,
/// or one of the alternatives. `None` if there is none.
pub(crate) async fn preferred_chain(
    name: &str,
    offered: &str,
    account: &SigningAccount,
    client: &AuthorityClient,
) -> Result<Option<String>, IssueError> {
    if is_issued_by(offered, name) {
        return Ok(Some(offered.to_owned()));
    }
    // The next request replaces what is known of the last response.
    let alternatives = client.observations().alternatives();
    for url in alternatives.iter().take(MAX_CHAINS) {
        let chain = account.fetch(url, client).await?;
        if is_issued_by(&chain, name) {
            return Ok(Some(chain));
        }
    }
    Ok(None)
}

impl SigningAccount {
    /// Requests a chain by POST-as-GET (RFC 8555 section 6.3).
    async fn fetch(&self, url: &str, client: &AuthorityClient) -> Result<String, IssueError> {
        let failed = |why: &str| IssueError::new(format!("the alternative chain at {url}: {why}"));
        for _ in 0..NONCE_ATTEMPTS {
            let Some(nonce) = client.observations().take_nonce() else {
                return Err(failed("the authority sent no nonce"));
            };
            let body = self
                .signed(url, &nonce)
                .ok_or_else(|| failed("the key of the account cannot sign"))?;
            let request = Request::builder()
                .method(Method::POST)
                .uri(url)
                .header(CONTENT_TYPE, "application/jose+json")
                // Without it, authorities refuse a request (RFC 8555 section 6.1).
                .header(USER_AGENT, concat!("apus/", env!("CARGO_PKG_VERSION")))
                .body(BodyWrapper::from(body.into_bytes()))
                .map_err(|error| failed(&error.to_string()))?;
            let mut response = client.request(request).await?;
            let status = response.parts.status;
            let body = response
                .body
                .into_bytes()
                .await
                .map_err(|error| failed(&error.to_string()))?;
            let text = String::from_utf8(body.to_vec()).map_err(|_| failed("it is not text"))?;
            match status {
                StatusCode::OK => return Ok(text),
                StatusCode::BAD_REQUEST if text.contains(":badNonce") => {}
                status => return Err(failed(&format!("status {status}: {text}"))),
            }
        }
        Err(failed("the authority refused each nonce"))
    }

    /// An empty payload for this URL (RFC 7515), signed by the key of the account.
    fn signed(&self, url: &str, nonce: &str) -> Option<String> {
        let key = BASE64_URL_SAFE_NO_PAD.decode(&self.key_pkcs8).ok()?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key).ok()?;
        let protected = json!({"alg": "ES256", "kid": self.id, "nonce": nonce, "url": url});
        let protected = BASE64_URL_SAFE_NO_PAD.encode(protected.to_string());
        let signature = key.sign(&SystemRandom::new(), format!("{protected}.").as_bytes());
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.ok()?);
        Some(json!({"protected": protected, "payload": "", "signature": signature}).to_string())
    }
}

/// Whether the topmost certificate of a chain was issued by an authority with this common name.
fn is_issued_by(chain: &str, name: &str) -> bool {
    let chain = apus_transport::tls::certificates_from_pem(chain.as_bytes()).unwrap_or_default();
    let topmost = chain
        .last()
        .and_then(|der| X509Certificate::from_der(der).ok());
    topmost.is_some_and(|(_, topmost)| {
        let mut names = topmost.issuer().iter_common_name();
        names.any(|own| own.as_str().is_ok_and(|own| own == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_known_by_the_issuer_of_its_topmost_certificate() {
        let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "Root X1");
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        assert!(is_issued_by(&pem, "Root X1"));
        for other in ["Root", "Root X11", "root x1", ""] {
            assert!(!is_issued_by(&pem, other), "{other}");
        }
        assert!(!is_issued_by("no chain", "Root X1"));
    }
}
