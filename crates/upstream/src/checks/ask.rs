//! One check: a connection, and what is asked over it.

use std::rc::Rc;

use apus_codec::fastcgi::Params;
use apus_http::{Body, Frame, HeaderName, HeaderValue, Headers, Method, StatusCode, header};
use apus_net::client::{
    ClientRequest, ClientRequestHead, ClientResponse, Origin, OriginConnection, Protocol, Timeouts,
    connect,
};

use super::grpc;
use crate::node::Node;
use crate::plan::{CheckKind, CheckPlan};

/// How much content is looked at.
const CONTENT_MOST: usize = 64 * 1024;

/// What is wrong with a node.
type Fault = Box<str>;

/// Checks the node once, over a connection of its own.
///
/// # Errors
/// What is wrong with it.
pub(super) async fn ask(node: &Node, plan: &CheckPlan) -> Result<(), Fault> {
    match &plan.kind {
        CheckKind::Connect => open(&node.origin, plan).await.map(drop),
        CheckKind::Http {
            target,
            host,
            statuses,
            contains,
        } => {
            let authority = host.as_deref().unwrap_or(&node.authority);
            let head = ClientRequestHead {
                method: Method::GET,
                params: (node.origin.protocol == Protocol::FastCgi)
                    .then(|| params(authority, target)),
                ..head(node, authority, target, fields(&[]))
            };
            let mut response = send(&node.origin, plan, head, Body::Empty).await?;
            let is_good = match statuses.is_empty() {
                true => (200..400).contains(&response.status.as_u16()),
                false => statuses.contains(&response.status),
            };
            if !is_good {
                return Err(format!("status {}", response.status.as_u16()).into());
            }
            match contains {
                Some(text) => look_for(text, &mut response.body).await,
                None => Ok(()),
            }
        }
        CheckKind::Grpc { service } => {
            let origin = Origin {
                protocol: Protocol::Http2,
                ..node.origin.clone()
            };
            let fields = fields(&[(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/grpc"),
            )]);
            let head = head(node, &node.authority, grpc::TARGET, fields);
            let response = send(&origin, plan, head, grpc::request(service).into()).await?;
            serves(response).await
        }
    }
}

async fn open(origin: &Origin, plan: &CheckPlan) -> Result<OriginConnection, Fault> {
    let opened = connect(origin, None, &timeouts(plan)).await;
    opened.map_err(|failure| failure.to_string().into())
}

async fn send(
    origin: &Origin,
    plan: &CheckPlan,
    head: ClientRequestHead,
    body: Body,
) -> Result<ClientResponse, Fault> {
    let request = ClientRequest {
        head: Rc::new(head),
        body,
        interim: None,
        timeouts: Rc::new(timeouts(plan)),
        stderr: None,
    };
    let connection = open(origin, plan).await?;
    let sent = connection.send(request).await;
    sent.map_err(|failure| failure.to_string().into())
}

fn timeouts(plan: &CheckPlan) -> Timeouts {
    Timeouts {
        connect: plan.timeout,
        tls: plan.timeout,
        first_byte: plan.timeout,
        read: plan.timeout,
        write: plan.timeout,
    }
}

fn head(node: &Node, authority: &str, target: &str, headers: Headers) -> ClientRequestHead {
    ClientRequestHead {
        method: Method::POST,
        scheme: match node.origin.tls {
            Some(_) => "https",
            None => "http",
        },
        authority: authority.into(),
        target: target.into(),
        headers,
        upgrade: None,
        te_trailers: true,
        expects_continue: false,
        params: None,
    }
}

/// What an application is told of a GET (RFC 3875 section 4.1). The target names the script, as
/// `ping.path` of PHP-FPM has it; a file that is to be run is named with its whole path.
fn params(authority: &str, target: &str) -> Params {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut params = Params::with_capacity(512);
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "apus"),
        ("SERVER_NAME", authority),
        ("HTTP_HOST", authority),
        ("HTTP_USER_AGENT", "apus-health-check"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", target),
        ("SCRIPT_NAME", path),
        ("SCRIPT_FILENAME", path),
        ("QUERY_STRING", query),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REDIRECT_STATUS", "200"),
    ] {
        params.push(name, value);
    }
    params
}

fn fields(more: &[(HeaderName, HeaderValue)]) -> Headers {
    let mut headers = Headers::new();
    headers.append(
        &header::USER_AGENT,
        &HeaderValue::from_static("apus-health-check"),
    );
    for (name, value) in more {
        headers.append(name, value);
    }
    headers
}

async fn look_for(text: &str, body: &mut Body) -> Result<(), Fault> {
    let (content, _) = read(body).await?;
    let found = text.is_empty()
        || content
            .windows(text.len())
            .any(|window| window == text.as_bytes());
    match found {
        true => Ok(()),
        false => Err("the content does not have what it must".into()),
    }
}

/// Whether a response of the health service says that it serves.
async fn serves(mut response: ClientResponse) -> Result<(), Fault> {
    if response.status != StatusCode::OK {
        return Err(format!("status {}", response.status.as_u16()).into());
    }
    let (content, trailers) = read(&mut response.body).await?;
    // A response without messages has its status in the head.
    let status = trailers
        .as_ref()
        .and_then(|trailers| trailers.get_str("grpc-status"))
        .or_else(|| response.headers.get_str("grpc-status"));
    match status {
        Some("0") => {}
        Some(status) => return Err(format!("gRPC status {status}").into()),
        None => return Err("no gRPC status".into()),
    }
    match grpc::is_serving(&content) {
        Some(true) => Ok(()),
        Some(false) => Err("not serving".into()),
        None => Err("no answer of the health service".into()),
    }
}

/// The content, as far as it is looked at, and its trailers.
async fn read(body: &mut Body) -> Result<(Vec<u8>, Option<Headers>), Fault> {
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| Fault::from(error.to_string()))? {
            Frame::Data(bytes) => content.extend_from_slice(&bytes),
            Frame::Trailers(trailers) => return Ok((content, Some(trailers))),
            Frame::File(_) => {}
        }
        if content.len() >= CONTENT_MOST {
            content.truncate(CONTENT_MOST);
            break;
        }
    }
    Ok((content, None))
}
