//! Device classes, for sites that respond differently to them without `Vary`.

use apus_http::Headers;

/// The class of the client's device from `User-Agent`: `phone`, `tablet` or `desktop`, which is the
/// default.
pub(super) fn device(headers: &Headers) -> &'static str {
    let agent = headers.get("user-agent").unwrap_or_default();
    let contains = |word: &str| memchr::memmem::find(agent, word.as_bytes()).is_some();
    // Browsers on Android phones send `Mobile`, on tablets they do not. Newer iPads send what a Mac sends.
    if contains("iPad") || contains("Tablet") || (contains("Android") && !contains("Mobile")) {
        "tablet"
    } else if contains("Mobi") || contains("iPhone") {
        "phone"
    } else {
        "desktop"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_common_browsers() {
        for (agent, class) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                "desktop",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 Chrome/139.0 Mobile Safari/537.36",
                "phone",
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 Chrome/139.0 Safari/537.36",
                "tablet",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Version/18.5 Mobile/15E148",
                "phone",
            ),
            (
                "Mozilla/5.0 (iPad; CPU OS 18_5 like Mac OS X) Version/18.5 Mobile/15E148",
                "tablet",
            ),
            (
                "Mozilla/5.0 (Android 15; Tablet; rv:140.0) Gecko/140.0 Firefox/140.0",
                "tablet",
            ),
            ("", "desktop"),
        ] {
            let mut headers = Headers::new();
            headers.try_append("user-agent", agent).unwrap();
            assert_eq!(device(&headers), class, "{agent}");
        }
    }
}
