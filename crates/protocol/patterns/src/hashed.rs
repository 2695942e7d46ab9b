//! Detects file names with a content hash, as build tools write them.
//!
//! `app.3f9a2bd0.js` and `index-BqY9Z3aK.css` are such names. A file with such a name never changes.

/// The length of the shortest hashes that build tools write.
const MIN_LENGTH: usize = 8;

/// Whether the name of the file at `path` contains a hash. Ambiguous names count as names without one: that
/// mistake costs a revalidation, and the opposite one a stale file for a year.
pub(crate) fn has_hash(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let Some(extension) = name.iter().rposition(|byte| *byte == b'.') else {
        return false;
    };
    let stem = name.get(..extension).unwrap_or_default();
    stem.split(|byte| matches!(byte, b'.' | b'-'))
        // The first part is the name of the file without a hash.
        .skip(1)
        .any(is_hash)
}

/// Whether this is a hash in hexadecimal, base 32 or base 64 digits, and not a word, a date or a version.
fn is_hash(part: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| part.iter().any(is);
    let has_lower = has(u8::is_ascii_lowercase);
    let has_upper = has(u8::is_ascii_uppercase);
    let is_mixed = has(u8::is_ascii_digit) && (has_lower || has_upper);
    let is_hexadecimal = part.iter().all(u8::is_ascii_hexdigit) && has_lower != has_upper;
    let is_of_base_64 = part
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && has_upper
        && !is_words(part);
    part.len() >= MIN_LENGTH && is_mixed && (is_hexadecimal || is_of_base_64)
}

/// Whether this is words followed by a number, such as `CodeEditor2` and `VERSION12`.
fn is_words(part: &[u8]) -> bool {
    let digits = |byte: &&u8| byte.is_ascii_digit();
    let number = part.iter().rev().take_while(digits).count();
    let letters = part
        .get(..part.len().saturating_sub(number))
        .unwrap_or_default();
    let is_upper = letters.iter().all(u8::is_ascii_uppercase);
    let is_lone = |pair: &[u8]| matches!(pair, [one, other] if one.is_ascii_uppercase() && !other.is_ascii_lowercase());
    let ends_lower = letters.last().is_some_and(u8::is_ascii_lowercase);
    let is_capitalised = letters.iter().all(u8::is_ascii_alphabetic)
        && ends_lower
        && !letters.windows(2).any(is_lone);
    is_upper || is_capitalised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_hashes_from_words_dates_and_versions() {
        for (path, is_hashed) in [
            // webpack, Parcel, Create React App.
            ("/static/js/main.3f9a2bd0.js", true),
            ("/static/js/main.3f9a2bd0.chunk.js", true),
            ("/main.3f9a2bd0c1d2e3f4a5b6.js.map", true),
            ("/app.min.3F9A2BD0.css", true),
            // Vite, Rollup.
            ("/assets/index-BqY9Z3aK.js", true),
            ("/assets/my-page-D4fX_0aB.css", true),
            // esbuild.
            ("/dist/app-5KNVSPPS.js", true),
            // One below, at and above the shortest.
            ("/a.3f9a2bd.js", false),
            ("/a.3f9a2bd0.js", true),
            ("/a.3f9a2bd0e.js", true),
            // Words.
            ("/assets/logo.png", false),
            ("/assets/app.js", false),
            ("/assets/chunk-vendors.js", false),
            ("/assets/app-component.js", false),
            ("/assets/app-deadbeef.js", false),
            ("/assets/app-version12.js", false),
            ("/assets/app-Version12.js", false),
            ("/assets/app-CodeEditor2.js", false),
            ("/assets/app-RELEASE2024.js", false),
            ("/assets/sha256sum.txt", false),
            ("/assets/x-sha256sums.txt", false),
            // Dates, numbers and versions.
            ("/img/photo-20240131.jpg", false),
            ("/img/photo-2024-01-31.jpg", false),
            ("/img/12345678.jpg", false),
            ("/jquery-3.6.0.min.js", false),
            ("/lib-1.12.123456.js", false),
            // Not in the name.
            ("/3f9a2bd0/app.js", false),
            ("/a.3f9a2bd0/app.js", false),
            ("/3f9a2bd0.js", false),
            ("/app-3f9a2bd0", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(has_hash(path.as_bytes()), is_hashed, "{path}");
        }
    }
}
