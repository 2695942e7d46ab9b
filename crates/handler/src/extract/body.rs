//! Extractors that read the body of a request into memory.

use apus_http::{Body, BodyError, Frame, Request, StatusCode};
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;

use super::values::FormFields;
use super::{FromRequest, Rejection};
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

    async fn from_request(mut request: Request, body_limit: u64) -> Result<Self, Rejection> {
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
        let body = read(request.take_body(), body_limit).await?;
        match serde_json::from_slice(&body) {
            Ok(value) => Ok(Self(value)),
            Err(error) if error.is_data() => Err(Rejection::misfit(
                StatusCode::UNPROCESSABLE_ENTITY,
                "JSON",
                error,
            )),
            Err(error) => Err(Rejection::new(
                StatusCode::BAD_REQUEST,
                format_args!("the body is not JSON: {error}"),
            )),
        }
    }
}

/// The fields of an HTML form (`application/x-www-form-urlencoded`), as [`super::Query`] reads it.
#[derive(Clone, Copy, Debug)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Form<T> {
    type Rejection = Rejection;

    async fn from_request(mut request: Request, body_limit: u64) -> Result<Self, Rejection> {
        if !media_type(&request)
            .is_some_and(|media| media.eq_ignore_ascii_case("application/x-www-form-urlencoded"))
        {
            return Err(Rejection::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the content type must be application/x-www-form-urlencoded",
            ));
        }
        let body = read(request.take_body(), body_limit).await?;
        let read = FormFields::parse(&body).and_then(|fields| T::deserialize(fields));
        read.map(Self)
            .map_err(|error| Rejection::misfit(StatusCode::UNPROCESSABLE_ENTITY, "form", error))
    }
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
            Err(BodyError::TimedOut) => {
                return Err(Rejection::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body came too slowly",
                ));
            }
            Err(error) => return Err(Rejection::new(StatusCode::BAD_REQUEST, error)),
        }
    }
    Ok(if collected.is_empty() {
        first
    } else {
        collected.freeze()
    })
}

fn too_large(limit: u64) -> Rejection {
    Rejection::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format_args!("the body must not be longer than {limit} bytes"),
    )
}
