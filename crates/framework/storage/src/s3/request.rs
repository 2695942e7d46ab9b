//! Requests to an object store, which are signed, and sent again if it is busy.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_client::{
    ClientRequest, ClientRequestHead, ClientResponse, ClientTlsSettings, RequestTemplate, Timeouts,
    Tls,
};
use apus_http::url::split_scheme;
use apus_http::{Body, Frame, Headers, Method, StatusCode};
use apus_transport::per_worker;
use bytes::{Bytes, BytesMut};

use super::S3Settings;
use super::connections::{IdleConnections, StoreEndpoint, StoreSendError};
use super::sign::{SignedParts, Signer, body_digest, encode, encode_path, joined};
use super::xml;
use crate::error::StorageError;
use crate::key::StorageKey;

/// How often a request is sent, if the store is busy or cannot be reached.
const ATTEMPTS: u32 = 4;

/// The most bytes of a response with XML.
const LONGEST_XML: usize = 8 * 1024 * 1024;

/// An object store, for requests about one bucket.
pub(crate) struct S3Client {
    endpoint: StoreEndpoint,
    scheme: &'static str,
    /// The value of `Host`.
    authority: Box<str>,
    /// The part of the path before keys.
    base: Box<str>,
    signer: Signer,
    /// The owner of the connections of each worker.
    owner: Arc<()>,
}

/// A request about an object or the bucket.
#[derive(Clone, Debug)]
pub(crate) struct S3Request<'a> {
    pub(crate) method: Method,
    pub(crate) key: Option<&'a StorageKey>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) media_type: Option<String>,
    pub(crate) body: Bytes,
}

impl<'a> S3Request<'a> {
    pub(crate) fn new(method: Method, key: Option<&'a StorageKey>) -> Self {
        Self {
            method,
            key,
            query: Vec::new(),
            media_type: None,
            body: Bytes::new(),
        }
    }
}

impl S3Client {
    pub(crate) fn new(settings: S3Settings) -> Result<Self, StorageError> {
        let invalid = |problem: &str| StorageError::Settings(problem.to_owned());
        let (scheme, rest) = split_scheme(&settings.endpoint)
            .ok_or_else(|| invalid("the endpoint is a URL, as https://s3.example.com"))?;
        let scheme = match scheme {
            "https" => "https",
            "http" => "http",
            _ => return Err(invalid("the endpoint begins with https:// or http://")),
        };
        let authority = rest.trim_start_matches('/').trim_end_matches('/');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let bucket = settings.bucket;
        if bucket.is_empty() || bucket.starts_with('.') || !bucket.bytes().all(is_plain) {
            return Err(invalid("the name of the bucket is not valid"));
        }
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            return Err(invalid("the endpoint is a host, with or without a port"));
        }
        let (authority, base) = if settings.is_virtual_hosted {
            (format!("{bucket}.{authority}"), "/".to_owned())
        } else {
            (authority.to_owned(), format!("/{bucket}/"))
        };
        let default_port = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse::<u16>();
                (
                    host,
                    port.map_err(|_| invalid("the port of the endpoint is not a number"))?,
                )
            }
            _ => (&*authority, default_port),
        };
        let tls = match scheme {
            "https" => {
                let tls = Tls::new(&ClientTlsSettings::new(host));
                Some(tls.map_err(|error| StorageError::Settings(error.to_string()))?)
            }
            _ => None,
        };
        let endpoint = StoreEndpoint {
            host: host.to_owned(),
            port,
            tls,
        };
        // Clients leave the default port out.
        let shown = if port == default_port {
            host.to_owned()
        } else {
            authority.clone()
        };
        Ok(Self {
            endpoint,
            scheme,
            authority: shown.into(),
            base: base.into(),
            signer: Signer {
                access_key: settings.access_key,
                secret_key: settings.secret_key,
                session_token: settings.session_token,
                region: settings.region,
            },
            owner: Arc::new(()),
        })
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    fn path(&self, key: Option<&StorageKey>) -> String {
        let key = key.map_or("", StorageKey::as_str);
        format!("{}{}", self.base, encode_path(key))
    }

    /// A URL for an object.
    pub(crate) fn signed_url(&self, key: &StorageKey, lifetime: Duration) -> String {
        let path = self.path(Some(key));
        let parts = SignedParts {
            method: "GET",
            host: &self.authority,
            path: &path,
            query: Vec::new(),
            headers: Vec::new(),
            body_digest: String::new(),
        };
        // The object store has the time of the system.
        let query = self.signer.query(parts, SystemTime::now(), lifetime);
        format!("{}://{}{path}?{query}", self.scheme, self.authority)
    }

    /// Sends a request, for a response with a status of success. A missing object is `None`.
    pub(crate) async fn send(
        &self,
        request: &S3Request<'_>,
    ) -> Result<Option<ClientResponse>, StorageError> {
        let connections = per_worker::get_or_insert(&self.owner, Rc::<IdleConnections>::default);
        let mut wait = Duration::from_millis(100);
        let mut attempt = 1;
        loop {
            let sent = connections
                .send(&self.endpoint, self.signed(request)?)
                .await;
            let error = match sent {
                Ok(response) if response.status.is_success() => return Ok(Some(response)),
                Ok(response)
                    if response.status == StatusCode::NOT_FOUND && request.key.is_some() =>
                {
                    // The connection is free for the next request.
                    let text = whole(response.body).await.unwrap_or_default();
                    match xml::error_message(&text) {
                        Some(message) if message.starts_with("NoSuchBucket") => {
                            return Err(StorageError::Rejected {
                                status: StatusCode::NOT_FOUND,
                                message,
                            });
                        }
                        _ => return Ok(None),
                    }
                }
                Ok(response) => rejected(response).await,
                Err(StoreSendError::IdleClosed) => continue,
                Err(StoreSendError::Failed(error)) => error,
            };
            let may_pass = match &error {
                StorageError::Rejected { status, .. } => {
                    status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
                }
                _ => true,
            };
            if !may_pass || attempt == ATTEMPTS {
                return Err(error);
            }
            tracing::debug!(%error, attempt, "a request to the object store is sent again");
            tokio::time::sleep(wait).await;
            wait = wait.saturating_mul(2);
            attempt = attempt.saturating_add(1);
        }
    }

    /// As [`send`](Self::send), with the whole body, which is XML.
    pub(crate) async fn send_for_xml(
        &self,
        request: &S3Request<'_>,
    ) -> Result<Bytes, StorageError> {
        let missing = || StorageError::Response("an upload is gone".to_owned());
        let response = self.send(request).await?.ok_or_else(missing)?;
        let status = response.status;
        let body = whole(response.body).await?;
        // The end of an upload can be an error after the status.
        match xml::error_message(&body) {
            Some(message) => Err(StorageError::Rejected { status, message }),
            None => Ok(body),
        }
    }

    fn signed(&self, request: &S3Request<'_>) -> Result<ClientRequest, StorageError> {
        let path = self.path(request.key);
        let query = request.query.iter();
        let mut query: Vec<(String, String)> = query
            .map(|(name, value)| ((*name).to_owned(), encode(value)))
            .collect();
        query.sort_unstable();
        let media_type = request.media_type.iter();
        let parts = SignedParts {
            method: request.method.as_str(),
            host: &self.authority,
            path: &path,
            query: query.clone(),
            headers: media_type
                .map(|one| ("content-type", one.clone()))
                .collect(),
            body_digest: body_digest(&request.body),
        };
        let own = self.signer.fields(&parts, SystemTime::now());
        let mut headers = Headers::new();
        for (name, value) in parts.headers.iter().chain(&own) {
            let inserted = headers.try_insert(name, value.as_str());
            inserted.map_err(|error| StorageError::Settings(error.to_string()))?;
        }
        let mark = if query.is_empty() { "" } else { "?" };
        let has_body = !request.body.is_empty() || request.method == Method::PUT;
        Ok(ClientRequest {
            template: RequestTemplate {
                head: Rc::new(ClientRequestHead {
                    method: request.method.clone(),
                    scheme: self.scheme,
                    authority: self.authority.clone(),
                    target: format!("{path}{mark}{}", joined(&query)).into(),
                    headers,
                    upgrade: None,
                    te_trailers: false,
                    expects_continue: false,
                    params: None,
                }),
                interim: None,
                timeouts: Rc::new(Timeouts::default()),
                stderr: None,
            },
            body: if has_body {
                Body::Bytes(request.body.clone())
            } else {
                Body::Empty
            },
        })
    }
}

async fn rejected(response: ClientResponse) -> StorageError {
    let status = response.status;
    let message = match whole(response.body).await {
        Ok(body) => xml::error_message(&body),
        Err(_) => None,
    };
    StorageError::Rejected {
        status,
        message: message.unwrap_or_else(|| "without an explanation".to_owned()),
    }
}

/// A whole body.
pub(crate) async fn whole(mut body: Body) -> Result<Bytes, StorageError> {
    let mut whole = BytesMut::new();
    loop {
        match body.frame().await {
            None | Some(Ok(Frame::Trailers(_) | Frame::File(_))) => return Ok(whole.freeze()),
            Some(Ok(Frame::Data(piece))) if whole.len() <= LONGEST_XML => {
                whole.extend_from_slice(&piece);
            }
            Some(Ok(Frame::Data(_))) => {
                return Err(StorageError::Response("it is too long".to_owned()));
            }
            Some(Err(error)) => return Err(StorageError::Unreachable(error.into())),
        }
    }
}
