//! Extractors that read the body of a request into memory.

use std::collections::BTreeMap;

use apus_http::{Body, BodyError, Frame, Request, StatusCode};
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;

use super::values::FormFields;
use super::{FromRequest, Rejection, UnreadableField, read_fields};
use crate::body_limit::BodyLimit;
use crate::http_error::HttpError;
use crate::respond::Json;

impl FromRequest for Bytes {
    type Rejection = Rejection;

    async fn from_request(mut request: Request, body_limit: u64) -> Result<Self, Rejection> {
        read(request.take_body(), body_limit).await
    }
}

impl FromRequest for String {
    type Rejection = Rejection;

    async fn from_request(mut request: Request, body_limit: u64) -> Result<Self, Rejection> {
        let body = read(request.take_body(), body_limit).await?;
        Self::from_utf8(body.into())
            .map_err(|_| Rejection::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, Rejection> {
        Self::from_bytes(&json_body(request, body_limit).await?)
    }
}

impl<T: DeserializeOwned> Json<T> {
    /// Reads a text. If a value is not what `T` takes, the text is read again to find out which.
    ///
    /// # Errors
    /// It is not JSON (400), or a value is missing or has another type (422).
    pub fn from_bytes(text: &[u8]) -> Result<Self, Rejection> {
        let error = match serde_json::from_slice(text) {
            Ok(value) => return Ok(Self(value)),
            Err(error) => error,
        };
        if !error.is_data() {
            let reason = format_args!("the body is not JSON: {error}");
            return Err(Rejection::new(StatusCode::BAD_REQUEST, reason).of_json());
        }
        let mut reader = serde_json::Deserializer::from_slice(text);
        let field = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => UnreadableField::of_json(&error),
            Ok(value) => return Ok(Self(value)),
        };
        Err(Rejection::of_field(StatusCode::UNPROCESSABLE_ENTITY, "JSON", field).of_json())
    }
}

/// The body of a request with JSON.
///
/// # Errors
/// The media type is not JSON (415), or the body is not received (400, 408) or too long (413).
pub async fn json_body(mut request: Request, body_limit: u64) -> Result<Bytes, Rejection> {
    let is_json = media_type(&request).is_some_and(|media| {
        media.eq_ignore_ascii_case("application/json")
            || (media.len() > 5
                && media
                    .get(media.len() - 5..)
                    .is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json")))
    });
    if !is_json {
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type must be application/json",
        ));
    }
    let body = read(request.take_body(), body_limit).await;
    body.map_err(Rejection::of_json)
}

/// The fields of an HTML form (`application/x-www-form-urlencoded`), as [`super::Query`] reads it.
#[derive(Clone, Copy, Debug)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Form<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, Rejection> {
        Self::from_bytes(&form_body(request, body_limit).await?)
    }
}

impl<T: DeserializeOwned> Form<T> {
    /// Reads the fields of an encoded form.
    ///
    /// # Errors
    /// It is not valid, or a field is missing or has another type (422).
    pub fn from_bytes(encoded: &[u8]) -> Result<Self, Rejection> {
        read_fields(encoded, StatusCode::UNPROCESSABLE_ENTITY, "form").map(Self)
    }
}

/// The body of a request with a form.
///
/// # Errors
/// As [`json_body`].
pub async fn form_body(mut request: Request, body_limit: u64) -> Result<Bytes, Rejection> {
    if !media_type(&request)
        .is_some_and(|media| media.eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    {
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type must be application/x-www-form-urlencoded",
        ));
    }
    read(request.take_body(), body_limit).await
}

/// The fields of an encoded form or a query, each with all its values; nothing if it is not valid.
pub fn form_values(encoded: &[u8]) -> BTreeMap<String, Vec<String>> {
    FormFields::parse(encoded)
        .map(FormFields::into_values)
        .unwrap_or_default()
}

fn media_type(request: &Request) -> Option<&str> {
    let content_type = request.headers().get_str("content-type")?;
    content_type.split(';').next().map(str::trim)
}

async fn read(body: Body, limit: u64) -> Result<Bytes, Rejection> {
    if body.len().is_some_and(|len| len > limit) {
        return Err(too_large(limit));
    }
    let mut body = body.limit(limit);
    let mut collected = BytesMut::new();
    let mut first = Bytes::new();
    while let Some(frame) = body.frame().await {
        match frame {
            // Most bodies come in one piece, which is not copied.
            Ok(Frame::Data(bytes)) if first.is_empty() && collected.is_empty() => first = bytes,
            Ok(Frame::Data(bytes)) => {
                collected.extend_from_slice(&std::mem::take(&mut first));
                collected.extend_from_slice(&bytes);
            }
            Ok(Frame::File(_) | Frame::Trailers(_)) => {}
            Err(BodyError::TooLarge) => return Err(too_large(limit)),
            Err(error) => return Err(incomplete(&error)),
        }
    }
    Ok(if collected.is_empty() {
        first
    } else {
        collected.freeze()
    })
}

/// The rejection of a request whose body ends before it is complete.
pub(super) fn incomplete(error: &BodyError) -> Rejection {
    Rejection::new(error.status(), error)
}

fn too_large(limit: u64) -> Rejection {
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, BodyLimit::message(limit))
}
