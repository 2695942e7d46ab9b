//! WordPress: its installer, and the requests of an author and of readers.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::compare::assert_same_response;
use super::server::{Server, Site};
use super::source;
use super::stack::Stack;
use super::visitor::{ClientProtocol, PageResponse, Visitor, between};

pub(super) const AUTHOR: &str = "swift";
pub(super) const PASSWORD: &str = "on the wing & nowhere else";

/// The configuration for nginx from the handbook of WordPress.
const LOCATIONS: &str = "location / { try_files $uri $uri/ /index.php?$args; }
    location ~* /(?:uploads|files)/.*\\.php$ { deny all; }
    location = /wp-config.php { deny all; }";

/// The site of the one blog, with these further lines for Apus.
pub(super) fn site<T>(apus: &str, start: impl Fn(&Site<'_>) -> T) -> T {
    let stack = Stack::shared();
    start(&Site {
        host: "blog.test",
        root: &stack.path("wordpress"),
        socket: &stack.socket(),
        apus: &format!("preset = \"wordpress\"\n{apus}"),
        nginx: LOCATIONS,
    })
}

/// Tests that write to the blog share it; tests that compare pages of it have it alone.
static BLOG: RwLock<()> = RwLock::new(());

/// Held by a test that writes to the blog.
pub(super) struct SharedBlog(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

impl SharedBlog {
    pub(super) fn lock() -> Self {
        Self(BLOG.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Held by a test during which no other writes to the blog.
pub(super) struct ExclusiveBlog(
    #[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>,
);

impl ExclusiveBlog {
    pub(super) fn lock() -> Self {
        Self(BLOG.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Apus in front of an installed blog with pretty permalinks and one post at `/swifts/`.
pub(super) fn blog(apus: &str) -> Server {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let server = site("", Server::apus);
        install(&server);
        let author = Author::log_in(&server, ClientProtocol::Http1);
        author.set_permalinks(&server);
        author.publish(&server, "swifts", "Swifts sleep on the wing.");
    });
    site(apus, Server::apus)
}

fn install(server: &Server) {
    let visitor = Visitor::new(ClientProtocol::Http1);
    let reply = visitor.get(server, "/");
    assert_eq!(reply.status, 302, "{}", reply.text());
    let location = reply.field("location");
    assert_eq!(location, "http://blog.test/wp-admin/install.php");
    let page = visitor.get(server, "/wp-admin/install.php");
    assert!(page.text().contains("weblog_title"), "{}", page.text());
    let form = [
        ("weblog_title", "Apus apus"),
        ("user_name", AUTHOR),
        ("admin_password", PASSWORD),
        ("admin_password2", PASSWORD),
        ("pw_weak", "1"),
        ("admin_email", "swift@blog.test"),
        ("language", ""),
    ];
    let reply = visitor.post(server, "/wp-admin/install.php?step=2", &form);
    let page = reply.text();
    assert!(page.contains("WordPress has been installed"), "{page}");
}

/// A visitor who is logged in as the administrator.
pub(super) struct Author(pub(super) Visitor);

impl Author {
    pub(super) fn log_in(server: &Server, protocol: ClientProtocol) -> Self {
        // WordPress loses one of two sessions of a user that begin at the same time.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let visitor = Visitor::new(protocol);
        assert_eq!(visitor.get(server, "/wp-login.php").status, 200);
        let form = [
            ("log", AUTHOR),
            ("pwd", PASSWORD),
            ("testcookie", "1"),
            ("redirect_to", "/wp-admin/"),
        ];
        let reply = visitor.post(server, "/wp-login.php", &form);
        let text = reply.text();
        assert_eq!(
            (reply.status, reply.field("location")),
            (302, "/wp-admin/"),
            "{text}"
        );
        Self(visitor)
    }

    fn set_permalinks(&self, server: &Server) {
        let page = self.page(server, "/wp-admin/options-permalink.php");
        let form = [
            (
                "_wpnonce",
                between(&page, "name=\"_wpnonce\" value=\"", "\""),
            ),
            ("selection", "custom"),
            ("permalink_structure", "/%postname%/"),
            ("category_base", ""),
            ("tag_base", ""),
            ("submit", "Save Changes"),
        ];
        let reply = self
            .0
            .post(server, "/wp-admin/options-permalink.php", &form);
        assert_eq!(reply.status, 302, "{}", reply.text());
    }

    /// A page of the dashboard.
    fn page(&self, server: &Server, path: &str) -> String {
        let reply = self.0.get(server, path);
        let text = reply.text();
        assert_eq!(reply.status, 200, "{path}: {text}");
        assert!(text.contains("wp-admin-bar-my-account"), "{path}: {text}");
        text
    }

    /// Publishes a post through the API that the editor uses; its identifier.
    pub(super) fn publish(&self, server: &Server, slug: &str, text: &str) -> u64 {
        let nonce = self
            .0
            .get(server, "/wp-admin/admin-ajax.php?action=rest-nonce");
        let nonce = format!("X-WP-Nonce: {}", nonce.text());
        // The order of two posts of the same second is not defined.
        static PUBLISHED: AtomicUsize = AtomicUsize::new(0);
        let minute = PUBLISHED.fetch_add(1, Ordering::Relaxed);
        let post = serde_json::json!({
            "title": slug, "slug": slug, "status": "publish", "content": text,
            "date": format!("2026-01-01T00:{minute:02}:00"),
        });
        let arguments = ["--header", &nonce, "--json", &post.to_string()];
        let reply = self.0.request(server, "/wp-json/wp/v2/posts", &arguments);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let post: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        post["id"].as_u64().unwrap()
    }

    fn comment(&self, server: &Server, post: u64, text: &str) -> PageResponse {
        let post = post.to_string();
        let form = [
            ("comment", text),
            ("comment_post_ID", &post),
            ("comment_parent", "0"),
        ];
        self.0.post(server, "/wp-comments-post.php", &form)
    }

    /// Uploads a file as the media library does.
    fn upload(&self, server: &Server, file: &str) -> PageResponse {
        let page = self.page(server, "/wp-admin/media-new.php");
        let nonce = between(&page, "\"_wpnonce\":\"", "\"");
        let nonce = format!("_wpnonce={nonce}");
        let file = format!("async-upload=@{file}");
        let arguments = [
            ["--form", "action=upload-attachment"],
            ["--form", &nonce],
            ["--form", &file],
        ];
        self.0.request(
            server,
            "/wp-admin/async-upload.php",
            arguments.as_flattened(),
        )
    }
}

#[test]
fn wordpress_lets_an_author_write_and_readers_comment() {
    let _blog = SharedBlog::lock();
    let server = blog("");
    for protocol in ClientProtocol::ALL {
        let slug = format!("{protocol:?}").to_lowercase();
        let author = Author::log_in(&server, protocol);
        for page in [
            "",
            "index.php",
            "edit.php",
            "post-new.php",
            "plugins.php",
            "themes.php",
            "profile.php",
        ] {
            author.page(&server, &format!("/wp-admin/{page}"));
        }
        let post = author.publish(&server, &slug, &format!("Written over {protocol:?}."));
        let reader = Visitor::new(protocol);
        let page = reader.get(&server, &format!("/{slug}/"));
        assert_eq!(page.status, 200);
        assert!(page.text().contains(&format!("Written over {protocol:?}.")));
        let reply = author.comment(&server, post, &format!("Mine, over {protocol:?}"));
        assert_eq!(reply.status, 302, "{}", reply.text());
        let page = reader.get(&server, &format!("/{slug}/")).text();
        assert!(page.contains(&format!("Mine, over {protocol:?}")), "{page}");
        // The path without the slash redirects to the page.
        let reply = reader.get(&server, &format!("/{slug}"));
        let location = reply.field("location");
        assert_eq!(reply.status, 301);
        assert!(
            location.ends_with(&format!("://blog.test/{slug}/")),
            "{location}"
        );
    }
}

#[test]
fn wordpress_accepts_media_uploads_and_serves_them() {
    let _blog = SharedBlog::lock();
    let server = blog("");
    let file = source("../../../../../../examples/site/public/gallery/dawn.webp");
    let content = fs::read(&file).unwrap();
    for protocol in ClientProtocol::ALL {
        let author = Author::log_in(&server, protocol);
        let reply = author.upload(&server, file.to_str().unwrap());
        assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.text());
        let upload: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(upload["success"], true, "{protocol:?}: {upload}");
        let url = upload["data"]["url"].as_str().unwrap();
        let path = url.split_once("blog.test").unwrap().1;
        let reply = Visitor::new(protocol).get(&server, path);
        assert_eq!(
            (reply.status, reply.field("content-type")),
            (200, "image/webp"),
            "{path}"
        );
        assert!(reply.body == content, "{path}");
    }
}

#[test]
fn wordpress_responds_as_behind_nginx() {
    let _blog = ExclusiveBlog::lock();
    let server = blog("");
    let nginx = site("", Server::nginx);
    let author = Author::log_in(&server, ClientProtocol::Http1).0;
    let reader = Visitor::new(ClientProtocol::Http1);
    for path in [
        "/",
        "/swifts/",
        "/swifts",
        "/?p=1",
        "/?s=wing&b[]=%20",
        "/feed/",
        "/comments/feed/",
        "/nowhere/",
        "/nowhere.html",
        "/author/swift/",
        "/category/uncategorized/",
        "/wp-json/",
        "/wp-json/wp/v2/posts?per_page=1",
        "/robots.txt",
        "/wp-sitemap.xml",
        "/index.php/swifts/",
        "/wp-login.php",
        "/wp-login.php?action=lostpassword",
        "/wp-includes/js/jquery/jquery.min.js",
        "/wp-includes/css/dist/block-library/style.min.css",
        "/wp-admin/",
        "/xmlrpc.php",
    ] {
        assert_same_response(&reader, &server, &nginx, path, &[]);
    }
    for path in [
        "/",
        "/swifts/",
        "/wp-admin/options-reading.php",
        "/wp-admin/edit.php",
    ] {
        assert_same_response(&author, &server, &nginx, path, &[]);
    }
    assert_same_response(&reader, &server, &nginx, "/swifts/", &["--head"]);
    let form = ["--data", "log=swift", "--data", "pwd=wrong"];
    assert_same_response(&reader, &server, &nginx, "/wp-login.php", &form);
    let call = "<methodCall><methodName>system.listMethods</methodName></methodCall>";
    assert_same_response(&reader, &server, &nginx, "/xmlrpc.php", &["--data", call]);
}
