//! The pages that the server makes itself: error pages and listings, their language, design and id of the request.

use std::io::Write;

use crate::harness::{Home, connect, free_port};

/// The head and the body of a response to a browser with this `Accept-Language`.
fn page(address: std::net::SocketAddr, path: &str, language: &str) -> (String, String) {
    let mut stream = connect(address);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: text/html,*/*;q=0.8\r\n\
         Accept-Language: {language}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// The colours of a page and what is common of its layout.
fn design(page: &str) -> &str {
    let start = page.find(":root {").unwrap();
    let end = start + page[start..].find("sans-serif }").unwrap();
    &page[start..end]
}

#[test]
fn error_pages_and_listings_have_one_design_two_languages_and_an_id_to_quote() {
    let home = Home::new();
    home.make_folder("site/folder");
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = [\"127.0.0.1:0\"]\nlisting = true\nrequest_id = true\n",
    );
    let apus = home.serve(&[]);
    let (head, english) = page(apus.address(), "/none", "de, en;q=0.5");
    let id = head.split("x-request-id: ").nth(1).unwrap();
    let id = id.lines().next().unwrap();
    assert!(
        english.contains(&format!("Request <code>{id}</code>")),
        "{english}"
    );
    assert!(english.contains("<html lang=\"en\">"), "{english}");
    assert!(head.contains("vary: accept, accept-language"), "{head}");
    let (_, chinese) = page(apus.address(), "/none", "zh-CN,zh;q=0.9,en;q=0.8");
    assert!(chinese.contains("请求编号 <code>"), "{chinese}");
    let (head, listing) = page(apus.address(), "/folder/", "zh");
    assert!(head.contains("vary: accept, accept-language"), "{head}");
    assert!(listing.contains("上级文件夹"), "{listing}");
    assert_eq!(design(&listing), design(&english));
    for page in [&english, &chinese, &listing] {
        assert!(page.len() < 8192, "{}", page.len());
        assert!(page.contains("prefers-color-scheme: dark"));
        for outside in ["src=", "url(", "@import", "href=\"http", "<script"] {
            assert!(!page.contains(outside), "{outside} in {page}");
        }
    }
}

#[test]
fn a_cache_does_not_mix_the_languages_of_a_page() {
    let home = Home::new();
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"a.example\"\nlisten = [\"127.0.0.1:0\"]\nupstream = \"http://127.0.0.1:{port}\"\ncache = {{ ttl = 60 }}\n\
             [[sites]]\nlisten = [\"127.0.0.1:{port}\"]\nroot = \"site\"\n"
        ),
    );
    let apus = home.serve(&[]);
    for _ in 0..2 {
        for (language, text) in [("en", "Not Found"), ("zh", "页面不存在")] {
            let (_, body) = page(apus.address(), "/none", language);
            assert!(body.contains(text), "{language}: {body}");
        }
    }
}
