//! `apus cache warm`: requests for the URLs of a list or a sitemap, to fill the cache.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientResponse, ClientTlsSettings, Origin, Protocol,
    ProxyHead, RequestTemplate, ResponseRules, Timeouts, Tls, connect,
};
use apus_config::ServerPlan;
use apus_http::{Body, Frame, Headers, Method, Peer, StatusCode};
use apus_net::{ListenAddress, ListenerPlan};
use tokio::sync::mpsc;

use crate::folder_config::FolderConfig;
use crate::load::{Certificates, LoadError, PlanLoader};
use crate::source::ConfigSource;
use crate::url::{Url, scheme};

/// Concurrent requests: enough to keep an origin busy, few enough to leave capacity for others.
const AT_ONCE: usize = 8;

/// The size limit of a sitemap (sitemaps.org).
const SITEMAP_BYTES: usize = 50 << 20;

/// The timeout of a response, which is often slow without a cache.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmResult {
    /// The response was stored.
    Stored,
    /// The response was stored already.
    Hit,
    /// The response was not stored.
    NotStored(StatusCode),
    /// The request failed, with the reason.
    Failed(String),
}

/// Fetches all URLs of `list`, a file or the URL of a sitemap, from the running server of `source`.
/// Calls `report` for each URL with its result and the number of URLs.
///
/// # Errors
/// There is no such list, or the source cannot be loaded.
pub fn warm(
    source: ConfigSource,
    list: &str,
    report: &mut dyn FnMut(&str, &WarmResult, usize),
) -> Result<(), WarmError> {
    let folder = FolderConfig::new(None, false);
    let loader = PlanLoader::new(source, folder, Certificates::Passing, None);
    let loaded = loader.load(None).map_err(WarmError::Load)?;
    let server = Rc::new(WarmedServer {
        listeners: loaded.plan.listeners,
        plan: loaded.config,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(WarmError::Runtime)?;
    runtime.block_on(async {
        let urls = urls(list, &server).await?;
        let count = urls.len();
        let rest = Rc::new(RefCell::new(urls.into_iter()));
        let (sender, mut receiver) = mpsc::unbounded_channel();
        for _ in 0..AT_ONCE {
            let (rest, server, sender) = (Rc::clone(&rest), Rc::clone(&server), sender.clone());
            tokio::task::spawn_local(async move {
                loop {
                    let Some(url) = rest.borrow_mut().next() else {
                        break;
                    };
                    let warmed = fetch(&url, &server).await;
                    let failed = |error: FetchError| WarmResult::Failed(error.to_string());
                    let warmed = warmed.unwrap_or_else(failed);
                    let _ = sender.send((url, warmed));
                }
            });
        }
        drop(sender);
        while let Some((url, warmed)) = receiver.recv().await {
            report(&url, &warmed, count);
        }
        Ok(())
    })
}

/// Why a URL was not fetched: it is not of the server, or the request failed.
type FetchError = Box<dyn Error>;

/// The running server, by its configuration.
struct WarmedServer {
    listeners: Vec<ListenerPlan>,
    plan: ServerPlan,
}

/// The URLs of a list, one per line, or of a sitemap; of all sitemaps, if it is an index.
async fn urls(list: &str, server: &WarmedServer) -> Result<Vec<String>, WarmError> {
    let text = if list.starts_with("http://") || list.starts_with("https://") {
        sitemap(list, server).await?
    } else {
        fs::read_to_string(list).map_err(|error| WarmError::File(list.into(), error))?
    };
    if !is_index(&text) {
        return Ok(listed(&text));
    }
    let mut urls = Vec::new();
    for inner in listed(&text) {
        urls.extend(listed(&sitemap(&inner, server).await?));
    }
    Ok(urls)
}

async fn sitemap(url: &str, server: &WarmedServer) -> Result<String, WarmError> {
    let failed = |why: String| WarmError::Sitemap(url.to_owned(), why);
    let response = get(url, server).await;
    let mut response = response.map_err(|error| failed(error.to_string()))?;
    if response.status != StatusCode::OK {
        return Err(failed(format!("status {}", response.status.as_u16())));
    }
    let mut text = Vec::new();
    while let Some(frame) = response.body.frame().await {
        let frame = frame.map_err(|error| failed(error.to_string()))?;
        if let Frame::Data(data) = frame {
            text.extend_from_slice(&data);
        }
        if text.len() > SITEMAP_BYTES {
            return Err(failed(
                "it is larger than the limit for sitemaps".to_owned(),
            ));
        }
    }
    String::from_utf8(text).map_err(|_| failed("it is not UTF-8; is it compressed?".to_owned()))
}

fn is_index(text: &str) -> bool {
    text.contains("<sitemapindex")
}

fn listed(text: &str) -> Vec<String> {
    if text.trim_start().starts_with('<') {
        let places = text.split("<loc>").skip(1);
        let inner = places.filter_map(|place| place.split_once("</loc>"));
        return inner.map(|(url, _)| unescaped(url.trim())).collect();
    }
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// XML text with its entities decoded.
fn unescaped(text: &str) -> String {
    if let Some(plain) = text.strip_prefix("<![CDATA[") {
        return plain.trim_end_matches("]]>").trim().to_owned();
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// Fetches a whole URL: a partial response would not be stored.
async fn fetch(url: &str, server: &WarmedServer) -> Result<WarmResult, FetchError> {
    let mut response = get(url, server).await?;
    while let Some(frame) = response.body.frame().await {
        frame?;
    }
    let field = response.headers.get("cache-status").unwrap_or_default();
    let field = String::from_utf8_lossy(field);
    let mut words = field.split([';', ',']).map(str::trim);
    Ok(match words.find(|word| ["hit", "stored"].contains(word)) {
        Some("hit") => WarmResult::Hit,
        Some(_) => WarmResult::Stored,
        None if response.status.as_u16() >= 400 => {
            WarmResult::Failed(format!("status {}", response.status.as_u16()))
        }
        None => WarmResult::NotStored(response.status),
    })
}

async fn get(url: &str, server: &WarmedServer) -> Result<ClientResponse, FetchError> {
    let url = Url::parse(url)?;
    url.check_site(&server.plan)?;
    let listener = url.listener(&server.listeners)?;
    let origin = origin(&url, listener)?;
    let mut headers = Headers::new();
    for (name, value) in [
        ("user-agent", "apus-cache-warm"),
        ("accept", "*/*"),
        // The field of browsers, because a compressed response is stored for them.
        ("accept-encoding", "gzip, deflate, br, zstd"),
    ] {
        headers.try_append(name, value)?;
    }
    let timeouts = Timeouts {
        connect: PATIENCE,
        tls: PATIENCE,
        first_byte: PATIENCE,
        read: PATIENCE,
        write: PATIENCE,
    };
    let connection = connect(&origin, None, &timeouts).await?;
    let request = ClientRequest {
        template: RequestTemplate {
            head: Rc::new(ClientRequestHead {
                method: Method::GET,
                scheme: scheme(url.is_secure),
                authority: url.authority.into(),
                target: url.target().into(),
                headers,
                upgrade: None,
                te_trailers: false,
                expects_continue: false,
                params: None,
            }),
            interim: None,
            timeouts: Rc::new(timeouts),
            stderr: None,
        },
        body: Body::Empty,
    };
    Ok(connection.send(request).await?)
}

/// The address of the server itself on this machine.
fn origin(url: &Url<'_>, listener: &ListenerPlan) -> Result<Origin, FetchError> {
    let (address, peer) = match &listener.address {
        ListenAddress::Tcp { address, ipv6_only } => {
            let ip = match address.ip() {
                IpAddr::V6(ip) if ip.is_unspecified() && *ipv6_only => Ipv6Addr::LOCALHOST.into(),
                ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                ip => ip,
            };
            let address = SocketAddr::new(ip, address.port());
            (Address::Ip(address), Peer::Ip(address))
        }
        ListenAddress::Unix { path, .. } => (Address::Unix(Arc::from(path.as_path())), Peer::Unix),
        ListenAddress::Inherited { name } => {
            return Err(format!("the address of the socket systemd:{name} is unknown").into());
        }
    };
    let tls = match &listener.tls {
        None => None,
        // The connection is local, and the certificate may be valid for public names only.
        Some(_) => {
            let settings = ClientTlsSettings {
                verify: false,
                ..ClientTlsSettings::new(url.host.trim_matches(['[', ']']))
            };
            Some(Tls::new(&settings)?)
        }
    };
    let sends_proxy_header = |network: &apus_http::Network| network.contains(&peer);
    Ok(Origin {
        address,
        tls,
        protocol: Protocol::Http1,
        proxy_head: if listener.proxy_protocol_from.iter().any(sends_proxy_header) {
            ProxyHead::V2
        } else {
            ProxyHead::None
        },
        responses: ResponseRules::default(),
    })
}

/// The URLs cannot be fetched.
#[derive(Debug)]
#[non_exhaustive]
pub enum WarmError {
    /// The list cannot be read.
    File(PathBuf, io::Error),
    /// The sitemap cannot be fetched.
    Sitemap(String, String),
    /// The source cannot be loaded.
    Load(LoadError),
    /// The runtime cannot be created.
    Runtime(io::Error),
}

impl fmt::Display for WarmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => {
                write!(f, "cannot read the list {}: {error}", path.display())
            }
            Self::Sitemap(url, why) => write!(f, "cannot read the sitemap {url}: {why}"),
            Self::Load(error) => error.fmt(f),
            Self::Runtime(error) => write!(f, "the client cannot be started: {error}"),
        }
    }
}

impl Error for WarmError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) | Self::Runtime(error) => Some(error),
            Self::Load(error) => Some(error),
            Self::Sitemap(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_url_in_each_line() {
        let text = "# pages\nhttp://a/\n\n  http://a/b?c&d \r\n";
        assert_eq!(listed(text), ["http://a/", "http://a/b?c&d"]);
    }

    #[test]
    fn a_sitemap_has_them_in_its_places() {
        let text = "<?xml version=\"1.0\"?><urlset>\n<url><loc> http://a/?b&amp;c </loc></url>\n\
                    <url><loc><![CDATA[http://a/d?e&amp;]]></loc><priority>1</priority></url></urlset>";
        assert_eq!(listed(text), ["http://a/?b&c", "http://a/d?e&amp;"]);
        assert!(!is_index(text));
        assert!(is_index("<sitemapindex xmlns=\"x\"><sitemap>"));
    }
}
