//! Negotiation of compressed variants.

use super::*;

#[tokio::test]
async fn responds_uncompressed_at_first_and_compresses_in_the_background() {
    let text = text();
    let site = site(&[("a.txt", &text)], |files| files);
    let first = site
        .get_with("/a.txt", &[("accept-encoding", "gzip, br, zstd")])
        .await;
    assert_eq!((first.status, first.text()), (200, &*text));
    assert_eq!(first.header("content-encoding"), None);
    assert_eq!(first.header("vary"), Some("accept-encoding"));
    let mut tags = vec![first.etag()];
    for (accept, coding) in [
        ("gzip, br, zstd", "br"),
        ("gzip;q=0.5, zstd", "zstd"),
        ("gzip", "gzip"),
    ] {
        let got = site.get_coded("/a.txt", accept).await;
        assert_eq!(got.header("content-encoding"), Some(coding));
        assert_eq!(got.header("vary"), Some("accept-encoding"));
        assert_eq!(
            got.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(decode(&got.body, coding), text.as_bytes());
        let lines = [("accept-encoding", accept), ("if-none-match", &*got.etag())];
        let not_modified = site.get_with("/a.txt", &lines).await;
        assert_eq!(not_modified.status, 304);
        assert_eq!(not_modified.header("vary"), Some("accept-encoding"));
        // A range of this variant, and of no other.
        let etag = got.etag();
        let lines = [
            ("accept-encoding", accept),
            ("range", "bytes=0-4"),
            ("if-range", &*etag),
        ];
        let part = site.get_with("/a.txt", &lines).await;
        assert_eq!((part.status, &*part.body), (206, &got.body[..5]));
        assert_eq!(part.header("content-encoding"), Some(coding));
        let lines = [("range", "bytes=0-4"), ("if-range", &*etag)];
        assert_eq!(site.get_with("/a.txt", &lines).await.status, 200);
        tags.push(etag);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{tags:?}");
    for accept in [
        "identity",
        "deflate",
        "",
        "br;q=0",
        "*;q=0.1, br;q=0, identity;q=0.9",
    ] {
        let got = site
            .get_with("/a.txt", &[("accept-encoding", accept)])
            .await;
        assert_eq!(got.header("content-encoding"), None, "{accept}");
    }
    assert_eq!(site.get("/a.txt").await.header("content-encoding"), None);
}

fn decode(body: &[u8], coding: &str) -> Vec<u8> {
    use std::io::Read;
    let mut decoded = Vec::new();
    match coding {
        "br" => brotli::Decompressor::new(body, 4096)
            .read_to_end(&mut decoded)
            .unwrap(),
        "zstd" => zstd::Decoder::new(body)
            .unwrap()
            .read_to_end(&mut decoded)
            .unwrap(),
        _ => flate2::read::GzDecoder::new(body)
            .read_to_end(&mut decoded)
            .unwrap(),
    };
    decoded
}

#[tokio::test]
async fn honours_a_refusal_of_identity() {
    let text = text();
    let site = site(&[("a.txt", &text), ("b.png", &text)], |files| files);
    let got = site
        .get_with("/a.txt", &[("accept-encoding", "gzip, identity;q=0")])
        .await;
    assert_eq!(
        (got.status, got.header("content-encoding")),
        (200, Some("gzip"))
    );
    assert_eq!(decode(&got.body, "gzip"), text.as_bytes());
    for accept in ["identity;q=0", "*;q=0", "deflate, *;q=0"] {
        let got = site
            .get_with("/a.txt", &[("accept-encoding", accept)])
            .await;
        assert_eq!(
            (got.status, got.header("vary")),
            (406, Some("accept-encoding"))
        );
        // A file without variants is sent uncompressed.
        let got = site
            .get_with("/b.png", &[("accept-encoding", accept)])
            .await;
        assert_eq!((got.status, got.header("vary")), (200, None));
    }
}

#[tokio::test]
async fn never_compresses_compressed_or_short_files() {
    let long = text();
    let site = site(
        &[
            ("a.png", &long),
            ("a.woff2", &long),
            ("a.txt", "short"),
            ("later.txt", &long),
        ],
        |files| files,
    );
    let all = [("accept-encoding", "br, gzip, zstd")];
    for path in ["/a.png", "/a.woff2", "/a.txt"] {
        site.get_with(path, &all).await;
    }
    // One thread compresses in the order of the requests: the others would be ready before this.
    site.get_coded("/later.txt", "br").await;
    for path in ["/a.png", "/a.woff2", "/a.txt"] {
        let got = site.get_with(path, &all).await;
        assert_eq!(got.header("content-encoding"), None, "{path}");
        assert_eq!(got.header("vary"), None, "{path}");
    }
}

#[tokio::test]
async fn sends_precompressed_siblings_that_are_not_older() {
    let only_siblings = |files: Files| files.compression(Compression::NONE);
    let site = site(
        &[
            ("a.css", "plain"),
            ("a.css.br", "as br"),
            ("a.css.gz", "as gzip"),
            ("a.css.zst", "as zstd"),
            ("b.css", "plain"),
            ("b.css.gz", "stale"),
        ],
        only_siblings,
    );
    for name in ["a.css", "b.css"] {
        site.set_modified(&site.path(name), hour_ago() - Duration::from_secs(60));
    }
    site.set_modified(&site.path("b.css.gz"), hour_ago() - Duration::from_secs(61));
    for (path, accept, coding, body) in [
        ("/a.css", "br, gzip, zstd", Some("br"), "as br"),
        ("/a.css", "gzip", Some("gzip"), "as gzip"),
        ("/a.css", "zstd, gzip;q=0.9", Some("zstd"), "as zstd"),
        ("/a.css", "identity", None, "plain"),
        ("/b.css", "gzip", None, "plain"),
    ] {
        let got = site.get_with(path, &[("accept-encoding", accept)]).await;
        assert_eq!(got.header("content-encoding"), coding, "{path} {accept}");
        assert_eq!(got.text(), body, "{path} {accept}");
    }
    // The removal of a sibling is noticed.
    fs::remove_file(site.path("a.css.br")).unwrap();
    pass(REVALIDATION);
    let got = site.get_with("/a.css", &[("accept-encoding", "br")]).await;
    assert_eq!(got.text(), "plain");
    // At its own path it is a file like any other.
    assert_eq!(site.get("/a.css.gz").await.header("content-encoding"), None);
}

#[tokio::test]
async fn does_not_send_an_old_variant_of_a_changed_file() {
    let site = site(&[("a.txt", &text())], |files| files);
    site.get_coded("/a.txt", "gzip").await;
    let changed = text().replace("fox", "cat");
    site.write("a.txt", &changed);
    pass(REVALIDATION);
    let got = site.get_coded("/a.txt", "gzip").await;
    assert_eq!(decode(&got.body, "gzip"), changed.as_bytes());
}

#[tokio::test]
async fn shares_variants_between_workers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), text()).unwrap();
    let files = Files::new(folder.path());
    let one = Site {
        service: files.build(),
        folder,
    };
    let made = one.get_coded("/a.txt", "zstd").await;
    let another = files.build();
    let request = request(Method::GET, "/a.txt", &[("accept-encoding", "zstd")]);
    let got = Got::from(another.call(request)).await;
    assert_eq!(got.header("content-encoding"), Some("zstd"));
    assert_eq!(got.etag(), made.etag());
}

#[tokio::test]
async fn shares_a_store_of_variants_with_other_files() {
    let variants = Arc::new(apus_files::VariantStore::new(1 << 20));
    let site = site(&[("a.txt", &text())], |files| {
        files.variants(variants.clone())
    });
    site.get_coded("/a.txt", "zstd").await;
    let next = Files::new(site.path("")).variants(variants).build();
    let request = request(Method::GET, "/a.txt", &[("accept-encoding", "zstd")]);
    let got = Got::from(next.call(request)).await;
    assert_eq!(got.header("content-encoding"), Some("zstd"));
}

/// Text that is too long for a stored variant.
fn large_text() -> String {
    (0..600_000).map(|line| format!("line {line}\n")).collect()
}

/// Waits until the metadata of a new file are settled.
async fn settled(site: &Site, path: &str) {
    while site.get(path).await.header("etag").is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        pass(REVALIDATION);
    }
}

#[tokio::test]
async fn compresses_large_text_while_it_is_sent() {
    let large = large_text();
    assert!(large.len() > 5 << 20);
    let site = site(&[("a.json", &large)], |files| files);
    let zstd = ("accept-encoding", "zstd");
    settled(&site, "/a.json").await;
    let got = site.get_with("/a.json", &[zstd]).await;
    assert_eq!(
        (got.status, got.header("content-encoding")),
        (200, Some("zstd"))
    );
    assert_eq!(got.header("vary"), Some("accept-encoding"));
    assert_eq!(got.header("content-length"), None);
    assert_eq!(got.header("accept-ranges"), None);
    assert!(got.etag().starts_with("W/"));
    assert_eq!(decode(&got.body, "zstd"), large.as_bytes());
    let unchanged = [zstd, ("if-none-match", &*got.etag())];
    let unchanged = site.get_with("/a.json", &unchanged).await;
    assert_eq!((unchanged.status, unchanged.etag()), (304, got.etag()));
    let head = site.send(Method::HEAD, "/a.json", &[zstd]).await;
    assert_eq!(head.header("content-encoding"), Some("zstd"));
    assert_eq!(head.header("content-length"), None);
    // Ranges are of the uncompressed file.
    let part = site
        .get_with("/a.json", &[zstd, ("range", "bytes=0-5")])
        .await;
    assert_eq!((part.status, part.text()), (206, "line 0"));
    let refused = ("accept-encoding", "zstd, identity;q=0");
    let whole = site
        .get_with("/a.json", &[refused, ("range", "bytes=0-5")])
        .await;
    assert_eq!(
        (whole.status, whole.header("content-encoding")),
        (200, Some("zstd"))
    );
    assert_eq!(decode(&whole.body, "zstd"), large.as_bytes());
    let plain = site.get("/a.json").await;
    assert_eq!(
        (plain.text(), plain.header("content-encoding")),
        (&*large, None)
    );
}

#[tokio::test]
async fn compresses_once_for_all_clients_that_refuse_identity() {
    let text = text().repeat(400);
    let site = site(&[("a.txt", &text)], |files| files);
    settled(&site, "/a.txt").await;
    let refused = ("accept-encoding", "zstd, identity;q=0");
    let waiting = (0..5).map(|_| {
        let lines = [refused, ("range", "bytes=0-10")];
        Got::from(site.service.call(request(Method::GET, "/a.txt", &lines)))
    });
    let mut tags = Vec::new();
    for got in waiting.collect::<Vec<_>>() {
        let got = got.await;
        assert_eq!((got.status, got.body.len()), (206, 11));
        tags.push(got.etag());
    }
    tags.dedup();
    assert_eq!(tags.len(), 1, "{tags:?}");
    // Their variant is stored.
    let got = site.get_with("/a.txt", &[refused]).await;
    assert!(got.was_now);
    assert_eq!(decode(&got.body, "zstd"), text.as_bytes());
}

#[tokio::test]
async fn compresses_while_sending_if_no_variant_can_be_stored() {
    let text = text().repeat(20);
    let site = site(&[("a.txt", &text)], |files| files.cache(0));
    let lines = [
        ("accept-encoding", "zstd, identity;q=0"),
        ("range", "bytes=0-10"),
    ];
    let got = site.get_with("/a.txt", &lines).await;
    assert_eq!(
        (got.status, got.header("content-encoding")),
        (200, Some("zstd"))
    );
    assert_eq!(decode(&got.body, "zstd"), text.as_bytes());
}

#[tokio::test]
async fn a_sibling_of_a_file_of_any_type_is_sent() {
    let site = site(
        &[
            ("model.glb", "a model"),
            ("model.glb.br", "br"),
            ("none", "no type"),
            ("none.gz", "gz"),
            ("a.png", "image"),
        ],
        |files| files,
    );
    for (path, accept, coding, body) in [
        ("/model.glb", "gzip, br", Some("br"), "br"),
        ("/model.glb", "gzip", None, "a model"),
        ("/none", "gzip, br", Some("gzip"), "gz"),
        ("/a.png", "gzip, br", None, "image"),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let lines = [("accept-encoding", accept)];
            let got = site.send(method, path, &lines).await;
            assert_eq!(got.header("content-encoding"), coding, "{path}");
            assert_eq!(got.body.len(), body.len());
            let varies = (path != "/a.png").then_some("accept-encoding");
            assert_eq!(got.header("vary"), varies, "{path}");
        }
    }
}

#[tokio::test]
async fn a_sibling_of_a_large_file_is_sent_instead_of_compressing_it_each_time() {
    const STREAMED: usize = 4 << 20;
    for len in [STREAMED - 1, STREAMED, STREAMED + 1, STREAMED + (1 << 20)] {
        let site = site(&[], |files| files);
        site.write("a.json", vec![b'1'; len]);
        site.write("a.json.gz", "sibling");
        for accept in ["gzip, br, zstd", "br, gzip;q=0.1", "*"] {
            let lines = [("accept-encoding", accept)];
            let got = site.get_with("/a.json", &lines).await;
            let coding = got.header("content-encoding");
            assert_eq!(
                (coding, got.text()),
                (Some("gzip"), "sibling"),
                "{len} {accept}"
            );
            let lines = [("accept-encoding", accept), ("range", "bytes=0-1")];
            let part = site.get_with("/a.json", &lines).await;
            assert_eq!((part.status, part.text()), (206, "si"), "{len} {accept}");
        }
        let lines = [("accept-encoding", "identity")];
        assert_eq!(site.get_with("/a.json", &lines).await.body.len(), len);
    }
}

#[tokio::test]
async fn an_image_that_is_stored_in_gzip_is_sent_in_that_coding() {
    use std::io::Write;
    let svg = "<svg xmlns='http://www.w3.org/2000/svg'/>".repeat(100);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(svg.as_bytes()).unwrap();
    let stored = encoder.finish().unwrap();
    let site = site(&[("plain.svgz", &svg)], |files| files);
    for name in ["a.svgz", "a.tgz", "a.svg.gz", "a.emz", "a.SVGZ"] {
        site.write(name, &stored);
    }
    site.write("a.svgz.br", "no sibling");
    for path in ["/a.svgz", "/a.SVGZ"] {
        for accept in [
            None,
            Some("gzip, deflate, br, zstd"),
            Some("gzip"),
            Some("*"),
            Some("gzip, identity;q=0"),
        ] {
            let lines: Vec<_> = accept
                .map(|accept| ("accept-encoding", accept))
                .into_iter()
                .collect();
            let got = site.get_with(path, &lines).await;
            assert_eq!((got.status, &got.body), (200, &stored), "{accept:?}");
            assert_eq!(got.header("content-type"), Some("image/svg+xml"));
            assert_eq!(got.header("content-encoding"), Some("gzip"));
            assert_eq!(got.header("vary"), Some("accept-encoding"));
            let head = site.send(Method::HEAD, path, &lines).await;
            assert_eq!(head.header("content-encoding"), Some("gzip"));
            let mut lines = lines.clone();
            let etag = got.etag();
            lines.extend([("range", "bytes=0-1"), ("if-range", &*etag)]);
            let part = site.get_with(path, &lines).await;
            assert_eq!((part.status, &*part.body), (206, &[0x1f, 0x8b][..]));
        }
        let tag = site.get(path).await.etag();
        for accept in ["identity", "br", "", "gzip;q=0", "*;q=0, identity"] {
            let got = site.get_with(path, &[("accept-encoding", accept)]).await;
            assert_eq!((got.status, got.text()), (200, &*svg), "{accept}");
            assert_eq!(got.header("content-encoding"), None);
            assert_eq!(got.header("vary"), Some("accept-encoding"));
            assert_ne!(got.etag(), tag);
        }
        let lines = [("accept-encoding", "br, identity;q=0")];
        assert_eq!(site.get_with(path, &lines).await.status, 406);
    }
    for path in ["/a.tgz", "/a.svg.gz", "/a.emz", "/plain.svgz"] {
        let got = site.get_with(path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(got.header("content-encoding"), None, "{path}");
    }
    assert_eq!(site.get("/plain.svgz").await.text(), svg);
}

#[tokio::test]
async fn the_date_in_if_range_does_not_resume_another_variant() {
    let text = text();
    let site = site(&[("a.txt", &text)], |files| files);
    let date = site
        .get("/a.txt")
        .await
        .header("last-modified")
        .unwrap()
        .to_owned();
    let lines = |accept| {
        [
            ("accept-encoding", accept),
            ("range", "bytes=5-9"),
            ("if-range", &*date),
        ]
    };
    for accept in ["identity", "gzip"] {
        let coded = match accept {
            "identity" => site.get("/a.txt").await,
            accept => site.get_coded("/a.txt", accept).await,
        };
        let whole = site.get_with("/a.txt", &lines(accept)).await;
        assert_eq!((whole.status, whole.body), (200, coded.body), "{accept}");
    }
}

#[tokio::test]
async fn head_has_the_fields_of_get_for_each_variant() {
    let long = text();
    let site = site(&[("a.txt", &long), ("short.txt", "short")], |files| files);
    for path in ["/a.txt", "/short.txt"] {
        for accept in ["br", "zstd", "gzip", "identity"] {
            if path == "/a.txt" && accept != "identity" {
                // It is made first.
                site.get_coded(path, accept).await;
            }
            let lines = [("accept-encoding", accept)];
            let get = site.get_with(path, &lines).await;
            let head = site.send(Method::HEAD, path, &lines).await;
            assert_eq!(head.headers, get.headers, "{path} {accept}");
        }
    }
}
