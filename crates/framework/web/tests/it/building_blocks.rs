//! Tests that each key in the table of docs/building-blocks.md has the effect of the line of Rust beside it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use apus::auth::jsonwebtoken::{Algorithm, EncodingKey, encode};
use apus::auth::{BasicAuth, ForwardAuth, JwtAuth, Key, KeySet, SignedUrls, Users};
use apus::cached::{Cache, CacheSettings, Cached, StoreSettings};
use apus::layers::{
    AnyOf, BodyLimit, Bots, BrowserChallenge, Compression, ConcurrentRequests, Cors, ForceHttps,
    Hsts, KnownBot, Maintenance, MapLayer, NetworkAccess, QuotaLimit, RateLimit, Referers,
    RequestIds, RequestMap, RequestMaps, RequireClientCertificate, SecurityHeaders, Timeout,
    TrustedProxies,
};
use apus::php::Php;
use apus::proxy::Proxy;
use apus::sites::{
    Bans, ErrorPage, FieldChange, Location, LocationSettings, RewriteFlag, RewriteRule, Rule,
    RuleAction, Rules, Site,
};
use apus::testing::{TestClient, TestResponse};
use apus::{App, Files, Layered, Redirect, Service, ServiceFactory, StatusCode};
use apus_files::VariantStore;
use apus_php::WorkerPools;
use apus_server::access_log::AccessLogs;
use apus_server::assemble::{self, OriginServices, ProcessResources};
use apus_server::config;
use apus_upstream::Upstreams;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header;
use serde_json::{Value, json};

type ServiceResult = Result<Box<dyn ServiceFactory>, Box<dyn Error>>;

const TABLE: &str = include_str!("../../../../../docs/building-blocks.md");
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// `htpasswd -nbBC 5 ada correct`.
const HTPASSWD: &str = "ada:$2y$05$eLhYL5P0nSfQkLb62B5u7u1s0Bm8rXDXkrzj6A/qD48Cf31VM60mW";

/// The keys of a bot, whose secret key is 32 bytes of 1.
const BOT_KEYS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"}]}"#;

/// `Signature-Input` and `Signature` of a request of that bot (RFC 9421).
fn signed_by_bot(authority: &str) -> [String; 2] {
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
    let keys = KeySet::parse(BOT_KEYS.as_bytes()).unwrap();
    let id = keys.thumbprints().next().unwrap();
    let created = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let expires = created + 60;
    let input = format!(
        "(\"@authority\");created={created};expires={expires};keyid=\"{id}\";tag=\"web-bot-auth\""
    );
    let base = format!("\"@authority\": {authority}\n\"@signature-params\": {input}");
    let signature = STANDARD.encode(key.sign(base.as_bytes()));
    [format!("s={input}"), format!("s=:{signature}:")]
}

/// The two cells of a row.
struct Cells {
    toml: String,
    rust: String,
}

fn table() -> BTreeMap<String, Cells> {
    let rows = TABLE.lines().filter_map(|line| {
        let cells: Vec<&str> = line
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split(" | ")
            .collect();
        let [block, toml, rust] = cells[..] else {
            panic!("a row has three cells: {line}");
        };
        let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        Some((
            block.to_owned(),
            Cells {
                toml: code(toml)?,
                rust: code(rust)?,
            },
        ))
    });
    rows.collect()
}

/// An origin over HTTP/1.1 that counts its requests in its responses.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let length = head.split_once("content-length: ");
            let length = length.map_or(0, |(_, rest)| {
                rest.split("\r\n").next().unwrap().parse().unwrap()
            });
            stream.read_exact(&mut vec![0; length]).unwrap();
            let body = format!("response {number}");
            let response = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncache-control: max-age=60\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    address
}

/// A FastCGI server whose responses are always `php` (FastCGI specification, section 3.3).
fn php(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut header = [0; 8];
                while stream.read_exact(&mut header).is_ok() {
                    let [_, kind, id_high, id_low, high, low, padding, _] = header;
                    let length = usize::from(u16::from_be_bytes([high, low]));
                    let mut rest = vec![0; length + usize::from(padding)];
                    stream.read_exact(&mut rest).unwrap();
                    // An empty record of standard input ends the request.
                    if kind == 5 && length == 0 {
                        let text = b"content-type: text/plain\r\n\r\nphp";
                        let mut records = vec![1, 6, id_high, id_low, 0, text.len() as u8, 0, 0];
                        records.extend_from_slice(text);
                        records.extend_from_slice(&[1, 6, id_high, id_low, 0, 0, 0, 0]);
                        records.extend_from_slice(&[1, 3, id_high, id_low, 0, 8, 0, 0]);
                        records.extend_from_slice(&[0; 8]);
                        stream.write_all(&records).unwrap();
                    }
                }
            });
        }
    });
}

/// The files and origins that the rows are tested with.
struct Bench {
    folder: tempfile::TempDir,
    origin: String,
    silent: (TcpListener, String),
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let public = folder.path().join("public");
        fs::create_dir_all(public.join("folder")).unwrap();
        fs::write(public.join("index.html"), "<p>home</p>").unwrap();
        fs::write(public.join("long.txt"), "long ".repeat(2000)).unwrap();
        fs::write(public.join("a.php"), "<?php").unwrap();
        fs::write(folder.path().join("htpasswd"), HTPASSWD).unwrap();
        fs::write(folder.path().join("jwt.key"), SECRET).unwrap();
        fs::write(folder.path().join("bot.jwks"), BOT_KEYS).unwrap();
        let certificate = rcgen::generate_simple_self_signed(["example.com".to_owned()]).unwrap();
        fs::write(folder.path().join("cert.pem"), certificate.cert.pem()).unwrap();
        let key = certificate.signing_key.serialize_pem();
        fs::write(folder.path().join("key.pem"), key).unwrap();
        php(&folder.path().join("php.sock"));
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        Self {
            folder,
            origin: format!("http://{}", origin()),
            silent: (silent, address),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A site with these lines, as the server serves it.
    fn by_file(&self, lines: &[&str]) -> TestClient {
        let mut global = "trusted_proxies = \"127.0.0.1\"\n".to_owned();
        let mut site = String::new();
        for line in lines {
            match line.strip_prefix("global.") {
                Some(line) => global = format!("{line}\n"),
                None => site += &format!("{line}\n"),
            }
        }
        if !site.contains("upstream =") && !site.contains("root =") {
            site += "root = \"public\"\n";
        }
        if site.contains("https") || site.contains("hsts") {
            site += "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
        }
        let site = site
            .replace("http://127.0.0.1:3000", &self.origin)
            .replace("http://127.0.0.1:3001", &self.silent.1)
            .replace(
                "/run/php/php-fpm.sock",
                &self.path("php.sock").to_string_lossy(),
            );
        let text = format!("[global]\n{global}[[sites]]\nname = \"site\"\nlisten = 80\n{site}");
        let plan = config::parse_str(&text, "apus.toml", self.folder.path(), &|_| None);
        let plan = plan.unwrap_or_else(|diagnostics| panic!("{text}\n{diagnostics}"));
        let upstreams = Upstreams::new();
        upstreams.apply(assemble::groups(&plan).unwrap());
        let (pools, cache) = (WorkerPools::new(), Cache::new(StoreSettings::default()));
        let resources = ProcessResources {
            maintenance: &apus_server::MaintenanceSwitches::default(),
            bans: Some(&Bans::in_memory()),
            glitches: None,
            challenge_states: &apus::sites::ChallengeStates::default(),
            logs: &AccessLogs::new().0,
            variants: &Arc::new(VariantStore::new(0)),
            origins: OriginServices::Live {
                upstreams: &upstreams,
                cache: Some(&cache),
                pools: &pools,
            },
            challenges: &Arc::default(),
            on_demand: &Arc::default(),
            tickets: &Arc::default(),
            rule_counters: &apus_sites::RuleCounters::default(),
            traffic: &apus_sites::TrafficWatch::default(),
            metrics: &apus_sites::SiteMetrics::default(),
            records: &apus_http::RequestRecords::new(0),
        };
        let plan = assemble::assemble(&plan, resources).unwrap();
        let listener = plan
            .listeners
            .iter()
            .find(|listener| listener.tls.is_none());
        TestClient::of(Shared(listener.unwrap().service.clone()))
    }
}

struct Shared(Arc<dyn ServiceFactory>);

impl ServiceFactory for Shared {
    fn service(&self) -> Rc<dyn Service> {
        self.0.service()
    }
}

fn trusted() -> TrustedProxies {
    TrustedProxies::new(["127.0.0.1".parse().unwrap()])
}

/// What a client sees: status, body and these fields.
fn seen(mut response: TestResponse, fields: &[&str]) -> String {
    let mut text = format!("{} {:?}", response.status(), response.text());
    for field in fields {
        text += &format!("\n{field}: {:?}", response.header(field));
    }
    text
}

/// A row of the table with its test.
struct Row {
    block: &'static str,
    /// Lines of the file that the row needs besides its own.
    around: &'static [&'static str],
    /// The line of Rust, and the service that it makes.
    rust: &'static str,
    service: fn(&Bench) -> ServiceResult,
    /// What a client does and sees.
    look: fn(&TestClient) -> String,
}

/// A row whose line of Rust is a service.
macro_rules! service {
    ($block:literal, |$bench:ident| $rust:expr, $look:expr) => {
        Row {
            block: $block,
            around: &[],
            rust: stringify!($rust),
            service: |$bench| Ok(Box::new($rust)),
            look: $look,
        }
    };
}

/// A row whose line of Rust is a layer, here around the files, or around something else.
macro_rules! layer {
    ($block:literal, |$bench:ident| $rust:expr, $look:expr) => {
        layer!($block, [], |$bench| files($bench), $rust, $look)
    };
    ($block:literal, $around:expr, |$bench:ident| $inner:expr, $rust:expr, $look:expr) => {
        Row {
            block: $block,
            around: &$around,
            rust: stringify!($rust),
            service: |$bench| {
                let layered = Layered::new($inner).layer(trusted());
                Ok(Box::new(layered.layer($rust)))
            },
            look: $look,
        }
    };
}

/// A row whose line of Rust is settings of a site.
macro_rules! settings {
    ($block:literal, $rust:expr, $look:expr) => {
        Row {
            block: $block,
            around: &[],
            rust: stringify!($rust),
            service: |bench| {
                let files = Location::files("/".parse()?, files(bench));
                Ok(Box::new(Site::new("site").settings($rust).location(files)))
            },
            look: $look,
        }
    };
}

fn files(bench: &Bench) -> Files {
    Files::new(bench.path("public")).index(["index.html"])
}

/// What clients of several networks see.
fn from_networks(client: &TestClient) -> String {
    ["192.0.2.7", "::ffff:192.0.2.7", "203.0.113.7"]
        .map(|ip| {
            let request = client.get("/").header("x-forwarded-for", ip);
            seen(request.send(), &["www-authenticate"])
        })
        .join("\n")
}

fn slow(bench: &Bench) -> Proxy {
    Proxy::to(&bench.silent.1).unwrap()
}

/// A site that sends the client its address in a field.
fn mirror(bench: &Bench) -> Site {
    let field = FieldChange::set("x-client", "$remote_addr").unwrap();
    let files = Location::files("/".parse().unwrap(), files(bench));
    let settings = LocationSettings::new().response_field(field);
    Site::new("site").settings(settings).location(files)
}

fn rows() -> Vec<Row> {
    vec![
        service!(
            "static files",
            |bench| Files::new(bench.path("public")),
            |client| { seen(client.get("/long.txt").send(), &["content-type", "etag"]) }
        ),
        service!(
            "folder listings",
            |bench| Files::new(bench.path("public")).listing(true),
            |client| seen(client.get("/folder/").send(), &["content-type"])
        ),
        service!(
            "single-page application",
            |bench| Files::new(bench.path("public")).spa("index.html"),
            |client| seen(client.get("/any/page").send(), &["content-type"])
        ),
        service!(
            "reverse proxy",
            |bench| Proxy::to(&bench.origin)?,
            |client| {
                // The origin counts.
                client.get("/").send().text().replace(char::is_numeric, "")
            }
        ),
        Row {
            block: "cache",
            around: &["upstream = \"http://127.0.0.1:3000\""],
            rust: "Cached::new(&cache, \"site\", CacheSettings::default(), proxy)",
            service: |bench| {
                let cache = Cache::new(StoreSettings::default());
                let proxy = Proxy::to(&bench.origin)?;
                let settings = CacheSettings::default();
                Ok(Box::new(Cached::new(&cache, "site", settings, proxy)))
            },
            look: |client| {
                let bodies = [(); 2].map(|()| client.get("/").send().text());
                format!("stored: {}", bodies[0] == bodies[1])
            },
        },
        service!(
            "PHP",
            |bench| Php::fpm(bench.path("php.sock"), bench.path("public")),
            |client| seen(client.get("/a.php").send(), &["content-type"])
        ),
        Row {
            block: "redirect",
            around: &[],
            rust: "Redirect::permanent(\"/new\")",
            service: |_| {
                Ok(Box::new(
                    App::new().get("/old", async || Redirect::permanent("/new")),
                ))
            },
            look: |client| {
                let response = client.get("/old").send();
                format!("{} {:?}", response.status(), response.header("location"))
            },
        },
        layer!("compression", |bench| Compression::default(), |client| {
            let response = client
                .get("/long.txt")
                .header("accept-encoding", "gzip")
                .send();
            format!("{:?}", response.header("content-encoding"))
        }),
        layer!("request id", |bench| RequestIds::new(), |client| {
            let response = client.get("/").send();
            format!("{:?}", response.header("x-request-id").map(str::len))
        }),
        layer!(
            "security headers",
            |bench| SecurityHeaders::new(),
            |client| {
                let fields = [
                    "content-security-policy",
                    "x-content-type-options",
                    "x-frame-options",
                    "referrer-policy",
                    "cross-origin-opener-policy",
                    "permissions-policy",
                ];
                seen(client.get("/").send(), &fields) + &seen(client.get("/none").send(), &fields)
            }
        ),
        layer!(
            "CORS",
            |bench| Cors::new().origin("https://shop.example"),
            |client| {
                let fields = [
                    "access-control-allow-origin",
                    "access-control-allow-methods",
                    "vary",
                ];
                let from = |origin: &str| client.get("/").header("origin", origin).send();
                let preflight = client
                    .options("/")
                    .header("origin", "https://shop.example")
                    .header("access-control-request-method", "POST");
                [
                    from("https://shop.example"),
                    from("https://evil.example"),
                    preflight.send(),
                ]
                .map(|response| seen(response, &fields))
                .join("\n")
            }
        ),
        layer!(
            "request time-out",
            ["upstream = \"http://127.0.0.1:3001\""],
            |bench| slow(bench),
            Timeout::new(Duration::from_secs(1)),
            |client| client.get("/").send().status().to_string()
        ),
        layer!("limit of rates", |bench| RateLimit::per_hour(1), |client| {
            let fields = ["ratelimit", "ratelimit-policy", "retry-after"];
            [(); 2]
                .map(|()| seen(client.get("/").send(), &fields))
                .join("\n")
        }),
        layer!(
            "quota of a window",
            |bench| QuotaLimit::per_month(1),
            |client| [(); 2]
                .map(|()| seen(client.get("/").send(), &["ratelimit-policy"]))
                .join("\n")
        ),
        layer!(
            "limit of requests at once",
            |bench| ConcurrentRequests::new(2),
            |client| seen(client.get("/").send(), &["ratelimit", "ratelimit-policy"])
        ),
        layer!(
            "networks that are served",
            |bench| NetworkAccess::allow(["192.0.2.0/24".parse()?]),
            from_networks
        ),
        layer!(
            "networks that are not",
            |bench| NetworkAccess::deny(["192.0.2.0/24".parse()?]),
            from_networks
        ),
        layer!(
            "client certificates",
            [
                "server_name = \"example.com\"",
                "listen_tls = 443",
                "tls = { cert = \"cert.pem\", key = \"key.pem\", client_auth = \"optional\", client_ca = \"cert.pem\" }",
            ],
            |bench| files(bench),
            RequireClientCertificate::new(),
            |client| seen(client.get("/").header("client-cert", ":AA==:").send(), &[])
        ),
        layer!(
            "one of several ways",
            [
                "allow = \"192.0.2.0/24\"",
                "basic_auth = { users_file = \"htpasswd\" }",
            ],
            |bench| files(bench),
            AnyOf::new(NetworkAccess::allow(["192.0.2.0/24".parse()?])).or(BasicAuth::stored(
                "Restricted",
                Users::from_htpasswd(HTPASSWD).unwrap()
            )),
            |client| {
                let with_password = client.get("/").basic("ada", "correct").send();
                [
                    from_networks(client),
                    seen(with_password, &["www-authenticate"]),
                ]
                .join("\n")
            }
        ),
        layer!(
            "hotlink protection",
            |bench| Referers::new().none().same_host(),
            |client| {
                let from = |page: &str| client.get("/").header("referer", page).send();
                [
                    seen(client.get("/").send(), &[]),
                    seen(from("http://evil.example/"), &[]),
                    seen(from("http://localhost/page"), &[]),
                ]
                .join("\n")
            }
        ),
        layer!(
            "signed links",
            |bench| SignedUrls::new(&Key::new(SECRET.as_bytes())?),
            |client| {
                let signed = |key: &str| SignedUrls::new(&Key::new(key).unwrap()).sign("/long.txt");
                let other = SECRET.replace('0', "1");
                [
                    seen(client.get("/long.txt").send(), &[]),
                    seen(client.get(&signed(&other)).send(), &[]),
                    seen(client.get(&signed(SECRET)).send(), &[]),
                ]
                .join("\n")
            }
        ),
        layer!(
            "basic authentication",
            |bench| BasicAuth::stored("Restricted", Users::from_htpasswd(HTPASSWD).unwrap()),
            |client| {
                let fields = ["www-authenticate"];
                [
                    seen(client.get("/").send(), &fields),
                    seen(client.get("/").basic("ada", "wrong").send(), &fields),
                    seen(client.get("/").basic("bob", "correct").send(), &fields),
                    seen(client.get("/").basic("ada", "correct").send(), &fields),
                ]
                .join("\n")
            }
        ),
        layer!(
            "JWT",
            |bench| JwtAuth::<Value>::from_key(Algorithm::HS256, SECRET.as_bytes())?,
            |client| {
                let token = |secret: &str| {
                    let claims = json!({ "sub": "ada", "exp": 4_000_000_000_u64 });
                    let key = EncodingKey::from_secret(secret.as_bytes());
                    encode(&Default::default(), &claims, &key).unwrap()
                };
                let fields = ["www-authenticate"];
                [
                    seen(client.get("/").send(), &fields),
                    seen(client.get("/").bearer(&token("other")).send(), &fields),
                    seen(client.get("/").bearer(&token(SECRET)).send(), &fields),
                ]
                .join("\n")
            }
        ),
        layer!(
            "forward authentication",
            |bench| ForwardAuth::new(Proxy::to(&bench.origin)?, "/")?
                .copy_to_response([header::CACHE_CONTROL]),
            |client| seen(client.get("/").send(), &["cache-control"])
        ),
        layer!(
            "body limit",
            ["upstream = \"http://127.0.0.1:3000\""],
            |bench| Proxy::to(&bench.origin)?,
            BodyLimit::new(1_048_576),
            |client| {
                let post = |len: usize| client.post("/").body(vec![b'a'; len]).send().status();
                [1_048_575, 1_048_576, 1_048_577]
                    .map(|len| post(len).to_string())
                    .join("\n")
            }
        ),
        layer!(
            "HSTS",
            |bench| Hsts::new(Duration::from_secs(60)),
            |client| {
                let over =
                    |scheme: &str| client.get("/").header("x-forwarded-proto", scheme).send();
                [over("https"), over("http")]
                    .map(|response| seen(response, &["strict-transport-security"]))
                    .join("\n")
            }
        ),
        layer!(
            "redirect to `https`",
            |bench| ForceHttps::default(),
            |client| {
                let over = |scheme: &str| {
                    client
                        .get("/a?b")
                        .header("x-forwarded-proto", scheme)
                        .send()
                };
                [over("https"), over("http")]
                    .map(|response| {
                        format!("{} {:?}", response.status(), response.header("location"))
                    })
                    .join("\n")
            }
        ),
        layer!("maintenance", |bench| Maintenance::new(), |client| {
            let response = client.get("/").send();
            let wait = response.header("retry-after");
            format!("{} {wait:?}", response.status())
        }),
        layer!(
            "challenge of browsers",
            |bench| BrowserChallenge::under_attack(),
            |client| {
                let program = seen(client.get("/").send(), &["cache-control", "content-type"]);
                let page = client.get("/a").header("accept", "text/html").send();
                let language = page.header("content-language").map(str::to_owned);
                format!("{program}\n{} {language:?}", page.status())
            }
        ),
        Row {
            block: "bots that sign their requests",
            around: &["headers.set = { x-bot = \"$bot\" }"],
            rust: "Bots::new().bot(KnownBot::new(\"archive\").key_set(KeySet::parse(keys)?))",
            service: |bench| {
                let keys = &fs::read(bench.path("bot.jwks"))?;
                let bots = Bots::new().bot(KnownBot::new("archive").key_set(KeySet::parse(keys)?));
                let field = FieldChange::set("x-bot", "$bot")?;
                let settings = LocationSettings::new().response_field(field);
                let files = Location::files("/".parse()?, files(bench));
                let site = Site::new("site").settings(settings).location(files);
                Ok(Box::new(Layered::new(site).layer(bots)))
            },
            look: |client| {
                ["localhost", "elsewhere.example"]
                    .map(|authority| {
                        let [input, signature] = signed_by_bot(authority);
                        let request = client.get("/").header("signature-input", &input);
                        seen(request.header("signature", &signature).send(), &["x-bot"])
                    })
                    .join("\n")
            },
        },
        Row {
            block: "client address behind proxies",
            around: &["headers.set = { x-client = \"$remote_addr\" }"],
            rust: "TrustedProxies::new([\"127.0.0.0/8\".parse()?])",
            service: |bench| {
                let proxies = TrustedProxies::new(["127.0.0.0/8".parse()?]);
                Ok(Box::new(Layered::new(mirror(bench)).layer(proxies)))
            },
            look: |client| {
                let request = client.get("/").header("x-forwarded-for", "203.0.113.9");
                seen(request.send(), &["x-client"])
            },
        },
        settings!(
            "response fields",
            LocationSettings::new().response_field(FieldChange::set("x-a", "b")?),
            |client| seen(client.get("/").send(), &["x-a"])
        ),
        layer!(
            "rules",
            |bench| Rules::new("app").rule(
                Rule::new("closed")
                    .when("path starts_with \"/x\"".parse()?)
                    .then(RuleAction::deny(StatusCode::FORBIDDEN))
            ),
            |client| {
                ["/", "/x", "/%78/a"]
                    .map(|path| seen(client.get(path).send(), &[]))
                    .join("\n")
            }
        ),
        layer!(
            "maps",
            ["headers.set = { x-plan = \"$map_plan\" }"],
            |bench| {
                let field = FieldChange::set("x-plan", "$map_plan")?;
                let settings = LocationSettings::new().response_field(field);
                let files = Location::files("/".parse()?, files(bench));
                Site::new("site").settings(settings).location(files)
            },
            MapLayer::new(RequestMaps::new([RequestMap::new(
                "plan",
                "header.x-key"
            )?
            .entries([("ada", "gold")])?
            .default_value("free")])?),
            |client| {
                ["ada", "lin"]
                    .map(|key| seen(client.get("/").header("x-key", key).send(), &["x-plan"]))
                    .join("\n")
            }
        ),
        layer!(
            "bans of clients",
            |bench| Rules::new("app").bans(&Bans::in_memory()).rule(
                Rule::new("trap")
                    .when("path == \"/trap\"".parse()?)
                    .then(RuleAction::Ban(Duration::from_secs(600)))
                    .then(RuleAction::deny(StatusCode::FORBIDDEN))
            ),
            |client| {
                ["/", "/trap", "/"]
                    .map(|path| seen(client.get(path).send(), &[]))
                    .join("\n")
            }
        ),
        settings!(
            "rewrites",
            LocationSettings::new().rewrite(RewriteRule::new(
                "^/old$",
                "/index.html",
                RewriteFlag::Continue
            )?),
            |client| seen(client.get("/old").send(), &[])
        ),
        settings!(
            "error pages",
            LocationSettings::new()
                .error_page(StatusCode::NOT_FOUND, ErrorPage::Path("/index.html".into())),
            |client| seen(client.get("/none").send(), &["content-type"])
        ),
    ]
}

/// The line of Rust of a row, with what stands for files and addresses as the documentation has it.
fn documented(rust: &str) -> String {
    let names = [
        ("bench.path(\"public\")", "\"public\""),
        ("&bench.origin", "\"http://127.0.0.1:3000\""),
        ("bench.path(\"php.sock\")", "\"/run/php/php-fpm.sock\""),
        ("HTPASSWD).unwrap()", "htpasswd)?"),
        ("SECRET.as_bytes()", "key"),
    ];
    let rust: String = rust.split_whitespace().collect();
    names
        .iter()
        .fold(rust, |rust, (from, to)| rust.replace(from, to))
}

#[test]
fn a_key_and_the_line_of_rust_beside_it_have_the_same_effect() {
    let mut table = table();
    let bench = Bench::new();
    for row in rows() {
        let Some(cells) = table.remove(row.block) else {
            panic!("the table has no row `{}`", row.block);
        };
        let rust: String = cells.rust.split_whitespace().collect();
        assert_eq!(documented(row.rust), rust, "{}", row.block);
        let lines: Vec<&str> = [&*cells.toml]
            .into_iter()
            .chain(row.around.iter().copied())
            .collect();
        let by_file = (row.look)(&bench.by_file(&lines));
        let service =
            (row.service)(&bench).unwrap_or_else(|error| panic!("{}: {error}", row.block));
        let application = App::new().mount("/", Shared(service.into()));
        let by_code = (row.look)(&TestClient::new(application));
        assert_eq!(by_file, by_code, "{}", row.block);
        // Files are there without any key, compressed, and behind a trusted proxy here; without a time-out the
        // response never comes, and a variable of a map that is not there is a mistake.
        let is_always = [
            "static files",
            "compression",
            "request time-out",
            "maps",
            "client address behind proxies",
        ];
        if !is_always.contains(&row.block) {
            let without = (row.look)(&bench.by_file(row.around));
            assert_ne!(by_file, without, "{} changes nothing", row.block);
        }
    }
    let left: Vec<_> = table.keys().collect();
    assert!(left.is_empty(), "rows without a test: {left:?}");
}
