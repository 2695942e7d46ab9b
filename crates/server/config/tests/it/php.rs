//! Reading configurations of PHP: where it is, what runs, and what a preset adds.

use std::fs;
use std::time::Duration;

use apus_cache::policy::CacheNamePattern;
use apus_client::Protocol;
use apus_config::{FilesRoot, HandlerPlan, PhpPlan, ServerPlan};
use apus_files::Symlinks;
use apus_php::handler::PhpSettings;

use crate::documents::{findings, folder, parse_in};

/// A file in which `SITE` has PHP at an address, and what is found wrong with it.
const MISTAKES_ABOUT_PHP: &[(&str, &str)] = &[
    (
        "[[sites]]\nlisten = 80\nphp_fastcgi = \"[::1]:9\"\n",
        "3:15 PHP without the folder of its programs; expected `root` beside it",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"http://[::1]:9\"\n",
        "4:15 `http://[::1]:9`: requests to PHP are sent over FastCGI, which has no scheme",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"app\"\n",
        "4:15 the site has no group of origins `app`",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = []\n",
        "4:15 PHP is nowhere",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = [\"[::1]:9\", \"[::1]:9\"]\n",
        "4:27 the same address twice",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"php/fpm.sock\"\n",
        "4:15 there is no socket php/fpm.sock",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\npreset = \"wordpress\"\n",
        "4:10 a preset of PHP, and nothing that runs PHP",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nfastcgi.hide = \"X-Powered-By\"\n",
        "4:1 `fastcgi` has no effect; neither the site nor a location runs PHP",
    ),
    (
        "SITE\nupstream = \"http://[::1]:1\"\n",
        "4:15 `php_fastcgi` and `upstream` exclude each other",
    ),
    (
        "SITE\npreset = \"laravel\"\n",
        "5:10 there is no /index.php in public; it handles the requests for paths without a file",
    ),
    (
        "SITE\nfastcgi.front_controller = \"/index.html\"\n",
        "5:28 `/index.html`: it does not end with `.php`",
    ),
    (
        "SITE\nfastcgi.front_controller = \"/../index.php\"\n",
        "5:28 `/../index.php`: it starts with a slash",
    ),
    (
        "SITE\nfastcgi.params = { \"A-B\" = \"c\" }\n",
        "5:20 `A-B`: it has only letters, digits and `_`",
    ),
    (
        "SITE\nfastcgi.params = { A = \"$nope\" }\n",
        "5:24 `$nope`: there is no variable $nope",
    ),
    (
        "SITE\nfastcgi.pool_size = 0\n",
        "5:21 the number is out of range",
    ),
    (
        "SITE\nfastcgi.cache = true\n",
        "5:17 only what PHP says a time for is stored",
    ),
    (
        "SITE\nfastcgi.cache_field = true\n",
        "5:23 `cache_field` has no effect; nothing is cached",
    ),
    (
        "SITE\ncache = true\n",
        "5:9 `cache` has no effect; neither the site nor a location has an `upstream`",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"static\"\nphp_fastcgi = \"[::1]:8\"\n",
        "8:15 `php_fastcgi` has no effect; the handler of this location is `static`",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\n[[sites.locations]]\npath = \"/a\"\n\
         handler = \"fastcgi\"\n",
        "6:11 nothing runs PHP here",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"app\"\n\
         [[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:9\"\n",
        "4:15 the group `app` does not speak FastCGI",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"app\"\nfastcgi.pool_size = 2\n\
         [[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:9\"\nprotocol = \"fastcgi\"\n",
        "5:21 `pool_size` has no effect; the group of the site has its own keys for connections",
    ),
    (
        "[[sites]]\nlisten = 80\nupstream = \"app\"\n\
         [[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:9\"\nprotocol = \"fastcgi\"\n",
        "3:12 a group that speaks FastCGI, where HTTP is spoken",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"app\"\n\
         [[sites.upstreams]]\nname = \"app\"\nnodes = \"[::1]:9\"\nprotocol = \"fastcgi\"\n\
         check = true\n",
        "9:9 FastCGI nodes do not support this check",
    ),
];

#[test]
fn reports_each_mistake_about_php_with_its_position() {
    let site = "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"[::1]:9\"\n";
    let mut failed = Vec::new();
    for (text, expected) in MISTAKES_ABOUT_PHP {
        let text = text.replace("SITE\n", site);
        let found = findings(&text);
        if found.len() != 1 || !found.iter().all(|found| found.starts_with(expected)) {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn plan(text: &str) -> ServerPlan {
    let folder = folder();
    fs::write(folder.path().join("public/index.php"), "<?php").unwrap();
    match parse_in(folder.path(), text) {
        Ok(plan) => plan,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

fn php(handler: &HandlerPlan) -> &PhpPlan {
    match handler {
        HandlerPlan::Php(php) => php,
        other => panic!("it is {other:?}"),
    }
}

#[test]
fn an_address_beside_the_root_is_enough() {
    let plan = plan(
        "[[sites]]\nserver_name = [\"*.example.com\", \"example.com\"]\nlisten = 80\n\
         root = \"public\"\nphp_fastcgi = \"[::1]:9\"\n",
    );
    let php = php(plan.sites[0].handler.as_ref().unwrap());
    let files = php.files.as_ref().unwrap();
    assert_eq!(files.index, ["index.php", "index.html"]);
    assert_eq!(php.settings.server_name.as_deref(), Some("example.com"));
    assert_eq!(php.settings.front_controller, None);
    assert!(php.cache.is_none());
    let settings = format!("{:?}", plan.sites[0].settings);
    assert!(settings.contains("accel: None"), "{settings}");
    assert_eq!(&*php.settings.server_software, "Apus");
    let expected = PhpSettings {
        root: php.settings.root.clone(),
        index: vec!["index.php".into(), "index.html".into()],
        site: "*.example.com".into(),
        server_name: Some("example.com".into()),
        ..PhpSettings::default()
    };
    assert_eq!(format!("{:?}", php.settings), format!("{expected:?}"));
    let [upstream] = &*plan.upstreams else {
        panic!("there is one group");
    };
    assert_eq!(*upstream.group.name, *php.upstream);
    assert_eq!(upstream.group.protocol, Protocol::FastCgi);
    assert_eq!(upstream.group.nodes[0].max_requests, 64);
    assert_eq!(upstream.group.pool.max_idle, 64);
}

#[test]
fn a_preset_has_the_settings_of_its_application() {
    let plan = plan(
        "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"[::1]:9\"\n\
         preset = \"wordpress\"\n[sites.fastcgi]\nno_php = \"/mine/**\"\ncache.ttl = 60\n\
         cache.bypass_cookies = \"mine\"\n\
         [[sites.locations]]\npath = \"/static/\"\nhandler = \"static\"\n",
    );
    let site = &plan.sites[0];
    let php = php(site.handler.as_ref().unwrap());
    assert_eq!(php.settings.front_controller.as_deref(), Some("/index.php"));
    let runs = |path: &str| {
        let mut no_php = php.settings.no_php.iter();
        !no_php.any(|glob| glob.matches(path.as_bytes()))
    };
    assert!(!runs("/mine/a.php") && !runs("/wp-content/uploads/2024/a.php"));
    assert!(runs("/wp-login.php") && runs("/wp-content/plugins/a/b.php"));
    let cache = php.cache.as_ref().unwrap();
    let bypassed = |name: &str| CacheNamePattern::may_match(&cache.bypass_cookies, name.as_bytes());
    for name in [
        "mine",
        "PHPSESSID",
        "wordpress_logged_in_0a",
        "comment_author_0a",
    ] {
        assert!(bypassed(name), "{name}");
    }
    assert!(!bypassed("laravel_session") && !bypassed("_ga"));
    let of_session = |name: &str| {
        let patterns = &cache.rules.credentials.session_cookies;
        CacheNamePattern::may_match(patterns, name.as_bytes())
    };
    assert!(of_session("PHPSESSID") && of_session("wordpress_logged_in_0a"));
    assert!(!of_session("theme"));
    let is_uncached = |path: &[u8]| cache.bypass_paths.iter().any(|glob| glob.matches(path));
    assert!(is_uncached(b"/wp-login.php") && !is_uncached(b"/hello/"));
    // Pages that say nothing of a time; not a redirect to a page to log in or to install.
    let ttl = &cache.rules.ttl;
    let has_ttl = |status: u16| {
        ttl.iter()
            .any(|ttl| (ttl.first..=ttl.last).contains(&status))
    };
    assert!([200, 301, 308].into_iter().all(has_ttl));
    assert!(![302, 303, 307].into_iter().any(has_ttl));
    assert!(format!("{:?}", site.settings).contains("wp-admin"));
    let HandlerPlan::Files(files) = &site.locations[0].handler else {
        panic!("the location is of files");
    };
    let is_protected = |path: &[u8]| files.protected.iter().any(|glob| glob.matches(path));
    assert!(is_protected(b"/static/dump.sql") && !is_protected(b"/static/a.css"));
}

#[test]
fn presets_differ_in_what_their_applications_need() {
    let plan = |preset: &str, more: &str| {
        plan(&format!(
            "[[sites]]\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"[::1]:9\"\n\
             preset = \"{preset}\"\n{more}\n"
        ))
    };
    for (preset, more, symlinks, software) in [
        ("wordpress", "", Symlinks::Inside, "Apus (like nginx)"),
        ("typecho", "", Symlinks::Inside, "Apus"),
        ("laravel", "", Symlinks::Follow, "Apus"),
        ("laravel", "symlinks = \"none\"", Symlinks::Refuse, "Apus"),
    ] {
        let plan = plan(preset, more);
        let php = php(plan.sites[0].handler.as_ref().unwrap());
        assert_eq!(php.files.as_ref().unwrap().symlinks, symlinks, "{preset}");
        assert_eq!(php.settings.symlinks, symlinks, "{preset}");
        assert_eq!(&*php.settings.server_software, software, "{preset}");
    }
}

#[test]
fn locations_inherit_the_keys_of_the_site_that_they_do_not_set() {
    let plan = plan(
        "[[sites]]\nname = \"a\"\nlisten = 80\nroot = \"public\"\nphp_fastcgi = \"[::1]:9\"\n\
         [sites.fastcgi]\nhide = \"x-a\"\npool_size = 5\nread_timeout = 7\n\
         [[sites.locations]]\npath = \"/same/\"\nheaders.set = { x-b = \"c\" }\n\
         [[sites.locations]]\npath = \"/more/\"\nfastcgi.pool_size = 2\n\
         [[sites.locations]]\npath = \"/old/\"\nalias = \"other\"\nphp_fastcgi = \"[::1]:8\"\n\
         [[sites.locations]]\npath = \"/files/\"\nroot = \"other\"\n\
         [[sites.locations]]\npath = \"/there/\"\nphp_fastcgi = \"[::1]:7\"\n\
         fastcgi.script_root = \"/srv\"\n",
    );
    let site = &plan.sites[0];
    let names: Vec<_> = plan.upstreams.iter().map(|one| &*one.group.name).collect();
    assert_eq!(
        names,
        ["a/php", "a/php /more/", "a/php /old/", "a/php /there/"]
    );
    let group = |name: &str| {
        let mut groups = plan.upstreams.iter().map(|one| &one.group);
        groups.find(|group| *group.name == *name).unwrap()
    };
    assert_eq!(group("a/php").nodes[0].max_requests, 5);
    assert_eq!(group("a/php /more/").nodes[0].max_requests, 2);
    assert_eq!(group("a/php /more/").timeouts.read, Duration::from_secs(7));
    let [same, more, old, files, there] = &*site.locations else {
        panic!("there are five locations");
    };
    assert_eq!(php(&same.handler).upstream, "a/php");
    assert_eq!(php(&more.handler).upstream, "a/php /more/");
    assert_eq!(php(&more.handler).settings.hidden, [Box::from("x-a")]);
    let old = php(&old.handler);
    assert_eq!(&*old.settings.prefix, "/old");
    assert!(matches!(
        old.files.as_ref().unwrap().root,
        FilesRoot::Alias(_)
    ));
    assert!(matches!(files.handler, HandlerPlan::Files(_)));
    // The root of the site is there for it, and PHP sees it elsewhere.
    let there = &php(&there.handler).settings;
    assert_eq!(there.script_root.as_deref(), Some("/srv"));
    assert!(there.root.is_some());
}
