//! The challenge in Chromium and Firefox, and what curl gets.

use std::fs;

use super::running_browser::RunningBrowser;
use super::{Curl, program};
use crate::harness::{Home, free_port, wait_until};

/// Pages that lead to one another, each with a higher level of the challenge, and two sites with one secret.
fn sites(home: &Home) {
    for folder in ["site/two", "site/three"] {
        fs::create_dir_all(home.path(folder)).unwrap();
    }
    let leading_to = |target: &str| {
        format!(
            "<!doctype html><title>page</title><meta http-equiv=refresh content=\"0; url={target}\">"
        )
    };
    home.write("site/index.html", leading_to("/two/?a=b&amp;c=d"));
    home.write("site/two/index.html", leading_to("/three/?e=f"));
    let last = "<!doctype html><title>last</title><img src=\"/proof.svg\">";
    home.write("site/three/index.html", last);
    let image = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"/>";
    home.write("site/proof.svg", image);
    home.write("challenge.key", "0123456789abcdef".repeat(4));
    let site = |name: &str, more: &str| {
        format!(
            "[[sites]]\nname = \"{name}\"\nlisten = [\"127.0.0.1:{}\"]\nroot = \"site\"\n{more}\
             [sites.challenge]\nkey_file = \"challenge.key\"\ndifficulty = 8\nweights = [{{ add = 10 }},\n\
             {{ when = 'path starts_with \"/two/\"', add = 10 }},\n\
             {{ when = 'path starts_with \"/three/\"', add = 20 }}]\n",
            free_port()
        )
    };
    let log = "access_log = { path = \"access.log\", format = \"$status $request_uri $http_user_agent\" }\n";
    home.write("apus.toml", site("shop", log) + &site("blog", ""));
}

#[test]
fn browsers_pass_each_level_of_a_challenge_and_curl_does_not() {
    let home = Home::new();
    sites(&home);
    let apus = home.serve(&[]);
    let url = apus.urls()[0].clone();
    for (name, browser) in [
        (
            "Chrome",
            RunningBrowser::chromium(&home.path("chromium"), true, &url),
        ),
        (
            "Firefox",
            RunningBrowser::firefox(&home.path("firefox"), true, &url),
        ),
    ] {
        let has = |status: u16, target: &str| {
            let log = home.read("access.log");
            let begin = format!("{status} {target} ");
            let mut lines = log.lines();
            lines.any(|line| line.starts_with(&begin) && line.contains(name))
        };
        wait_until(&format!("{name} has passed all levels"), || {
            has(200, "/proof.svg")
        });
        // The lines of two workers come in any order.
        for target in ["/", "/two/?a=b&c=d", "/three/?e=f"] {
            wait_until(
                &format!("{name} was challenged and passed on {target}"),
                || has(403, target) && has(200, target),
            );
        }
        drop(browser);
    }

    // A program gets an explanation.
    let refused = Curl::new().run(&url).unwrap();
    assert_eq!(refused.status, 403);
    let text = refused.text();
    assert!(text.contains("only browsers pass"), "{text}");
    // One that sends the fields of a browser and follows redirects gets the page.
    let jar = home.path("cookies").display().to_string();
    let page = |arguments: &[&str], url: &str| {
        let output = program("curl")
            .args([
                "-sL",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                "Accept: text/html",
            ])
            .args(arguments)
            .arg(url)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(page(&["-c", &jar], &url), "403");
    // With the cookie of that page and a second of patience it passes the level without JavaScript,
    let marked = format!("{url}?apus-challenge=1");
    let passed = home.path("passed").display().to_string();
    wait_until("the refresh counts", || {
        page(&["-b", &jar, "-c", &passed], &marked) == "200"
    });
    let jar = passed;
    assert_eq!(page(&["-b", &jar], &url), "200");
    // from its address, on its site, at its level.
    assert_eq!(page(&["-b", &jar, "--interface", "127.0.0.2"], &url), "403");
    assert_eq!(page(&["-b", &jar], &format!("{url}two/")), "403");
    let cookies = home.read("passed");
    let clearance = cookies
        .lines()
        .find_map(|line| line.split_once("apus_clearance\t"))
        .unwrap();
    let own = format!("Cookie: apus_clearance={}", clearance.1);
    let changed = format!("{}x", &own[..own.len() - 1]);
    let other_site = &apus.urls()[1];
    assert_eq!(page(&["-H", &own], &url), "200");
    assert_eq!(page(&["-H", &changed], &url), "403");
    assert_eq!(page(&["-H", &own], other_site), "403");

    let (out, _) = home.expect(&["status"], 0);
    assert!(out.contains("challenge shop: level 1 "), "{out}");
    let (out, _) = home.expect(&["explain", "GET", &format!("{url}three/")], 0);
    assert!(out.contains("challenge of level 3"), "{out}");
}

#[test]
fn browsers_without_scripts_pass_the_first_level_and_no_other() {
    let home = Home::new();
    sites(&home);
    let apus = home.serve(&[]);
    let url = apus.urls()[0].clone();
    for name in ["Chrome", "Firefox"] {
        let profile = home.path(name);
        let browser = if name == "Chrome" {
            RunningBrowser::chromium(&profile, false, &url)
        } else {
            RunningBrowser::firefox(&profile, false, &url)
        };
        let has = |begin: &str| {
            let log = home.read("access.log");
            log.lines()
                .any(|line| line.starts_with(begin) && line.contains(name))
        };
        wait_until(&format!("{name} has passed the first level"), || {
            has("403 / ") && has("200 / ")
        });
        // The page that it gets leads to one with the second level.
        wait_until(&format!("{name} is challenged again"), || {
            has("403 /two/?a=b&c=d ")
        });
        assert!(!has("200 /two/"), "{name}");
        drop(browser);
    }
}
