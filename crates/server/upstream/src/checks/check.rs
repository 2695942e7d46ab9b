//! One health check of a node, over a separate connection.

use std::rc::Rc;

use apus_client::{
    ClientRequest, ClientRequestHead, ClientResponse, Origin, OriginConnection, Protocol,
    RequestTemplate, Timeouts, connect,
};
use apus_codec::fastcgi::Params;
use apus_http::{Body, Frame, HeaderName, HeaderValue, Headers, Method, StatusCode, header};

use super::grpc;
use crate::node::Node;
use crate::plan::{CheckKind, CheckPlan};

/// The bytes of a body that are searched.
// A node that sends without end must not fill the memory by its health check.
const MAX_BODY: usize = 64 * 1024;

/// Why a check failed.
type CheckError = Box<str>;

/// Checks a node once.
///
/// # Errors
/// The check failed.
pub(super) async fn check(node: &Node, plan: &CheckPlan) -> Result<(), CheckError> {
    match &plan.kind {
        CheckKind::Connect => open_connection(&node.origin, plan).await.map(drop),
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
            let mut response = send(node, &node.origin, plan, head, Body::Empty).await?;
            let is_good = if statuses.is_empty() {
                // As in HAProxy, a redirect is a sign of life: many applications redirect `/` to a log-in.
                (200..400).contains(&response.status.as_u16())
            } else {
                statuses.contains(&response.status)
            };
            if !is_good {
                return Err(format!("status {}", response.status.as_u16()).into());
            }
            match contains {
                Some(text) => find_text(text, &mut response.body).await,
                None => Ok(()),
            }
        }
        CheckKind::Grpc { service } => {
            // gRPC needs trailers and streams: HTTP/2, also to a node whose requests go over HTTP/1.1.
            let protocol = match node.origin.protocol {
                Protocol::Http3 => Protocol::Http3,
                _ => Protocol::Http2,
            };
            let origin = Origin {
                protocol,
                ..node.origin.clone()
            };
            let fields = fields(&[(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/grpc"),
            )]);
            let head = head(node, &node.authority, grpc::TARGET, fields);
            let body = grpc::request(service).into();
            let response = send(node, &origin, plan, head, body).await?;
            check_grpc_response(response).await
        }
    }
}

async fn open_connection(
    origin: &Origin,
    plan: &CheckPlan,
) -> Result<OriginConnection, CheckError> {
    // A new connection for each check: an idle one would still work after the node has stopped to accept any.
    let opened = connect(origin, None, &timeouts(plan)).await;
    opened.map_err(|failure| failure.to_string().into())
}

async fn send(
    node: &Node,
    origin: &Origin,
    plan: &CheckPlan,
    head: ClientRequestHead,
    body: Body,
) -> Result<ClientResponse, CheckError> {
    let request = ClientRequest {
        template: RequestTemplate {
            head: Rc::new(head),
            interim: None,
            timeouts: Rc::new(timeouts(plan)),
            stderr: None,
        },
        body,
    };
    let sent = match (open_connection(origin, plan).await?, &node.application) {
        (OriginConnection::FastCgi(connection), Some(application)) => {
            application.send_check(connection, request).await
        }
        (connection, _) => connection.send(request).await,
    };
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
        // gRPC requires the field, to find out proxies that drop trailers.
        te_trailers: true,
        expects_continue: false,
        params: None,
    }
}

/// Returns the CGI variables of a GET (RFC 3875 section 4.1). The target names the script: the `ping.path` of
/// PHP-FPM, or a file by its absolute path.
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
        // PHP with `cgi.force_redirect` refuses to run without it.
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

async fn find_text(text: &str, body: &mut Body) -> Result<(), CheckError> {
    let (bytes, _) = read_body(body).await?;
    let found = text.is_empty()
        || bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes());
    if found {
        Ok(())
    } else {
        Err("the body does not contain the text".into())
    }
}

/// Checks that a response of the gRPC health service says `SERVING`.
async fn check_grpc_response(mut response: ClientResponse) -> Result<(), CheckError> {
    if response.status != StatusCode::OK {
        return Err(format!("status {}", response.status.as_u16()).into());
    }
    let (bytes, trailers) = read_body(&mut response.body).await?;
    // A response without messages has its status in the headers.
    let status = trailers
        .as_ref()
        .and_then(|trailers| trailers.get_str("grpc-status"))
        .or_else(|| response.headers.get_str("grpc-status"));
    match status {
        Some("0") => {}
        Some(status) => return Err(format!("gRPC status {status}").into()),
        None => return Err("no gRPC status".into()),
    }
    match grpc::is_serving(&bytes) {
        Some(true) => Ok(()),
        Some(false) => Err("not serving".into()),
        None => Err("not a response of the health service".into()),
    }
}

/// Reads a body up to [`MAX_BODY`], and its trailers.
async fn read_body(body: &mut Body) -> Result<(Vec<u8>, Option<Headers>), CheckError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| CheckError::from(error.to_string()))? {
            Frame::Data(bytes) => read.extend_from_slice(&bytes),
            Frame::Trailers(trailers) => return Ok((read, Some(trailers))),
            Frame::File(_) => {}
        }
        if read.len() >= MAX_BODY {
            read.truncate(MAX_BODY);
            break;
        }
    }
    Ok((read, None))
}
