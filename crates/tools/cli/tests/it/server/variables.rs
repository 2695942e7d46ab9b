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
