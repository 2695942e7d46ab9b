//! `S3Bucket`: objects in a bucket.

use std::fmt;
use std::time::{Duration, SystemTime};

use apus_client::ClientResponse;
use apus_http::fields::http_date;
use apus_http::{Headers, Method};
use bytes::{Bytes, BytesMut};

use super::S3Settings;
use super::request::{S3Client, S3Request, whole};
use super::xml::{self, InitiateMultipartUploadResult, ListBucketResult};
use crate::body::BodyPieces;
use crate::error::StorageError;
use crate::key::StorageKey;
use crate::object::{ObjectInfo, StoredObject};

/// The bytes of a part, and so the memory of an upload. Stores allow 10,000 parts, the first of at least 5 MiB.
const FIRST_PART: usize = 8 * 1024 * 1024;

/// After this number of parts, they are twice as long.
const PARTS_OF_A_LENGTH: usize = 1000;

/// The longest time that a URL can be valid.
const LONGEST_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Objects in a bucket.
pub(crate) struct S3Bucket {
    client: S3Client,
    name: String,
}

impl S3Bucket {
    pub(crate) fn new(settings: S3Settings) -> Result<Self, StorageError> {
        Ok(Self {
            name: settings.bucket.clone(),
            client: S3Client::new(settings)?,
        })
    }

    /// Stores an object: with one request if it is short, else in parts, so that only one of them is in memory.
    pub(crate) async fn put(
        &self,
        key: &StorageKey,
        body: BodyPieces,
    ) -> Result<ObjectInfo, StorageError> {
        let mut parts = Parts {
            body,
            rest: BytesMut::new(),
            is_over: false,
        };
        let first = parts.next(FIRST_PART).await?;
        let (bytes, tag) = if parts.is_over() {
            let bytes = first.len() as u64;
            let put = S3Request {
                media_type: Some(key.media_type()),
                body: first,
                ..S3Request::new(Method::PUT, Some(key))
            };
            (bytes, tag_of(&self.sent(&put).await?.headers))
        } else {
            self.put_in_parts(key, first, parts).await?
        };
        Ok(ObjectInfo {
            key: key.clone(),
            bytes,
            modified: SystemTime::now(),
            tag,
        })
    }

    async fn put_in_parts(
        &self,
        key: &StorageKey,
        first: Bytes,
        parts: Parts,
    ) -> Result<(u64, String), StorageError> {
        let create = S3Request {
            media_type: Some(key.media_type()),
            query: vec![("uploads", String::new())],
            ..S3Request::new(Method::POST, Some(key))
        };
        let created = self.client.send_for_xml(&create).await?;
        let created: InitiateMultipartUploadResult = xml::read(&created)?;
        let upload = created.upload_id;
        let done = self.send_parts(key, &upload, first, parts).await;
        if done.is_err() {
            let abort = S3Request {
                query: vec![("uploadId", upload)],
                ..S3Request::new(Method::DELETE, Some(key))
            };
            if let Err(error) = self.client.send(&abort).await {
                tracing::warn!(%key, %error, "the parts of an upload stay in the object store");
            }
        }
        done
    }

    async fn send_parts(
        &self,
        key: &StorageKey,
        upload: &str,
        first: Bytes,
        mut parts: Parts,
    ) -> Result<(u64, String), StorageError> {
        let mut tags = Vec::new();
        let mut bytes = 0_u64;
        let mut part = first;
        loop {
            bytes = bytes.saturating_add(part.len() as u64);
            let put = S3Request {
                query: vec![
                    ("partNumber", tags.len().saturating_add(1).to_string()),
                    ("uploadId", upload.to_owned()),
                ],
                body: part,
                ..S3Request::new(Method::PUT, Some(key))
            };
            tags.push(quoted_tag(&self.sent(&put).await?.headers));
            if parts.is_over() {
                break;
            }
            let doubled = u32::try_from(tags.len() / PARTS_OF_A_LENGTH).unwrap_or(u32::MAX);
            let length = FIRST_PART.saturating_mul(2_usize.saturating_pow(doubled));
            part = parts.next(length).await?;
        }
        let complete = S3Request {
            query: vec![("uploadId", upload.to_owned())],
            body: xml::completion(&tags).into(),
            ..S3Request::new(Method::POST, Some(key))
        };
        self.client.send_for_xml(&complete).await?;
        let info = self.info(key).await?;
        Ok((bytes, info.map(|info| info.tag).unwrap_or_default()))
    }

    /// Sends a request whose response has no body that matters.
    async fn sent(&self, request: &S3Request<'_>) -> Result<ClientResponse, StorageError> {
        let missing = || StorageError::Response("the upload is gone".to_owned());
        let mut response = self.client.send(request).await?.ok_or_else(missing)?;
        // The connection is free for the next request.
        whole(std::mem::take(&mut response.body)).await?;
        Ok(response)
    }

    pub(crate) async fn get(&self, key: &StorageKey) -> Result<Option<StoredObject>, StorageError> {
        let get = S3Request::new(Method::GET, Some(key));
        let response = self.client.send(&get).await?;
        Ok(response.map(|response| StoredObject {
            info: info_of(key, &response),
            body: response.body,
        }))
    }

    pub(crate) async fn info(&self, key: &StorageKey) -> Result<Option<ObjectInfo>, StorageError> {
        let head = S3Request::new(Method::HEAD, Some(key));
        let response = self.client.send(&head).await?;
        Ok(response.map(|response| info_of(key, &response)))
    }

    pub(crate) async fn delete(&self, key: &StorageKey) -> Result<(), StorageError> {
        let delete = S3Request::new(Method::DELETE, Some(key));
        if let Some(response) = self.client.send(&delete).await? {
            whole(response.body).await?;
        }
        Ok(())
    }

    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<ObjectInfo>, StorageError> {
        let mut query = vec![
            ("list-type", "2".to_owned()),
            ("max-keys", most.to_string()),
        ];
        if !prefix.is_empty() {
            query.push(("prefix", prefix.to_owned()));
        }
        if !after.is_empty() {
            query.push(("start-after", after.to_owned()));
        }
        let list = S3Request {
            query,
            ..S3Request::new(Method::GET, None)
        };
        let list: ListBucketResult = xml::read(&self.client.send_for_xml(&list).await?)?;
        Ok(list.objects().collect())
    }

    pub(crate) fn signed_url(
        &self,
        key: &StorageKey,
        lifetime: Duration,
    ) -> Result<String, StorageError> {
        if lifetime > LONGEST_LIFETIME {
            let problem = "a URL of an object store is valid for seven days at most";
            return Err(StorageError::Settings(problem.to_owned()));
        }
        Ok(self.client.signed_url(key, lifetime))
    }
}

/// A body in parts.
struct Parts {
    body: BodyPieces,
    /// What was read beyond the last part.
    rest: BytesMut,
    is_over: bool,
}

impl Parts {
    /// Reads a part. It is shorter only at the end.
    async fn next(&mut self, length: usize) -> Result<Bytes, StorageError> {
        // One byte more tells whether this is the last part.
        while self.rest.len() <= length && !self.is_over {
            match self.body.piece().await? {
                Some(piece) => self.rest.extend_from_slice(&piece),
                None => self.is_over = true,
            }
        }
        let length = length.min(self.rest.len());
        Ok(self.rest.split_to(length).freeze())
    }

    fn is_over(&self) -> bool {
        self.is_over && self.rest.is_empty()
    }
}

fn info_of(key: &StorageKey, response: &ClientResponse) -> ObjectInfo {
    let field = |name: &str| {
        let value = response.headers.get(name)?;
        str::from_utf8(value).ok()
    };
    let modified = field("last-modified").and_then(|text| http_date(text.as_bytes()));
    let length = field("content-length").and_then(|text| text.parse().ok());
    ObjectInfo {
        key: key.clone(),
        bytes: length.or(response.body.len()).unwrap_or_default(),
        modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
        tag: tag_of(&response.headers),
    }
}

fn quoted_tag(headers: &Headers) -> String {
    let tag = headers.get("etag").unwrap_or_default();
    String::from_utf8_lossy(tag).into_owned()
}

fn tag_of(headers: &Headers) -> String {
    quoted_tag(headers).trim_matches('"').to_owned()
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.client.authority())
    }
}
