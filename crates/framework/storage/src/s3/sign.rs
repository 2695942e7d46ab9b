//! Signatures of requests and URLs (AWS Signature Version 4).

use std::time::{Duration, SystemTime};

use apus_http::percent;
use apus_tokens::{Hexadecimal, sha256};
use aws_lc_rs::hmac;
use time::OffsetDateTime;

/// The body of a request by a signed URL is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Encodes all bytes but the unreserved ones, as the rules of the signature ask.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    percent::encode_part_onto(&mut encoded, text.as_bytes());
    encoded
}

/// As [`encode`], for a path.
pub(crate) fn encode_path(path: &str) -> String {
    let mut encoded = String::new();
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            encoded.push('/');
        }
        percent::encode_part_onto(&mut encoded, segment.as_bytes());
    }
    encoded
}

/// The digest of a body, which its signature covers.
pub(crate) fn body_digest(body: &[u8]) -> String {
    Hexadecimal(&sha256(body)).to_string()
}

/// The keys of an application, for one region.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) session_token: Option<String>,
    pub(crate) region: String,
}

/// What a signature is of.
#[derive(Clone, Debug)]
pub(crate) struct SignedParts<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// Encoded.
    pub(crate) path: &'a str,
    /// Encoded names and values.
    pub(crate) query: Vec<(String, String)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(&'a str, String)>,
    pub(crate) body_digest: String,
}

impl Signer {
    /// The fields of a request that prove who sends it.
    pub(crate) fn fields(
        &self,
        parts: &SignedParts<'_>,
        now: SystemTime,
    ) -> Vec<(&'static str, String)> {
        let stamp = stamp(now);
        let mut own = vec![
            ("x-amz-content-sha256", parts.body_digest.clone()),
            ("x-amz-date", stamp.clone()),
        ];
        if let Some(token) = &self.session_token {
            own.push(("x-amz-security-token", token.clone()));
        }
        let mut parts = parts.clone();
        parts.headers.extend(own.iter().cloned());
        let (names, signature) = self.signature(&mut parts, &stamp);
        let scope = self.scope(&stamp);
        let access_key = &self.access_key;
        own.push((
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
            ),
        ));
        own
    }

    /// The query of a URL that is valid for a time.
    pub(crate) fn query(
        &self,
        mut parts: SignedParts<'_>,
        now: SystemTime,
        lifetime: Duration,
    ) -> String {
        let stamp = stamp(now);
        let credential = format!("{}/{}", self.access_key, self.scope(&stamp));
        parts.body_digest = UNSIGNED.to_owned();
        let mut add = |name: &str, value: &str| parts.query.push((name.to_owned(), encode(value)));
        add("X-Amz-Algorithm", "AWS4-HMAC-SHA256");
        add("X-Amz-Credential", &credential);
        add("X-Amz-Date", &stamp);
        add("X-Amz-Expires", &lifetime.as_secs().to_string());
        if let Some(token) = &self.session_token {
            add("X-Amz-Security-Token", token);
        }
        add("X-Amz-SignedHeaders", "host");
        let (_, signature) = self.signature(&mut parts, &stamp);
        format!("{}&X-Amz-Signature={signature}", joined(&parts.query))
    }

    /// The names of the signed fields, and the signature.
    fn signature(&self, parts: &mut SignedParts<'_>, stamp: &str) -> (String, String) {
        parts.query.sort_unstable();
        parts.headers.push(("host", parts.host.to_owned()));
        parts.headers.sort_unstable();
        let names: Vec<&str> = parts.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let fields = parts.headers.iter();
        let fields: String = fields
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let canonical = [
            parts.method,
            parts.path,
            &joined(&parts.query),
            &fields,
            &names,
            &parts.body_digest,
        ];
        let canonical = body_digest(canonical.join("\n").as_bytes());
        let scope = self.scope(stamp);
        let text = ["AWS4-HMAC-SHA256", stamp, &scope, &canonical].join("\n");
        let secret = format!("AWS4{}", self.secret_key);
        let mut key = keyed(secret.as_bytes(), day(stamp).as_bytes());
        for part in [self.region.as_str(), "s3", "aws4_request"] {
            key = keyed(key.as_ref(), part.as_bytes());
        }
        let signature = keyed(key.as_ref(), text.as_bytes());
        (names, Hexadecimal(signature.as_ref()).to_string())
    }

    fn scope(&self, stamp: &str) -> String {
        format!("{}/{}/s3/aws4_request", day(stamp), self.region)
    }
}

fn keyed(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

/// A query of encoded names and values.
pub(crate) fn joined(query: &[(String, String)]) -> String {
    let parameters = query.iter().map(|(name, value)| format!("{name}={value}"));
    parameters.collect::<Vec<_>>().join("&")
}

/// A time as `20130524T000000Z`.
fn stamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn day(stamp: &str) -> &str {
    stamp.get(..8).unwrap_or(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example credentials of the documentation of S3 ("Signature Calculations for the Authorization Header", and
    /// "Authenticating Requests: Using Query Parameters").
    fn signer() -> Signer {
        Signer {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
            region: "us-east-1".to_owned(),
        }
    }

    /// 24 May 2013, 00:00 UTC.
    fn then() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600)
    }

    fn signature(parts: SignedParts<'_>) -> String {
        let fields = signer().fields(&parts, then());
        let (_, authorization) = fields.last().unwrap();
        authorization.split_once("Signature=").unwrap().1.to_owned()
    }

    fn get<'a>(path: &'a str, query: &[(&str, &str)]) -> SignedParts<'a> {
        SignedParts {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path,
            query: query
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            headers: Vec::new(),
            body_digest: body_digest(b""),
        }
    }

    #[test]
    fn signs_the_examples_of_the_documentation() {
        let mut object = get("/test.txt", &[]);
        object.headers.push(("range", "bytes=0-9".to_owned()));
        assert_eq!(
            signature(object),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let path = encode_path("/test$file.text");
        let put = SignedParts {
            method: "PUT",
            headers: vec![
                ("date", "Fri, 24 May 2013 00:00:00 GMT".to_owned()),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY".to_owned()),
            ],
            body_digest: body_digest(b"Welcome to Amazon S3."),
            ..get(&path, &[])
        };
        assert_eq!(
            signature(put),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature(get("/", &[("lifecycle", "")])),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature(get("/", &[("prefix", "J"), ("max-keys", "2")])),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn signs_the_url_of_the_documentation() {
        let query = signer().query(get("/test.txt", &[]), then(), Duration::from_secs(86_400));
        assert_eq!(
            query,
            "X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }
}
