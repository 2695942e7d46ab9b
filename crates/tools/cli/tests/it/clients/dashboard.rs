//! The dashboard of a real server in Chromium and Firefox.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::driven_browser::{BrowserKind, DrivenBrowser};
use crate::harness::{Apus, Home, connect, free_port, get};
use crate::proxy::Origin;

/// Markup that changes the title of the page if it becomes a part of it.
const MARKUP: &str = "<img src=x onerror=document.title='XSS'>";

const PASSWORD: &str = "correct horse battery";

/// A server with a site of files and one of an origin, and with an address of the operator.
struct DashboardTest {
    home: Home,
    site: SocketAddr,
    admin: SocketAddr,
    apus: Apus,
    _origin: Origin,
}

impl DashboardTest {
    fn new() -> Self {
        let home = Home::new();
        let mut accounts = String::new();
        for arguments in [
            ["rita", "--role", "read"].as_slice(),
            &["sven", "--role", "operate", "--site", "shop"],
        ] {
            accounts += &account(&home, arguments);
        }
        let path = home.write("accounts.toml", accounts);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        home.make_folder("state");
        let origin = Origin::python();
        let [site, admin] = [free_port(), free_port()];
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\nstate_folder = \"state\"\n\
                 admin_listen = \"127.0.0.1:{admin}\"\nadmin_accounts = \"accounts.toml\"\n\
                 [global.cache]\nmemory_size = 16\n\
                 [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n\
                 [[sites.rules]]\nname = \"{MARKUP}\"\nwhen = 'path starts_with \"/wp-\"'\ndeny = 404\n\
                 [[sites.limits]]\nname = \"daily\"\nquota = \"100000/day\"\n\
                 [[sites.upstreams]]\nname = \"app\"\nnodes = [\"{}\", \"127.0.0.1:{}\"]\n\
                 [[sites.locations]]\npath = \"/api/\"\nupstream = \"app\"\ncache = true\n",
                origin.address(),
                free_port(),
            ),
        );
        Self {
            apus: home.serve(&["apus.toml"]),
            home,
            site: ([127, 0, 0, 1], site).into(),
            admin: ([127, 0, 0, 1], admin).into(),
            _origin: origin,
        }
    }

    /// The link of `apus admin login`.
    fn link(&self) -> String {
        let (printed, _) = self.home.expect(&["admin", "login"], 0);
        printed.lines().last().unwrap().to_owned()
    }

    fn browser(&self, kind: BrowserKind) -> DrivenBrowser {
        DrivenBrowser::start(kind, &self.home.path(&format!("{kind:?}")))
    }

    /// Requests whose host, path and user agent are markup.
    fn send_markup(&self) {
        let path = "/%3Cimg%20src=x%20onerror=document.title='XSS'%3E";
        let proxied = format!("/api{path}");
        for (target, host, agent) in [
            (path, "shop.example", MARKUP),
            (&*proxied, "shop.example", MARKUP),
            (&*proxied, "shop.example", MARKUP),
            ("/api/cart", MARKUP, "tests"),
            ("/wp-login.php", "shop.example", MARKUP),
            ("/api/cart", "shop.example", MARKUP),
        ] {
            let mut stream = connect(self.site);
            let request = format!(
                "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nReferer: {MARKUP}\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        }
    }
}

/// The lines of an account with [`PASSWORD`].
fn account(home: &Home, arguments: &[&str]) -> String {
    let mut command = home.command(&["admin", "account"]);
    let command = command.args(arguments).arg("--password-stdin");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The view that is shown has come: it is not read any more, and no question is open.
const IS_SHOWN: &str =
    "!document.querySelector('[aria-busy], dialog') && !!document.querySelector('main .view > *')";

/// What must not be in any view.
const FAULTS: &str = "[
    document.title.includes('XSS') && 'markup of data has run',
    document.querySelector('body img, body script, body iframe, [onerror], [style]') && 'markup of data is markup of the page',
    document.documentElement.scrollWidth > innerWidth && 
        'too wide: ' + [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth && !one.closest('nav')).slice(-1).map((one) => one.outerHTML.slice(0, 200)),
    [...document.querySelectorAll('input, select, textarea, button, a, [role=img], [role=region]')].some((one) =>
        !(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label'))) && 'a control has no name',
    document.querySelectorAll('h1').length === 1 || 'there is not one heading of the first level',
    document.querySelector('.failure')?.innerText,
    document.querySelector('.toast.bad')?.innerText,
    new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size === document.querySelectorAll('[id]').length || 'an id is there twice',
].filter((fault) => fault && fault !== true)";

fn show(browser: &mut DrivenBrowser, view: &str) {
    browser.value(&format!("location.hash = '#/{view}'"));
    let is_current = format!(
        "document.querySelector('nav [aria-current=page]').dataset.key === '{view}' && {IS_SHOWN}"
    );
    browser.wait(&format!("the view {view} is shown"), &is_current);
}

/// The views that the page leads to.
fn views(browser: &mut DrivenBrowser) -> Vec<String> {
    let links = "[...document.querySelectorAll('nav a')].map((one) => one.dataset.key)";
    let views = browser.value(links);
    serde_json::from_value(views).unwrap()
}

/// Shows each view, and looks for faults.
fn walk(browser: &mut DrivenBrowser, how: &str) {
    for view in views(browser) {
        show(browser, &view);
        let faults = browser.value(FAULTS);
        assert_eq!(faults, serde_json::json!([]), "{view}, {how}");
    }
    let faults = browser.take_faults();
    assert!(faults.is_empty(), "{how}: {faults:?}");
}

fn text(browser: &mut DrivenBrowser) -> String {
    let text = browser.value("document.querySelector('main').innerText");
    text.as_str().unwrap().to_owned()
}

/// Presses a button of the view by its name: the first one in a row that has `row`.
fn press(browser: &mut DrivenBrowser, row: &str, name: &str) {
    let button = format!(
        "[...document.querySelectorAll('main button')].find((one) => one.textContent === {name:?} && (one.closest('tr') ?? document.body).textContent.includes({row:?}))"
    );
    browser.wait(&format!("there is a button {name}"), &format!("!!{button}"));
    browser.value(&format!("{button}.click()"));
}

/// Fills the fields of the question that is open, and says yes.
fn say_yes(browser: &mut DrivenBrowser, fields: &[(&str, &str)]) {
    browser.wait(
        "a question is asked",
        "!!document.querySelector('dialog[open]')",
    );
    for (name, value) in fields {
        browser.value(&format!(
            "document.querySelector('dialog [name={name}]').value = {value:?}"
        ));
    }
    browser.value("[...document.querySelectorAll('dialog button')].at(-1).click()");
    browser.wait(
        "the question is closed",
        "!document.querySelector('dialog')",
    );
}

fn wait_for_text(browser: &mut DrivenBrowser, text: &str) {
    browser.wait(
        &format!("the page says {text}"),
        &format!("document.body.innerText.includes({text:?})"),
    );
}

/// What an operator does with a link of `apus admin login`.
fn operate(kind: BrowserKind) {
    let test = DashboardTest::new();
    let mut browser = test.browser(kind);
    browser.set_size(1280, 900);
    browser.open(&test.link());
    browser.wait("the link lets in", IS_SHOWN);
    let is_gone = browser.value("location.hash === '' && document.cookie === ''");
    assert_eq!(is_gone, true);
    let shown = views(&mut browser);
    for view in [
        "overview",
        "traffic",
        "sites",
        "upstreams",
        "cache",
        "php",
        "certificates",
        "bans",
        "limits",
        "rules",
        "config",
        "audit",
    ] {
        assert!(shown.iter().any(|one| one == view), "{shown:?}");
    }

    // What clients send is text.
    show(&mut browser, "traffic");
    wait_for_text(&mut browser, "Counted for");
    test.send_markup();
    wait_for_text(&mut browser, "onerror=document.title");
    test.home
        .expect(&["ban", "add", "203.0.113.9", "--reason", MARKUP], 0);
    show(&mut browser, "bans");
    wait_for_text(&mut browser, MARKUP);
    walk(&mut browser, "wide");

    explain(&mut browser);
    // Now, and back to last year.
    show(&mut browser, "overview");
    browser.wait(
        "the last seconds are drawn",
        "!!document.querySelector('svg.plot polygon') && document.querySelector('.figure strong').textContent !== '–'",
    );
    for range in ["2h", "2d", "7d", "30d", "1y"] {
        browser.value(&format!("location.hash = '#/overview/{range}'"));
        browser.wait(
            &format!("{range} are shown"),
            &format!("document.querySelector('.tab[aria-current]').dataset.key === '{range}' && !!document.querySelector('svg.plot')"),
        );
        assert_eq!(browser.value(FAULTS), serde_json::json!([]), "{range}");
    }

    // What is done is done.
    show(&mut browser, "bans");
    press(&mut browser, "", "Ban…");
    say_yes(
        &mut browser,
        &[
            ("network", "198.51.100.0/24"),
            ("reason", "tries passwords"),
        ],
    );
    wait_for_text(&mut browser, "198.51.100.0/24 is banned.");
    let (bans, _) = test.home.expect(&["ban", "list"], 0);
    assert!(
        bans.contains("198.51.100.0/24") && bans.contains("tries passwords"),
        "{bans}"
    );
    press(&mut browser, "198.51.100.0/24", "Remove");
    say_yes(&mut browser, &[]);
    browser.wait(
        "the ban is gone",
        "!document.querySelector('main').innerText.includes('198.51.100.0/24')",
    );
    show(&mut browser, "sites");
    press(&mut browser, "shop", "Maintenance…");
    say_yes(&mut browser, &[("state", "on")]);
    browser.wait(
        "the site is in maintenance",
        "document.querySelector('.badge.warn')?.textContent === 'maintenance'",
    );
    assert_eq!(get(test.site, "/").status, 503);
    press(&mut browser, "shop", "Maintenance…");
    say_yes(&mut browser, &[]);
    browser.wait(
        "the site is in service",
        "document.querySelector('.badge.good')?.textContent === 'in service'",
    );
    assert_eq!(get(test.site, "/").status, 200);
    show(&mut browser, "upstreams");
    press(&mut browser, "", "Drain");
    say_yes(&mut browser, &[]);
    browser.wait(
        "the node drains",
        "[...document.querySelectorAll('.badge.warn')].some((one) => one.textContent === 'drains')",
    );
    let (status, _) = test.home.expect(&["status"], 0);
    assert!(status.contains("drain"), "{status}");
    show(&mut browser, "cache");
    press(&mut browser, "", "Purge…");
    say_yes(&mut browser, &[("kind", "all")]);
    wait_for_text(&mut browser, "responses were purged.");
    show(&mut browser, "config");
    press(&mut browser, "", "Reload");
    say_yes(&mut browser, &[]);
    wait_for_text(&mut browser, "Nothing has changed.");
    change_configuration(&test, &mut browser);
    show(&mut browser, "audit");
    let log = text(&mut browser);
    for part in [
        "ban add",
        "tries passwords",
        "maintenance",
        "cache purge",
        "reload",
        "config change",
        MARKUP,
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }

    // By keys, in Chinese, dark, and on a phone.
    browser.value("['g', 'u'].forEach((key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })))");
    browser.wait(
        "the keys lead to the upstreams",
        "location.hash === '#/upstreams'",
    );
    browser.value("document.querySelector('[data-key=language]').click()");
    browser.wait("the page is in Chinese", "document.documentElement.lang === 'zh-CN' && document.querySelector('h1').textContent === '上游'");
    browser.value("[1, 2].forEach(() => document.querySelector('[data-key=theme]').click())");
    browser.wait("the page is dark", "document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.body).backgroundColor === 'rgb(16, 23, 26)'");
    walk(&mut browser, "in Chinese");
    browser.set_size(360, 780);
    walk(&mut browser, "on a phone");

    // A session that has ended is nobody's.
    let token = browser.value("sessionStorage.getItem('apus.token')");
    assert!(
        token.as_str().unwrap().starts_with("apus_session_"),
        "{token}"
    );
    browser.value("document.querySelector('[data-key=leave]').click()");
    browser.wait(
        "the log-in is shown",
        "!!document.querySelector('#password')",
    );
    let kept = browser.value("[sessionStorage.getItem('apus.token'), Object.values(localStorage).some((one) => one.includes('apus_'))]");
    assert_eq!(kept, serde_json::json!([null, false]));
    let request = format!(
        "GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        token.as_str().unwrap()
    );
    let mut stream = connect(test.admin);
    stream.write_all(request.as_bytes()).unwrap();
    let reply = std::io::read_to_string(stream).unwrap();
    assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    let faults = browser.take_faults();
    assert!(faults.is_empty(), "{faults:?}");
    assert!(!test.apus.log().contains("panicked"));
}

/// Follows a line of the log to the request that it is about.
fn explain(browser: &mut DrivenBrowser) {
    show(browser, "log");
    wait_for_text(browser, "tried another origin after one failed");
    assert_eq!(browser.value(FAULTS), serde_json::json!([]));
    browser.value("document.querySelector('main td a').click()");
    browser.wait(
        "the request is explained",
        "document.querySelectorAll('main dl.facts dt').length >= 5 && !!document.querySelector('main svg.map rect')",
    );
    let explained = text(browser);
    for part in ["Connection refused", "/api/", "shop"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert_eq!(browser.value(FAULTS), serde_json::json!([]));
    browser.value("location.hash = '#/explain/0123'");
    wait_for_text(browser, "The server does not remember this request");
    // The browser logs the 404.
    browser.take_faults();
}

/// Writes a mistake, mends it, tries the change, and confirms it.
fn change_configuration(test: &DashboardTest, browser: &mut DrivenBrowser) {
    let write = |browser: &mut DrivenBrowser, old: &str, new: &str| {
        browser.value(&format!(
            "(area => {{ area.value = area.value.replace({old:?}, {new:?}); area.dispatchEvent(new Event('input')); }})(document.querySelector('#config-text'))"
        ));
    };
    browser.wait(
        "the text is there",
        "document.querySelector('#config-text')?.value.includes('[[sites]]')",
    );
    write(
        browser,
        "name = \"app\"",
        "name = \"app\"\nstrateg = \"random\"",
    );
    wait_for_text(browser, "unknown key `strateg`");
    browser.wait(
        "its line is marked",
        "!!document.querySelector('.gutter .bad')",
    );
    write(browser, "strateg =", "strategy =");
    wait_for_text(browser, "no mistakes");
    press(browser, "", "Try…");
    browser.wait(
        "the difference is shown",
        "document.querySelector('dialog .plus')?.textContent === '+strategy = \"random\"\\n'",
    );
    say_yes(browser, &[("note", MARKUP), ("seconds", "1800")]);
    browser.wait("the change is tried", "!!document.querySelector('.trying')");
    // It holds already.
    let (shown, _) = test.home.expect(&["config", "show"], 0);
    assert!(shown.contains("strategy = \"random\""), "{shown}");
    press(browser, "", "Confirm");
    say_yes(browser, &[]);
    browser.wait("the change is kept", "!document.querySelector('.trying') && document.querySelector('.badge.good')?.textContent === 'kept'");
    wait_for_text(browser, "not in the file");
    press(browser, "the start of the server", "Restore…");
    say_yes(browser, &[("seconds", "0")]);
    browser.wait(
        "the first version is in force again",
        "document.querySelector('#config-text')?.value.includes('[[sites]]') && !document.querySelector('#config-text').value.includes('strategy')",
    );
    let (versions, _) = test.home.expect(&["config", "versions"], 0);
    assert!(versions.contains("onerror"), "{versions}");
    show(browser, "sites");
    show(browser, "config");
    wait_for_text(browser, MARKUP);
    assert_eq!(browser.value(FAULTS), serde_json::json!([]));
}

#[test]
fn an_operator_sees_and_does_everything_in_chromium() {
    operate(BrowserKind::Chromium);
}

#[test]
fn an_operator_sees_and_does_everything_in_firefox() {
    operate(BrowserKind::Firefox);
}

fn log_in(browser: &mut DrivenBrowser, name: &str, password: &str) {
    browser.wait(
        "the log-in is shown",
        "!!document.querySelector('#password')",
    );
    browser.value(&format!(
        "(document.querySelector('#name').value = {name:?}, document.querySelector('#password').value = {password:?}, document.querySelector('form button').click())"
    ));
}

#[test]
fn an_account_sees_and_does_what_its_role_and_sites_permit() {
    let test = DashboardTest::new();
    let mut browser = test.browser(BrowserKind::Chromium);
    browser.set_size(1280, 900);
    browser.open(&format!("http://{}/", test.admin));
    log_in(&mut browser, "rita", "wrong");
    wait_for_text(&mut browser, "The name or the password is wrong.");
    log_in(&mut browser, "rita", PASSWORD);
    browser.wait("rita is let in", IS_SHOWN);
    let shown = views(&mut browser);
    assert!(
        shown.contains(&"upstreams".to_owned()) && !shown.contains(&"audit".to_owned()),
        "{shown:?}"
    );
    // The browser logs the 401 of the wrong password.
    browser.take_faults();
    walk(&mut browser, "as rita");
    show(&mut browser, "sites");
    press(&mut browser, "shop", "Maintenance…");
    wait_for_text(&mut browser, "Your role does not permit this.");
    assert_eq!(get(test.site, "/").status, 200);

    browser.value("document.querySelector('[data-key=leave]').click()");
    log_in(&mut browser, "sven", PASSWORD);
    browser.wait("sven is let in", IS_SHOWN);
    assert_eq!(views(&mut browser), ["log", "explain", "sites"]);
    walk(&mut browser, "as sven");
    show(&mut browser, "sites");
    press(&mut browser, "shop", "Purge…");
    say_yes(&mut browser, &[("kind", "all")]);
    wait_for_text(&mut browser, "responses were purged.");
    press(&mut browser, "shop", "Maintenance…");
    say_yes(&mut browser, &[("state", "on")]);
    browser.wait(
        "the site is in maintenance",
        "document.querySelector('.badge.warn')?.textContent === 'maintenance'",
    );
    assert_eq!(get(test.site, "/").status, 503);
    let faults = browser.take_faults();
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_code_that_nobody_has_made_lets_nobody_in() {
    let test = DashboardTest::new();
    let mut browser = test.browser(BrowserKind::Chromium);
    browser.open(&format!("http://{}/#code=0123456789abcdef", test.admin));
    browser.wait(
        "the log-in says why",
        "document.querySelector('[role=alert]')?.textContent.length > 10 && location.hash === ''",
    );
    test.apus.wait_for_log("a log-in at `admin_listen` failed");
}

#[test]
fn the_page_and_its_files_are_served_compressed_with_a_strict_policy() {
    let test = DashboardTest::new();
    for path in ["", "dashboard.js", "style.css", "icon.svg"] {
        let url = format!("http://{}/{path}", test.admin);
        let output = Command::new("curl")
            .args(["-s", "-m", "20", "--compressed", "-D", "-", &url])
            .output()
            .unwrap();
        let reply = String::from_utf8(output.stdout).unwrap().to_lowercase();
        assert!(reply.starts_with("http/1.1 200"), "{reply}");
        let has = |field: &str| assert!(reply.contains(field), "{path}: {field}");
        has("\r\ncontent-security-policy: default-src 'none'; script-src 'self';");
        has("\r\ncache-control: no-cache\r\n");
        has("\r\netag: ");
        if path == "dashboard.js" {
            has("\r\ncontent-encoding: ");
        }
    }
    assert_eq!(get(test.admin, "/other.js").status, 404);
}
