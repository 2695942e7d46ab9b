//! Objects: what is known of them, and their bodies.

use std::time::SystemTime;

use apus_handler::IntoResponse;
use apus_http::fields::http_date_text;
use apus_http::{Body, HeaderValue, Response, StatusCode, header};

use crate::key::StorageKey;

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its key.
    pub key: StorageKey,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was stored.
    pub modified: SystemTime,
    /// The entity tag, without quotes; it changes with the object.
    pub tag: String,
}

/// An object that is being read. As a response, it has its media type, length, `ETag` and `Last-Modified`; browsers neither guess
/// another media type, nor run scripts in it with the rights of the application.
#[derive(Debug)]
pub struct StoredObject {
    /// What is known of it.
    pub info: ObjectInfo,
    /// Its content, as it is read.
    pub body: Body,
}

/// Keeps a page or an image with scripts, which someone uploaded, from acting for its reader.
pub(crate) const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");

pub(crate) const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

impl IntoResponse for StoredObject {
    fn into_response(self) -> Response {
        let mut response = Response::new(StatusCode::OK).with_body(self.body);
        let headers = response.headers_mut();
        // The extension and the tag are of characters that fields allow; what is not, is left out.
        let _ = headers.try_insert("content-type", self.info.key.media_type());
        let _ = headers.try_insert("etag", format!("\"{}\"", self.info.tag));
        let modified = http_date_text(self.info.modified);
        let _ = headers.try_insert("last-modified", modified);
        headers.insert(&header::X_CONTENT_TYPE_OPTIONS, &NO_SNIFFING);
        headers.insert(&header::CONTENT_SECURITY_POLICY, &POLICY);
        response
    }
}
