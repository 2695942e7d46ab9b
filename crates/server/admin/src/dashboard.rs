//! The dashboard: one page, built from `dashboard/src` by `npm run build` in `dashboard`.

use apus_http::fields::{EntityTag, Validators};
use apus_http::{HeaderValue, Method, Request, Response, StatusCode, header};

/// Only the files of this address run, style and are asked, no page may have this one in a frame, and no text becomes markup.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

struct PageFile {
    path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const FILES: &[PageFile] = &[
    PageFile {
        path: "/",
        media_type: "text/html; charset=utf-8",
        text: include_str!("../dashboard/built/index.html"),
    },
    PageFile {
        path: "/dashboard.js",
        media_type: "text/javascript; charset=utf-8",
        text: include_str!("../dashboard/built/dashboard.js"),
    },
    PageFile {
        path: "/style.css",
        media_type: "text/css; charset=utf-8",
        text: include_str!("../dashboard/built/style.css"),
    },
    PageFile {
        path: "/icon.svg",
        media_type: "image/svg+xml",
        text: include_str!("../dashboard/built/icon.svg"),
    },
];

/// The response with the file of the request; `None`: there is none at its path.
pub(crate) fn respond(request: &Request) -> Option<Response> {
    let file = FILES.iter().find(|file| file.path == request.path())?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = HeaderValue::from_static("GET, HEAD");
        return Some(Response::refuse_method(request.method(), &allow));
    }
    let tag = format!("\"{:016x}\"", checksum([file.text.as_bytes()]));
    let validators = Validators {
        entity_tag: EntityTag::parse(tag.as_bytes()),
        last_modified: None,
    };
    let mut response = if validators.is_not_modified(request.headers()) {
        Response::new(StatusCode::NOT_MODIFIED)
    } else {
        Response::new(StatusCode::OK)
            .with_header(
                &header::CONTENT_TYPE,
                &HeaderValue::from_static(file.media_type),
            )
            .with_body(file.text)
    };
    if let Ok(tag) = HeaderValue::from_bytes(tag.as_bytes()) {
        response = response.with_header(&header::ETAG, &tag);
    }
    // It is to be asked for again each time: a new server may have a new page.
    let fields = [
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Some(fields.iter().fold(response, |response, (name, value)| {
        response.with_header(name, &HeaderValue::from_static(value))
    }))
}

/// FNV-1a with 64 bits, which finds out a changed file. It is no protection against somebody who looks for another with the same one.
fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| {
                if path.is_dir() {
                    files(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }

    #[test]
    fn the_built_script_is_of_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard");
        let mut parts: Vec<(String, Vec<u8>)> = files(&root.join("src"))
            .into_iter()
            .map(|path| {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                (format!("{name}\n"), fs::read(&path).unwrap())
            })
            .collect();
        parts.sort();
        let parts = parts
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_slice()]);
        let expected = format!("// sources {:016x}", checksum(parts));
        let script = FILES[1].text;
        assert_eq!(
            script.lines().next(),
            Some(expected.as_str()),
            "`npm ci` and `npm run build` in crates/server/admin/dashboard build it anew"
        );
    }

    #[test]
    fn the_page_is_small_and_complete() {
        let total: usize = FILES.iter().map(|file| file.text.len()).sum();
        assert!(total <= 150_000, "{total}");
        let page = FILES[0].text;
        for file in &FILES[1..] {
            assert!(
                page.contains(&format!("\"{}\"", file.path)),
                "{}",
                file.path
            );
        }
        for other in ["http://", "https://", "<style", "onload", "javascript:"] {
            assert!(!page.contains(other), "{other}");
        }
    }

    #[test]
    fn files_have_a_strict_policy_and_are_not_sent_twice() {
        for file in FILES {
            let request = apus_testkit::get(file.path).with("host", "localhost");
            let response = respond(&request.request()).unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let field = |name| response.headers().get_str(name).unwrap().to_owned();
            assert!(field("content-security-policy").contains("frame-ancestors 'none'"));
            assert!(!field("content-security-policy").contains("unsafe"));
            let tag = field("etag");
            let again = apus_testkit::get(file.path)
                .with("host", "localhost")
                .with("if-none-match", tag.as_str());
            let response = respond(&again.request()).unwrap();
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        }
        let other = apus_testkit::get("/other").with("host", "localhost");
        assert!(respond(&other.request()).is_none());
    }
}
