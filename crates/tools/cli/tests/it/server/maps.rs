//! Maps of `apus.toml` in a running server: in conditions, templates, logs and limits, and in files that change.

use crate::harness::{Home, wait_until};
use crate::wire::Wire;

const CONFIG: &str = r#"
[global]
trusted_proxies = "127.0.0.1"
[global.maps.plan]
from = "header.x-api-key"
default = "free"
values = { key-of-ada = "gold", "~^test-" = "test" }
file = "plans.map"
[global.maps.speed]
from = "map.plan"
values = { gold = "fast", silver = "fast" }
default = "slow"
[global.maps.place]
from = "client"
values = { "10.0.0.0/8" = "inside", "10.1.0.0/16" = "lab" }
[global.maps.shop]
from = "host"
values = { "*.shop.example" = "shop", "old.shop.example" = "old" }
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
access_log = { path = "log", format = "$request_uri $map_plan $map_place $map_shop" }
headers.set = { x-plan = "$map_plan", x-speed = "$map_speed", x-place = "$map_place", x-shop = "$map_shop" }
[[sites.rules]]
name = "no guests"
when = 'path == "/members" and map.speed == "slow"'
return = { status = 302, location = "/join?plan=$map_plan" }
[[sites.rules]]
name = "members"
when = { path = "/members" }
return = { status = 200, text = "welcome, $map_plan\n" }
[[sites.limits]]
name = "limited"
by_rules = true
rate = "2/h"
key = "map.plan"
[[sites.rules]]
name = "limited"
when = { path = "/limited" }
limit = "limited"
"#;

fn get(address: std::net::SocketAddr, path: &str, lines: &str) -> (u16, String) {
    let mut wire = Wire::connect(address);
    wire.send(format!(
        "GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n"
    ));
    let received = wire.read();
    let text = format!("{}\r\n{}", received.head.join("\r\n"), received.text());
    (received.status, text)
}

#[test]
fn the_value_of_a_map_is_in_conditions_templates_logs_and_limits() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("public/limited", "data");
    home.write("plans.map", "# more plans\nkey-of-lin silver;\n");
    home.write("apus.toml", CONFIG);
    let apus = home.serve(&[]);
    let get = |path: &str, lines: &str| get(apus.address(), path, lines);

    let free = get("/", "Host: a\r\nX-Forwarded-For: 192.0.2.1\r\n").1;
    for field in ["x-plan: free\r\n", "x-speed: slow\r\n"] {
        assert!(free.contains(field), "{field}: {free}");
    }
    // A field whose value is empty is not sent.
    assert!(
        !free.contains("x-place") && !free.contains("x-shop"),
        "{free}"
    );
    let ada = get(
        "/?1",
        "Host: www.SHOP.example\r\nX-Api-Key: key-of-ada\r\nX-Forwarded-For: 10.1.2.3\r\n",
    )
    .1;
    for field in [
        "x-plan: gold\r\n",
        "x-speed: fast\r\n",
        "x-place: lab\r\n",
        "x-shop: shop\r\n",
    ] {
        assert!(ada.contains(field), "{field}: {ada}");
    }
    let lin = get(
        "/?2",
        "Host: old.shop.example\r\nX-Api-Key: key-of-lin\r\nX-Forwarded-For: 10.2.0.1\r\n",
    )
    .1;
    for field in [
        "x-plan: silver\r\n",
        "x-speed: fast\r\n",
        "x-place: inside\r\n",
        "x-shop: old\r\n",
    ] {
        assert!(lin.contains(field), "{field}: {lin}");
    }
    let test = get("/?3", "Host: a\r\nX-Api-Key: test-7\r\n").1;
    assert!(test.contains("x-plan: test\r\n"), "{test}");
    // Nobody chooses a plan by a second field, and no field is a map.
    let two = get("/?4", "Host: a\r\nX-Api-Key: key-of-ada\r\nX-Api-Key: key-of-ada\r\nMap-Plan: gold\r\nX-Plan: gold\r\n").1;
    assert!(two.contains("x-plan: free\r\n"), "{two}");

    let guest = get("/members", "Host: a\r\n");
    assert!(
        guest.0 == 302 && guest.1.contains("location: /join?plan=free\r\n"),
        "{guest:?}"
    );
    let member = get("/members", "Host: a\r\nX-Api-Key: key-of-lin\r\n");
    assert!(member.1.ends_with("welcome, silver\n"), "{member:?}");

    // The plan is what is counted.
    let limited = |key: &str| get("/limited", &format!("Host: a\r\nX-Api-Key: {key}\r\n")).0;
    let statuses = ["test-1", "test-2", "test-3", "key-of-ada"].map(limited);
    assert_eq!(statuses, [200, 200, 429, 200]);

    // Each worker writes its own lines.
    for line in [
        "/ free - -\n",
        "/?1 gold lab shop\n",
        "/?2 silver inside old\n",
        "/?3 test - -\n",
    ] {
        wait_until("the request is logged", || home.read("log").contains(line));
    }
}

#[test]
fn a_file_of_a_map_is_read_again_and_explained() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("plans.map", "key-of-lin silver\n");
    home.write("apus.toml", CONFIG);
    let explain = |key: &str| {
        let field = format!("x-api-key: {key}");
        home.expect(&["explain", "GET", "http://a/", "--header", &field], 0)
            .0
    };
    let text = explain("key-of-lin");
    assert!(text.contains("map plan: silver"), "{text}");
    assert!(text.contains("map speed: fast"), "{text}");
    assert!(text.contains("map shop has no value"), "{text}");

    let apus = home.serve(&[]);
    let plan = || {
        let text = get(apus.address(), "/", "Host: a\r\nX-Api-Key: key-of-lin\r\n").1;
        let field = text.lines().find_map(|line| line.strip_prefix("x-plan: "));
        field.unwrap().to_owned()
    };
    assert_eq!(plan(), "silver");
    home.write("plans.map", "key-of-lin gold # since today\n");
    wait_until("the map is read again", || plan() == "gold");
    // With a mistake in it, the old map stays.
    home.write("plans.map", "key-of-lin silver\nkey-of-bob\n");
    apus.wait_for_log("line 2: expected a value behind the key");
    assert_eq!(plan(), "gold");
    home.write("plans.map", "key-of-lin silver\nkey-of-bob silver\n");
    wait_until("the map is right again", || plan() == "silver");
}
