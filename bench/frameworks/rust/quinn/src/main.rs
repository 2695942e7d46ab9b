//! Files over HTTP/3, on quinn and h3: `bench-quinn PORT CERTIFICATE KEY FOLDER`.
//!
//! Its settings are the defaults of quinn and h3 but for those that stand below: files in memory, one thread, the allocator of
//! `apus`, room for whole responses in the send window, and large buffers of the socket. Whether others are faster has not been
//! measured.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h3::server::RequestResolver;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Socket, Type};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

/// The allocator of `apus`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn Error>;

/// Files in memory by their paths, which costs less than to open them.
struct Files(HashMap<String, (HeaderMap, Bytes)>);

impl Files {
    fn read(folder: &str) -> Result<Self, Failure> {
        let mut files = HashMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry
                .file_name()
                .into_string()
                .map_err(|_| "a name that is not UTF-8")?;
            let body = Bytes::from(fs::read(entry.path())?);
            let content_type = match name.rsplit('.').next() {
                Some("html") => "text/html",
                _ => "application/octet-stream",
            };
            let mut fields = HeaderMap::new();
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            fields.insert(header::CONTENT_LENGTH, body.len().into());
            fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            let etag = format!("\"{:x}-{:x}\"", body.len(), body.as_ptr() as usize);
            fields.insert(header::ETAG, etag.try_into()?);
            files.insert(format!("/{name}"), (fields, body));
        }
        Ok(Self(files))
    }
}

fn server_config(certificate: &str, key: &str) -> Result<ServerConfig, Failure> {
    let certificates =
        CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls =
        rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(certificates, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.ticketer = aws_lc_rs::Ticketer::new()?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(128_u32.into())
        // Whole responses of the largest cases fit into it.
        .send_window(16 << 20)
        .max_idle_timeout(Some(Duration::from_secs(300).try_into()?));
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn endpoint(port: u16, config: ServerConfig) -> Result<Endpoint, Failure> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // One thread reads it: without room, packets of thousands of connections are lost while it encrypts.
    socket.set_recv_buffer_size(8 << 20)?;
    socket.set_send_buffer_size(8 << 20)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        socket.into(),
        runtime,
    )?)
}

async fn serve(incoming: Incoming, files: Rc<Files>) -> Result<(), Failure> {
    let connection = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::builder()
        .send_grease(false)
        .build(connection)
        .await?;
    while let Some(resolver) = connection.accept().await? {
        let files = Rc::clone(&files);
        spawn_local(async move {
            // A client may go at any time.
            let _ = respond(resolver, &files).await;
        });
    }
    Ok(())
}

async fn respond(
    resolver: RequestResolver<h3_quinn::Connection, Bytes>,
    files: &Files,
) -> Result<(), Failure> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let mut response = Response::new(());
    match files.0.get(request.uri().path()) {
        Some((fields, body)) => {
            *response.headers_mut() = fields.clone();
            stream.send_response(response).await?;
            stream.send_data(body.clone()).await?;
        }
        None => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            stream.send_response(response).await?;
        }
    }
    Ok(stream.finish().await?)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(certificate), Some(key), Some(folder)) = (
        arguments.next(),
        arguments.next(),
        arguments.next(),
        arguments.next(),
    ) else {
        return Err("bench-quinn PORT CERTIFICATE KEY FOLDER".into());
    };
    let files = Rc::new(Files::read(&folder)?);
    let config = server_config(&certificate, &key)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let endpoint = endpoint(port.parse()?, config)?;
        while let Some(incoming) = endpoint.accept().await {
            let files = Rc::clone(&files);
            spawn_local(async move {
                let _ = serve(incoming, files).await;
            });
        }
        Ok(())
    })
}
