//! Programs beside files: which requests go to the service that runs them, and which of these
//! bypass the cache in front of it.

use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_cache::service::CacheUnlessBypassed;
use apus_cache::service::{Cache, CacheSettings, CachedService};
use apus_cache::store::StoreSettings;
use apus_files::Files;
use apus_files::TryFiles;
use apus_http::{Response, ResponseFuture, Service, ServiceFactory, StatusCode, service_fn};
use apus_patterns::Glob;
use apus_sites::{
    FileCondition, Location, LocationPattern, LocationSettings, RewriteFlag, RewriteRule, Site,
};
use tempfile::TempDir;

use apus_testkit::{ask, get};

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("index.php", "source"),
        ("index.html", "page"),
        ("a.txt", "text"),
        ("secret.txt", "text"),
        ("in/index.php", "source"),
        ("plain/index.html", "page"),
        ("lib.php/a.css", "css"),
        (".hidden/index.php", "source"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Responds with the number of the request, the path that it sees, and the one that the client
/// sent.
fn counting() -> impl ServiceFactory + Clone + 'static {
    let count = Arc::new(AtomicUsize::new(0));
    move || {
        let count = Arc::clone(&count);
        service_fn(move |request| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let sent = request.original_target().as_str();
            let text = format!("{number} {} {sent}", request.target().as_str());
            let mut response = Response::text(StatusCode::OK, text);
            let headers = response.headers_mut();
            headers.try_insert("cache-control", "max-age=60").unwrap();
            ResponseFuture::from(response)
        })
    }
}

fn files(folder: &TempDir) -> Files {
    Files::new(folder.path())
        .index(["index.php", "index.html"])
        .protected([Glob::parse("/secret.*").unwrap()])
}

#[test]
fn programs_go_to_the_program_service() {
    let folder = folder();
    let service: Rc<dyn Service> = files(&folder).programs(Arc::new(counting())).service();
    let mut requests = 0;
    for (path, is_run) in [
        ("/", true),
        ("/index.php", true),
        ("/index.php/x", true),
        ("/in/", true),
        ("/none", true),
        ("/none.PHP", true),
        ("/index.php~", true),
        ("/index.php.", true),
        ("/secret.txt", true),
        ("/.hidden/index.php", true),
        ("/a.txt", false),
        ("/plain/", false),
        ("/lib.php/a.css", false),
        ("/index.html", false),
    ] {
        let reply = get(path).of(&service);
        requests += usize::from(is_run);
        if is_run {
            assert_eq!(reply.text(), format!("{requests} {path} {path}"), "{path}")
        } else {
            assert!(!reply.text().starts_with(char::is_numeric), "{path}")
        }
        assert!(!reply.text().contains("source"), "{path}");
    }
    let posted = ask("POST", "/in/").of(&service);
    assert_eq!(posted.text(), format!("{} /in/ /in/", requests + 1));
    assert_eq!(ask("POST", "/a.txt").of(&service).status, 405);
}

#[test]
fn programs_are_not_found_without_a_program_service() {
    let folder = folder();
    let service: Rc<dyn Service> = files(&folder).service();
    for path in [
        "/index.php",
        "/index.php~",
        "/index.php.",
        "/INDEX.PHP",
        "/secret.txt",
    ] {
        assert_eq!(get(path).of(&service).status, 404, "{path}");
    }
    assert_eq!(get("/").of(&service).text(), "page");
}

#[test]
fn try_files_may_name_programs() {
    let folder = folder();
    let list = TryFiles::parse(["$uri", "$uri/", "/index.php?$args"]).unwrap();
    let files = files(&folder).try_files(list);
    let service: Rc<dyn Service> = files.programs(Arc::new(counting())).service();
    for (path, seen) in [
        ("/none?a", "1 /index.php?a /none?a"),
        ("/in/", "2 /in/ /in/"),
        ("/in/index.php/x", "3 /in/index.php/x /in/index.php/x"),
        ("/a.txt", "text"),
    ] {
        assert_eq!(get(path).of(&service).text(), seen, "{path}");
    }
}

#[test]
fn only_unrewritten_normal_paths_use_the_cache() {
    let folder = folder();
    let list = TryFiles::parse(["$uri", "/index.php"]).unwrap();
    let cache = Cache::new(StoreSettings::default());
    let program = counting();
    let settings = CacheSettings {
        by_sent_target: true,
        ..CacheSettings::default()
    };
    let cached = CachedService::new(&cache, "a", settings, program.clone());
    let programs = Arc::new(CacheUnlessBypassed::new(cached, program));
    let everywhere = || "/".parse::<LocationPattern>().unwrap();
    let direct = files(&folder).programs(programs.clone());
    let site = Site::new("a").location(Location::files(everywhere(), direct));
    let service: Rc<dyn Service> = site.service();
    for path in ["/x", "/index.php", "/x?a"] {
        let first = get(path).of(&service).text().to_owned();
        assert_eq!(get(path).of(&service).text(), first, "{path}");
    }
    // An application may redirect these to the first, so that they must not share its key.
    for path in ["//x", "/./x", "/y/../x"] {
        let reply = get(path).of(&service);
        assert!(reply.text().ends_with(path), "{path} {}", reply.text());
        assert_eq!(reply.field("cache-status"), None, "{path}");
        assert_ne!(get(path).of(&service).text(), reply.text(), "{path}");
    }
    let listed = files(&folder).try_files(list).programs(programs);
    let site = Site::new("a").location(Location::files(everywhere(), listed));
    let service: Rc<dyn Service> = site.service();
    // Each of the paths that lead to one program has its own response.
    for path in ["/one", "/two?a", "/two?b"] {
        let reply = get(path).of(&service);
        assert!(reply.text().ends_with(path), "{path} {}", reply.text());
        assert_eq!(get(path).of(&service).text(), reply.text(), "{path}");
    }
}

#[test]
fn a_rewrite_that_depends_on_more_than_the_target_bypasses_the_cache() {
    let folder = folder();
    let cache = Cache::new(StoreSettings::default());
    let program = counting();
    let settings = CacheSettings {
        by_sent_target: true,
        ..CacheSettings::default()
    };
    let cached = CachedService::new(&cache, "a", settings, program.clone());
    let programs = Arc::new(CacheUnlessBypassed::new(cached, program));
    let rule = |from: &str, to: &str| RewriteRule::new(from, to, RewriteFlag::Break).unwrap();
    let is_there: FileCondition = "-f $document_root/$http_x_file".parse().unwrap();
    let site = Site::new("a").location(
        Location::files("/".parse().unwrap(), files(&folder).programs(programs)).settings(
            LocationSettings::new()
                .root(folder.path())
                .rewrite(rule("^/seen/(.*)", "/index.php/$1"))
                .rewrite(rule("^/told$", "/index.php/$http_x_name"))
                .rewrite(rule("^/tested$", "/index.php/there").when(is_there)),
        ),
    );
    let service: Rc<dyn Service> = site.service();
    let first = get("/seen/a").of(&service).text().to_owned();
    assert!(first.ends_with(" /index.php/a /seen/a"), "{first}");
    assert_eq!(get("/seen/a").of(&service).text(), first);
    for (path, field, value, seen) in [
        ("/told", "x-name", "one", "/index.php/one /told"),
        ("/told", "x-name", "two", "/index.php/two /told"),
        ("/tested", "x-file", "none", "/tested /tested"),
        ("/tested", "x-file", "a.txt", "/index.php/there /tested"),
        ("/tested", "x-file", "none", "/tested /tested"),
    ] {
        let reply = get(path).with(field, value).of(&service);
        assert!(
            reply.text().ends_with(seen),
            "{path} {value} {}",
            reply.text()
        );
    }
}
