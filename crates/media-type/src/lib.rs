//! Media types by the extensions of file names, and whether compression makes them smaller.

#![forbid(unsafe_code)]

/// Types that the table of `mime_guess` lacks, or has in another form than browsers expect.
const CORRECTIONS: [(&str, &str); 9] = [
    ("avif", "image/avif"),
    ("cjs", "text/javascript"),
    ("js", "text/javascript"),
    ("jxl", "image/jxl"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("ts", "video/mp2t"),
    ("webmanifest", "application/manifest+json"),
    ("ico", "image/x-icon"),
];

const UNKNOWN: &str = "application/octet-stream";

/// The extension of the last segment of a path, in lower case; empty if there is none.
pub fn extension(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match memchr::memrchr(b'.', name) {
        // A leading dot marks a hidden file, not an extension.
        None | Some(0) => String::new(),
        Some(dot) => {
            let extension = name.get(dot.saturating_add(1)..).unwrap_or_default();
            String::from_utf8_lossy(extension).to_ascii_lowercase()
        }
    }
}

/// The media type for an extension.
pub fn of_extension(extension: &str) -> &'static str {
    CORRECTIONS
        .iter()
        .find(|(known, _)| *known == extension)
        .map(|(_, media_type)| *media_type)
        .or_else(|| mime_guess::from_ext(extension).first_raw())
        .unwrap_or(UNKNOWN)
}

/// Whether the table of media types has this extension.
pub fn is_listed(extension: &str) -> bool {
    !mime_guess::from_ext(extension).is_empty()
}

/// Whether the extension has a media type other than that of unknown files.
pub fn is_known(extension: &str) -> bool {
    !extension.is_empty() && of_extension(extension) != UNKNOWN
}

/// Whether the media type is text that needs the parameter `charset`.
pub fn has_charset(media_type: &str) -> bool {
    !media_type.contains(';')
        && (media_type.starts_with("text/") || media_type == "application/javascript")
}

/// The types besides text, JSON and XML that compression makes notably smaller.
const COMPRESSIBLE: [&str; 14] = [
    "application/javascript",
    "application/json",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
];

/// Whether compression makes a body of this type notably smaller. Formats with their own compression are not.
pub fn is_compressible(media_type: &[u8]) -> bool {
    let essence = media_type.split(|byte| *byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    let starts = |with: &[u8]| {
        let start = essence.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    let ends = |with: &[u8]| {
        let end = essence.len().checked_sub(with.len());
        let end = end.and_then(|end| essence.get(end..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(with))
    };
    starts(b"text/")
        || ends(b"+json")
        || ends(b"+xml")
        || COMPRESSIBLE
            .iter()
            .any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_types_of_the_web() {
        for (name, media_type, compressible) in [
            ("/a/index.HTML", "text/html", true),
            ("/app.js", "text/javascript", true),
            ("/app.mjs", "text/javascript", true),
            ("/a.css", "text/css", true),
            ("/a.svg", "image/svg+xml", true),
            ("/a.json", "application/json", true),
            ("/a.wasm", "application/wasm", true),
            ("/a.png", "image/png", false),
            ("/a.woff2", "font/woff2", false),
            ("/a.avif", "image/avif", false),
            ("/a.mp4", "video/mp4", false),
            ("/a.gz", "application/gzip", false),
            ("/a.webmanifest", "application/manifest+json", true),
            ("/a.b/none", UNKNOWN, false),
            ("/.htaccess", UNKNOWN, false),
        ] {
            let found = of_extension(&extension(name.as_bytes()));
            assert_eq!(found, media_type, "{name}");
            assert_eq!(is_compressible(found.as_bytes()), compressible, "{name}");
        }
        assert!(is_compressible(b"Application/JSON; charset=utf-8"));
        assert!(has_charset("text/html") && !has_charset("image/svg+xml"));
    }
}
