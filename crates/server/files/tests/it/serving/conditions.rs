//! Conditional requests and ranges.

use super::*;

#[tokio::test]
async fn evaluates_conditional_requests() {
    let site = site(&[("a.txt", "hello")], |files| {
        files.cache_control([(
            Glob::parse("*").unwrap(),
            HeaderValue::from_static("max-age=1"),
        )])
    });
    let first = site.get("/a.txt").await;
    let (etag, modified) = (
        first.etag(),
        first.header("last-modified").unwrap().to_owned(),
    );
    let weak = format!("W/{etag}");
    let list = format!("\"other\", {weak}");
    for (name, value, status) in [
        ("if-none-match", &*etag, 304),
        ("if-none-match", &weak, 304),
        ("if-none-match", &list, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", &modified, 304),
        ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("if-match", &etag, 200),
        ("if-match", &weak, 412),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", &modified, 200),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ] {
        let got = site.get_with("/a.txt", &[(name, value)]).await;
        assert_eq!(got.status, status, "{name}: {value}");
        if status == 304 {
            assert_eq!(got.header("etag"), Some(&*etag));
            assert_eq!(got.header("cache-control"), Some("max-age=1"));
            assert_eq!(got.header("content-length"), None);
            assert_eq!(got.header("content-type"), None);
            assert!(got.body.is_empty());
        }
    }
}

#[tokio::test]
async fn serves_ranges() {
    let site = site(&[("a.txt", "0123456789")], |files| files);
    let etag = site.get("/a.txt").await.etag();
    for (range, status, body, content_range) in [
        ("bytes=0-0", 206, "0", Some("bytes 0-0/10")),
        ("bytes=5-", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=8-100", 206, "89", Some("bytes 8-9/10")),
        ("bytes=0-3,2-5", 206, "012345", Some("bytes 0-5/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=3-2", 200, "0123456789", None),
        (
            "bytes=0-0,2-2,4-4,6-6,8-8,0-0,0-0,0-0,0-0",
            200,
            "0123456789",
            None,
        ),
        (
            "bytes=0-18446744073709551615",
            206,
            "0123456789",
            Some("bytes 0-9/10"),
        ),
    ] {
        let got = site.get_with("/a.txt", &[("range", range)]).await;
        assert_eq!((got.status, got.text()), (status, body), "{range}");
        assert_eq!(got.header("content-range"), content_range, "{range}");
    }
    let head = site
        .send(Method::HEAD, "/a.txt", &[("range", "bytes=0-0")])
        .await;
    assert_eq!(head.status, 200);
    for (if_range, status) in [
        (&*etag, 206),
        ("\"other\"", 200),
        (&*format!("W/{etag}"), 200),
    ] {
        let lines = [("range", "bytes=0-0"), ("if-range", if_range)];
        assert_eq!(
            site.get_with("/a.txt", &lines).await.status,
            status,
            "{if_range}"
        );
    }
    let lines = [("range", "bytes=0-0"), ("if-none-match", &*etag)];
    assert_eq!(site.get_with("/a.txt", &lines).await.status, 304);
}

#[tokio::test]
async fn serves_several_ranges_as_multipart() {
    let site = site(&[("a.txt", "0123456789")], |files| files);
    let got = site
        .get_with("/a.txt", &[("range", "bytes=8-9, 0-1")])
        .await;
    assert_eq!(got.status, 206);
    assert_eq!(got.header("content-range"), None);
    let content_type = got.header("content-type").unwrap();
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let part = |range, body| {
        format!(
            "\r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let expected = format!(
        "{}{}\r\n--{boundary}--\r\n",
        part("8-9", "89"),
        part("0-1", "01")
    );
    assert_eq!(got.text(), expected);
}
