//! Variables that rules set, in a running server.

use crate::harness::{Home, wait_until};
use crate::wire::Wire;

const CONFIG: &str = r#"
[global.maps.size]
from = "var.shop"
values = { "shop-a" = "large" }
default = "small"
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
access_log = { path = "log", format = "$request_uri $var_shop $var_end" }
headers.set = { x-shop = "$var_shop", x-size = "$map_size" }
[[sites.rules]]
name = "shop"
when = "query.shop exists"
set = { shop = "shop-$http_x_shop", both = "$uri $var_shop" }
[[sites.rules]]
name = "again"
when = 'var.shop == "shop-b"'
set = { shop = "$var_shop-again" }
[[sites.rules]]
name = "trial"
dry_run = true
set = { shop = "trial" }
[[sites.rules]]
name = "closed"
when = 'var.shop ~ "again$" and map.size == "small"'
return = { status = 403, text = "$var_both\n" }
[[sites.rules]]
name = "end"
on = "response"
when = "status == 404"
set = { end = "missing" }
"#;

fn get(address: std::net::SocketAddr, path: &str, lines: &str) -> String {
    let mut wire = Wire::connect(address);
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n"
    ));
    let received = wire.read();
    format!("{}\r\n{}", received.head.join("\r\n"), received.text())
}

#[test]
fn a_variable_that_a_rule_sets_is_in_later_conditions_templates_and_the_log() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("apus.toml", CONFIG);
    let apus = home.serve(&[]);
    let get = |path: &str, lines: &str| get(apus.address(), path, lines);

    let shop = get("/?shop=1", "X-Shop: a\r\n");
    for field in ["x-shop: shop-a\r\n", "x-size: large\r\n"] {
        assert!(shop.contains(field), "{field}: {shop}");
    }
    // Nothing that a client sends is a variable.
    let forged = get(
        "/?var_shop=x&var.shop=x",
        "Var-Shop: x\r\nX-Var-Shop: x\r\nCookie: shop=x; var.shop=x\r\n",
    );
    assert!(
        !forged.contains("x-shop") && forged.contains("x-size: small\r\n"),
        "{forged}"
    );
    // A later rule sees what an earlier one has set, and each value was expanded when it was set.
    let again = get("/?shop=2", "X-Shop: b\r\n");
    assert!(
        again.contains(" 403 ") || again.starts_with("HTTP/1.1 403"),
        "{again}"
    );
    assert!(again.ends_with("/ shop-b\n"), "{again}");
    get("/none", "");

    for line in [
        "/?shop=1 shop-a -\n",
        "/?var_shop=x&var.shop=x - -\n",
        "/?shop=2 shop-b-again -\n",
        "/none - missing\n",
    ] {
        wait_until("the request is logged", || home.read("log").contains(line));
    }
    let (text, _) = home.expect(&["explain", "GET", "http://a/?shop=1"], 0);
    assert!(text.contains("a: shop: set shop, set both"), "{text}");
}

#[test]
fn cookies_parameters_and_fields_of_the_response_are_variables() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    let format = "[$cookie_id] [$arg_a] [$sent_http_x_id] [$sent_http_content_type] [$sent_http_nothing] $first_byte_time";
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\nheaders.set = {{ x-id = \"$cookie_id-$arg_a\" }}\n\
             access_log = {{ path = \"log\", format = \"{format}\" }}\n"
        ),
    );
    let apus = home.serve(&[]);
    let get = |path: &str, lines: &str| get(apus.address(), path, lines);
    let answer = get("/?b=1&a=x%20y&a=2", "Cookie: other=1; id=one; id=two\r\n");
    assert!(answer.contains("x-id: one-x%20y\r\n"), "{answer}");
    let answer = get("/?aa=1", "Cookie: xid=1\r\n");
    assert!(answer.contains("x-id: -\r\n"), "{answer}");
    // What is not visible ASCII, or could end a quoted string, is escaped.
    get("/", "Cookie: id=a\"\u{e9}\r\n");
    wait_until("three lines", || home.read("log").lines().count() == 3);
    let log = home.read("log");
    let starts = [
        "[one] [x%20y] [one-x%20y] [text/html; charset=utf-8] [-] 0.",
        "[-] [-] [-] [text/html; charset=utf-8] [-] 0.",
        "[a\\x22\\xC3\\xA9] [-] [",
    ];
    // Each worker writes its own lines.
    for start in starts {
        let mut lines = log.lines();
        assert!(lines.any(|line| line.starts_with(start)), "{start}: {log}");
    }
    assert!(log.is_ascii(), "{log}");
}
