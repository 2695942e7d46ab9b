//! More clients than PHP can serve: those that give up after a time, and those that wait.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::stack::Stack;
use crate::harness::{Apus, Home, connect, wait_until};

/// The number of PHP processes.
const PROCESSES: usize = 2;

/// A page that takes a tenth of a second, and leaves a byte in a file.
const SCRIPT: &str = "<?php
    usleep(100000);
    file_put_contents(__DIR__ . '/served', '.', FILE_APPEND);
    echo 'page';";

/// A server in front of PHP-FPM or resident workers, with a page that counts how often PHP has made it.
struct OverloadedSite {
    _stack: Option<Stack>,
    _home: Home,
    apus: Apus,
    served: std::path::PathBuf,
}

impl OverloadedSite {
    fn php_fpm(pool_size: usize) -> Self {
        let stack = Stack::php(PROCESSES);
        let script = stack.write("overload/index.php", SCRIPT);
        let served = stack.write("overload/served", "");
        open_to_all(&served);
        let root = script.parent().unwrap();
        let home = Home::new();
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"apus.sock\"\n\
                 [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{}\"\nphp_fastcgi = \"{}\"\n\
                 [sites.fastcgi]\npool_size = {pool_size}\n",
                root.display(),
                stack.socket().display()
            ),
        );
        let apus = home.serve(&[]);
        Self {
            _stack: Some(stack),
            _home: home,
            apus,
            served,
        }
    }

    fn resident() -> Self {
        let home = Home::new();
        fs::remove_file(home.path("site/index.html")).unwrap();
        home.write("site/index.php", SCRIPT);
        let served = home.write("site/served", "");
        open_to_all(&served);
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"apus.sock\"\n\
                 [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\nphp_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
                 [sites.fastcgi.workers]\nfolder = \"run\"\nmin = {PROCESSES}\nmax = {PROCESSES}\n"
            ),
        );
        let apus = home.serve(&[]);
        Self {
            _stack: None,
            _home: home,
            apus,
            served,
        }
    }

    /// How many pages PHP has made.
    fn pages(&self) -> usize {
        let file = fs::metadata(&self.served).unwrap();
        file.len().try_into().unwrap()
    }
}

/// PHP runs as another user.
fn open_to_all(file: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
}

/// Requests the page over a new connection, which is closed after the response or if there is none in time. Returns
/// whether there was one.
fn get_page(address: SocketAddr, patience: Duration) -> bool {
    let mut stream = connect(address);
    let until = Instant::now() + patience;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = Vec::new();
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return false;
        }
        stream.set_read_timeout(Some(rest)).unwrap();
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => response.extend_from_slice(&buffer[..read]),
            Err(_) => return false,
        }
    }
    let text = String::from_utf8_lossy(&response);
    assert!(
        text.starts_with("HTTP/1.1 200 ") && text.contains("page"),
        "{text}"
    );
    true
}

/// Ends the clients of a load, also after a failed assertion.
struct LoadEnd<'a>(&'a AtomicBool);

impl Drop for LoadEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients that request the page again and again. Returns how many pages each of them got while PHP made `pages`, after it
/// made `before`.
fn load(
    site: &OverloadedSite,
    clients: usize,
    patience: Duration,
    (before, pages): (usize, usize),
) -> Vec<usize> {
    let address = site.apus.address();
    let (is_counting, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts: Vec<AtomicUsize> = (0..clients).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for count in &counts {
            let (is_counting, is_over) = (&is_counting, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if get_page(address, patience) && is_counting.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let wait_for = |pages: usize| wait_until("PHP makes pages", || site.pages() >= pages);
        let _end = LoadEnd(&is_over);
        wait_for(before);
        is_counting.store(true, Ordering::Relaxed);
        wait_for(before + pages);
        is_counting.store(false, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

/// PHP makes about 20 pages per second, and 60 clients who wait for a second and a half request at least 40.
fn assert_that_clients_who_give_up_get_pages(site: &OverloadedSite) {
    let counts = load(site, 60, Duration::from_millis(1500), (100, 100));
    let responses: usize = counts.iter().sum();
    assert!(responses >= 50, "{responses} of 100 pages came in time");
}

#[test]
fn clients_who_give_up_get_the_pages_that_php_fpm_makes() {
    assert_that_clients_who_give_up_get_pages(&OverloadedSite::php_fpm(64));
}

/// These wait for one of the two requests that Apus sends at once, not for a process.
#[test]
fn clients_who_give_up_get_the_pages_of_a_small_pool() {
    assert_that_clients_who_give_up_get_pages(&OverloadedSite::php_fpm(PROCESSES));
}

#[test]
fn clients_who_give_up_get_the_pages_of_resident_workers() {
    assert_that_clients_who_give_up_get_pages(&OverloadedSite::resident());
}

#[test]
fn clients_who_wait_get_pages_in_turn() {
    for site in [
        OverloadedSite::php_fpm(64),
        OverloadedSite::php_fpm(PROCESSES),
        OverloadedSite::resident(),
    ] {
        let counts = load(&site, 20, Duration::from_secs(60), (40, 80));
        let (least, most) = (counts.iter().min(), counts.iter().max());
        // Four each.
        assert!(least >= Some(&2) && most <= Some(&6), "{counts:?}");
    }
}
