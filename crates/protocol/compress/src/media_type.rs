//! Media types by the extensions of file names, and whether compression makes them smaller.

/// Types that the table of `mime_guess` lacks, or has in another form than IANA, browsers and the tables of
/// other servers; in the order of the extensions.
const CORRECTIONS: [(&str, &str); 88] = [
    ("3g2", "video/3gpp2"),
    ("3mf", "model/3mf"),
    ("7z", "application/x-7z-compressed"),
    ("aab", "application/octet-stream"),
    ("appimage", "application/vnd.appimage"),
    ("appinstaller", "application/appinstaller"),
    ("appx", "application/appx"),
    ("arrow", "application/vnd.apache.arrow.file"),
    ("arrows", "application/vnd.apache.arrow.stream"),
    ("asice", "application/vnd.etsi.asic-e+zip"),
    ("avif", "image/avif"),
    ("avifs", "image/avif"),
    ("azw3", "application/vnd.amazon.mobi8-ebook"),
    ("bash", "application/x-sh"),
    ("cbor", "application/cbor"),
    ("cjs", "text/javascript"),
    ("cur", "image/x-icon"),
    ("dcm", "application/dicom"),
    ("deb", "application/vnd.debian.binary-package"),
    ("diff", "text/x-diff"),
    ("dmg", "application/x-apple-diskimage"),
    ("exr", "image/aces"),
    ("feather", "application/vnd.apache.arrow.file"),
    ("fits", "image/fits"),
    ("flatpak", "application/vnd.flatpak"),
    ("flatpakref", "application/vnd.flatpak.ref"),
    ("gpkg", "application/geopackage+sqlite3"),
    ("har", "application/json"),
    ("icns", "image/x-icns"),
    ("ico", "image/x-icon"),
    ("importmap", "application/importmap+json"),
    ("ipynb", "application/x-ipynb+json"),
    ("jfif", "image/jpeg"),
    ("js", "text/javascript"),
    ("jsonl", "application/x-ndjson"),
    ("jxl", "image/jxl"),
    ("jxr", "image/jxr"),
    ("ktx2", "image/ktx2"),
    ("lz4", "application/x-lz4"),
    ("lzma", "application/x-lzma"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mobileconfig", "application/x-apple-aspen-config"),
    ("msgpack", "application/vnd.msgpack"),
    ("msi", "application/x-msi"),
    ("msix", "application/msix"),
    ("mtl", "model/mtl"),
    ("mvt", "application/vnd.mapbox-vector-tile"),
    ("ndjson", "application/x-ndjson"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("patch", "text/x-diff"),
    ("pbf", "application/x-protobuf"),
    ("pkpass", "application/vnd.apple.pkpass"),
    ("pmtiles", "application/vnd.pmtiles"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-redhat-package-manager"),
    ("sarif", "application/sarif+json"),
    ("speculationrules", "application/speculationrules+json"),
    ("sqlite", "application/vnd.sqlite3"),
    ("sqlite3", "application/vnd.sqlite3"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("sxg", "application/signed-exchange;v=b3"),
    ("tgz", "application/gzip"),
    ("toml", "application/toml"),
    ("topojson", "application/json"),
    ("ts", "video/mp2t"),
    ("ttml", "application/ttml+xml"),
    ("txz", "application/x-xz"),
    ("udeb", "application/vnd.debian.binary-package"),
    ("usda", "model/vnd.usda"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcf", "text/vcard"),
    ("wbn", "application/webbundle"),
    ("webmanifest", "application/manifest+json"),
    ("wgsl", "text/wgsl"),
    ("woff", "font/woff"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
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
    corrected(extension)
        .or_else(|| mime_guess::from_ext(extension).first_raw())
        .unwrap_or(UNKNOWN)
}

fn corrected(extension: &str) -> Option<&'static str> {
    let at = CORRECTIONS.binary_search_by_key(&extension, |(known, _)| known);
    Some(CORRECTIONS.get(at.ok()?)?.1)
}

/// Whether the table of media types has this extension.
pub fn is_listed(extension: &str) -> bool {
    corrected(extension).is_some() || !mime_guess::from_ext(extension).is_empty()
}

/// Whether the extension has a media type other than the default for unknown files.
pub fn is_known(extension: &str) -> bool {
    !extension.is_empty() && of_extension(extension) != UNKNOWN
}

/// Whether files with this extension have the media type of what is in them, and the content coding
/// gzip: browsers show an image of this type only so. Others are separate formats, whose users
/// expect compressed bytes: archives (`.tgz`), metafiles (`.emz`), skins (`.wmz`).
pub fn is_stored_in_gzip(extension: &str) -> bool {
    extension == "svgz"
}

/// Whether the media type is text that needs the parameter `charset`.
pub fn has_charset(media_type: &str) -> bool {
    !media_type.contains(';')
        && (media_type.starts_with("text/") || media_type == "application/javascript")
}

/// The types besides text, JSON and XML that compression makes notably smaller.
const COMPRESSIBLE: [&str; 26] = [
    "application/javascript",
    "application/json",
    "application/json5",
    "application/openmetrics-text",
    "application/rtf",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-sql",
    "application/x-subrip",
    "application/xml",
    "application/yaml",
    "audio/x-mpegurl",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
    "model/mtl",
    "model/obj",
    "model/step",
    "model/stl",
    "model/vnd.usda",
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
            ("/a.woff", "font/woff", false),
            ("/a.otf", "font/otf", true),
            ("/a.rpm", "application/x-redhat-package-manager", false),
            ("/a.deb", "application/vnd.debian.binary-package", false),
            ("/a.msi", "application/x-msi", false),
            ("/a.apk", "application/vnd.android.package-archive", false),
            ("/a.usdz", "model/vnd.usdz+zip", false),
            ("/a.glb", "model/gltf-binary", false),
            ("/a.ndjson", "application/x-ndjson", true),
            ("/a.jsonl", "application/x-ndjson", true),
            ("/a.pbf", "application/x-protobuf", false),
            ("/a.geojson", "application/geo+json", true),
            ("/a.parquet", "application/vnd.apache.parquet", false),
            ("/a.heic", "image/heic", false),
            ("/a.jxl", "image/jxl", false),
            ("/a.opus", "audio/ogg", false),
            ("/a.m4a", "audio/mp4", false),
            ("/a.m3u8", "application/vnd.apple.mpegurl", true),
            ("/a.mpd", "application/dash+xml", true),
            ("/a.m4s", "video/iso.segment", false),
            ("/a.epub", "application/epub+zip", false),
            ("/a.yaml", "application/yaml", true),
            ("/a.tgz", "application/gzip", false),
            ("/a.xz", "application/x-xz", false),
            ("/a.zst", "application/zstd", false),
            ("/a.7z", "application/x-7z-compressed", false),
            (
                "/a.docx",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
                false,
            ),
            ("/a.svgz", "image/svg+xml", true),
            ("/a.b/none", UNKNOWN, false),
            ("/.htaccess", UNKNOWN, false),
        ] {
            let found = of_extension(&extension(name.as_bytes()));
            assert_eq!(found, media_type, "{name}");
            assert_eq!(is_compressible(found.as_bytes()), compressible, "{name}");
        }
        assert!(CORRECTIONS.is_sorted_by_key(|(extension, _)| *extension));
        assert!(is_listed("usdz") && !is_listed("doe"));
        assert!(is_stored_in_gzip("svgz") && !is_stored_in_gzip("tgz"));
        assert!(is_compressible(b"Application/JSON; charset=utf-8"));
        assert!(is_compressible(
            b"application/openmetrics-text; version=1.0.0; charset=utf-8"
        ));
        assert!(has_charset("text/html") && !has_charset("image/svg+xml"));
    }
}
