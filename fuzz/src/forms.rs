//! Fuzz targets of client input to applications: forms with files, cookies, and queries.

use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus::extract::{Cookies, Multipart, UploadLimits};
use apus::{
    App, Body, BodyError, BodyStream, ConnectionInfo, Form, Frame, FromRequest, Headers, Method,
    Peer, Query, Request, Response, ResponseFuture, Service, ServiceFactory, StatusCode, Target,
    Version,
};
use apus_http::{Head, HopByHopFields};
use bytes::Bytes;

/// The limits of body extractors.
const LIMIT: u64 = 512;

/// A form with the boundary `b`. The result is independent of the split of the input, parts contain no boundary,
/// limits are enforced, file names have no path, and the form can be written again.
pub fn multipart(data: &[u8]) {
    let read = Parts::of(data, data.len());
    assert_eq!(read, Parts::of(data, 1));
    assert_eq!(read, Parts::of(data, 5));
    assert!(read.parts.len() <= 8);
    for part in &read.parts {
        assert!(!part.content.windows(5).any(|window| window == b"\r\n--b"));
        if let Some(name) = &part.file_name {
            assert!(!name.contains(|each: char| "/\\".contains(each) || each.is_control()));
            assert!(name != "." && name != "..");
        }
    }
    // Escapes cannot be distinguished from text that looks like one.
    let is_plain = |text: &str| !text.contains(['\\', '%']);
    let can_be_written = |part: &Part| {
        let file_name = part.file_name.as_deref().unwrap_or("");
        is_plain(&part.name) && is_plain(file_name) && !part.content.starts_with(b"--b")
    };
    if read.status.is_none() && read.parts.iter().all(can_be_written) {
        let again = Parts::of(&read.write(), 3);
        assert_eq!(read.parts, again.parts);
        assert_eq!(again.status, None);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Parts {
    parts: Vec<Part>,
    /// The error.
    status: Option<StatusCode>,
}

#[derive(Debug, PartialEq)]
struct Part {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    content: Vec<u8>,
}

impl Parts {
    fn of(content: &[u8], size: usize) -> Self {
        let pieces: Vec<Bytes> = content
            .chunks(size.max(1))
            .map(Bytes::copy_from_slice)
            .collect();
        let fields = [("content-type", "multipart/form-data; boundary=b")];
        let request = request("/", &fields, Body::stream(Pieces(pieces.into_iter())));
        let mut read = Self::default();
        let status = at_once(async {
            let form = Multipart::from_request(request, LIMIT).await?;
            let limits = UploadLimits::new().parts(8).file(256).in_memory(usize::MAX);
            let mut form = form.limits(limits);
            while let Some(part) = form.next().await? {
                let name = part.name().to_owned();
                let file_name = part.file_name().map(str::to_owned);
                let content_type = part.content_type().map(str::to_owned);
                let content = match &file_name {
                    Some(_) => {
                        let upload = part.store().await?;
                        assert!(upload.len() <= 256);
                        upload.bytes().await.expect("it is in memory")
                    }
                    None => part.bytes().await?,
                };
                read.parts.push(Part {
                    name,
                    file_name,
                    content_type,
                    content: content.into(),
                });
            }
            Ok::<_, apus::Rejection>(())
        });
        read.status = status.err().map(|refused| {
            let status = apus::IntoResponse::into_response(refused).status();
            assert!(status.is_client_error());
            status
        });
        let texts = read.parts.iter().filter(|part| part.file_name.is_none());
        assert!(texts.map(|part| part.content.len() as u64).sum::<u64>() <= LIMIT);
        read
    }

    fn write(&self) -> Vec<u8> {
        let escaped = |text: &str| {
            let text = text.replace('"', "%22").replace('\r', "%0D");
            text.replace('\n', "%0A")
        };
        let mut form = Vec::new();
        for part in &self.parts {
            form.extend_from_slice(b"--b\r\n");
            let mut head = format!(
                "content-disposition: form-data; name=\"{}\"",
                escaped(&part.name)
            );
            if let Some(name) = &part.file_name {
                head += &format!("; filename=\"{}\"", name.replace('"', "\\\""));
            }
            if let Some(content_type) = &part.content_type {
                head += &format!("\r\ncontent-type: {content_type}");
            }
            form.extend_from_slice(head.as_bytes());
            form.extend_from_slice(b"\r\n\r\n");
            form.extend_from_slice(&part.content);
            form.extend_from_slice(b"\r\n");
        }
        form.extend_from_slice(b"--b--");
        form
    }
}

/// Lines of `Cookie`, the first of which is also the value of a cookie that is set. Names are unique. A cookie
/// that is set is one line with its attributes, and is read back unchanged.
pub fn cookies(data: &[u8]) {
    let mut lines = Headers::new();
    for line in data.split(|byte| *byte == b'\n') {
        let _ = lines.try_append("cookie", line);
    }
    let cookies = cookies_of(&lines);
    for (index, (name, value)) in cookies.iter().enumerate() {
        assert_eq!(cookies.get(name), Some(value));
        assert!(
            cookies
                .iter()
                .skip(index + 1)
                .all(|(other, _)| other != name)
        );
    }
    let first = data.split(|byte| *byte == b'\n').next();
    let text = String::from_utf8_lossy(first.unwrap_or_default());
    let mut set = cookies;
    set.add(("name", text.clone().into_owned()));
    let mut response = Response::new(StatusCode::OK);
    set.apply(&mut response);
    assert_eq!(response.headers().len(), 1);
    let line = response
        .headers()
        .get_str("set-cookie")
        .expect("a line of text");
    let pair = line.strip_suffix("; HttpOnly; SameSite=Lax; Path=/");
    let pair = pair.expect("attributes are ours");
    assert!(!pair.contains([';', ' ', ',', '"']));
    let mut sent = Headers::new();
    sent.try_append("cookie", pair)
        .expect("what was set can be sent");
    assert_eq!(cookies_of(&sent).get("name"), Some(&*text));
}

fn cookies_of(headers: &Headers) -> Cookies {
    let mut request = request("/", &[], Body::Empty);
    *request.headers_mut() = headers.clone();
    Cookies::of(&request)
}

type Fields = BTreeMap<String, Vec<String>>;

/// The fields of a form. They are the same in a query, if it can contain them, and after they were written
/// again.
pub fn query(data: &[u8]) {
    let form = form(data);
    if let Ok(text) = std::str::from_utf8(data)
        && Target::parse(&Method::GET, &format!("/?{text}")).is_ok()
        && !text.contains('#')
    {
        let response =
            SERVICE.with(|service| service.call(request(&format!("/?{text}"), &[], Body::Empty)));
        let ResponseFuture::Now(response) = response else {
            panic!("a handler that does not wait responds at once");
        };
        match (&form, response.body()) {
            (Some(fields), Body::Bytes(bytes)) => assert_eq!(format!("{fields:?}"), *bytes),
            (fields, _) => assert_eq!((fields, response.status().as_u16()), (&None, 400)),
        }
    }
    let Some(fields) = form else {
        return;
    };
    let mut written = String::new();
    for (name, values) in &fields {
        assert!(!values.is_empty());
        for value in values {
            written += &format!("&{}={}", encoded(name), encoded(value));
        }
    }
    assert_eq!(self::form(written.as_bytes()), Some(fields));
}

thread_local! {
    static SERVICE: Rc<dyn Service> = App::new()
        .get("/", |Query(fields): Query<Fields>| format!("{fields:?}"))
        .service();
}

fn form(bytes: &[u8]) -> Option<Fields> {
    let fields = [("content-type", "application/x-www-form-urlencoded")];
    let body = Bytes::copy_from_slice(bytes).into();
    let read = at_once(Form::<Fields>::from_request(
        request("/", &fields, body),
        u64::MAX,
    ));
    read.ok().map(|Form(fields)| fields)
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// The output of a future that is ready at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("there is nothing to wait for"),
    }
}

fn request(target: &str, fields: &[(&str, &str)], body: Body) -> Request {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.try_append(name, value).expect("a valid field");
    }
    let head = Head {
        method: Method::GET,
        target: Target::parse(&Method::GET, target).expect("a valid target"),
        version: Version::HTTP_11,
        headers,
        hop_by_hop: HopByHopFields::default(),
    };
    let connection = ConnectionInfo {
        kept: apus_http::KeptValue::default(),
        id: 1,
        peer: Peer::Unix,
        local: Peer::Unix,
        tls: None,
    };
    Request::from_head(Box::new(head), body, Rc::new(connection))
}

/// A body that arrives in pieces.
struct Pieces(std::vec::IntoIter<Bytes>);

impl BodyStream for Pieces {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(self.0.next().map(|piece| Ok(Frame::Data(piece))))
    }
}
