//! Object stores that are compatible with S3: their settings, signatures and requests.

mod bucket;
mod connections;
mod request;
mod sign;
mod xml;

pub(crate) use bucket::S3Bucket;

use std::fmt;

/// A bucket of an object store that is compatible with S3, such as AWS, MinIO, Garage, Ceph and Cloudflare.
#[derive(Clone)]
pub struct S3Settings {
    pub(crate) endpoint: String,
    pub(crate) bucket: String,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) session_token: Option<String>,
    pub(crate) is_virtual_hosted: bool,
}

impl S3Settings {
    /// A bucket at an endpoint, as `https://s3.eu-central-1.amazonaws.com` or `http://127.0.0.1:9000`. Its region is
    /// `us-east-1`, which stores without regions expect.
    pub fn new(endpoint: impl Into<String>, bucket: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            bucket: bucket.into(),
            region: "us-east-1".to_owned(),
            access_key: String::new(),
            secret_key: String::new(),
            session_token: None,
            is_virtual_hosted: false,
        }
    }

    /// The region.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// The identity of the application, and its secret.
    #[must_use]
    pub fn keys(mut self, access: impl Into<String>, secret: impl Into<String>) -> Self {
        self.access_key = access.into();
        self.secret_key = secret.into();
        self
    }

    /// The token of keys that are valid for a time.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// The bucket is part of the host, as `bucket.s3.amazonaws.com`, and not the first segment of the path.
    #[must_use]
    pub fn virtual_hosted(mut self) -> Self {
        self.is_virtual_hosted = true;
        self
    }
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}
