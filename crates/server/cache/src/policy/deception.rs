//! Protection against web cache deception: a page that is requested by the path of a file.

use apus_http::Headers;

/// Whether the media type of a response does not fit the extension of the path. In the attack, a
/// victim requests `/account/x.css`, the application responds with the page `/account`, and the
/// attacker reads the page from the cache.
pub(super) fn has_unexpected_type(path: &str, headers: &Headers) -> bool {
    let Some(expected) = expected_types(path) else {
        return false;
    };
    let value = headers.get("content-type").unwrap_or_default();
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default();
    let media_type = media_type.trim_ascii().to_ascii_lowercase();
    let is_expected = |prefix: &&str| media_type.starts_with(prefix.as_bytes());
    // Servers send this type for extensions that they do not know, so it says nothing about the content.
    media_type != b"application/octet-stream" && !expected.iter().any(is_expected)
}

/// The prefixes of the media types that belong to the extension of a path; `None` for an unknown
/// extension.
fn expected_types(path: &str) -> Option<&'static [&'static str]> {
    let (_, extension) = path.rsplit_once('.')?;
    let mut lower = [0; 8];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension.as_bytes());
    lower.make_ascii_lowercase();
    Some(match &*lower {
        b"css" => &["text/css"],
        b"js" | b"mjs" => &[
            "text/javascript",
            "application/javascript",
            "application/x-javascript",
            "application/ecmascript",
            "text/ecmascript",
        ],
        b"png" | b"jpg" | b"jpeg" | b"gif" | b"webp" | b"avif" | b"ico" | b"bmp" | b"svg"
        | b"svgz" | b"tif" | b"tiff" | b"jxl" | b"heic" => &["image/"],
        b"woff" | b"woff2" | b"ttf" | b"otf" | b"eot" => &[
            "font/",
            "application/font",
            "application/x-font",
            "application/vnd.ms-fontobject",
        ],
        b"mp4" | b"webm" | b"mov" | b"avi" | b"mkv" | b"m4v" | b"ogv" => &["video/"],
        b"mp3" | b"ogg" | b"wav" | b"flac" | b"m4a" | b"aac" | b"opus" => {
            &["audio/", "video/", "application/ogg"]
        }
        b"pdf" => &["application/pdf"],
        b"zip" | b"gz" | b"bz2" | b"xz" | b"7z" | b"zst" | b"tar" | b"rar" => &["application/"],
        b"txt" => &["text/plain"],
        b"wasm" => &["application/wasm"],
        _ => return None,
    })
}
