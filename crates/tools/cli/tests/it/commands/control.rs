//! `apus reload`, `stop` and `status`, and the equivalent signals.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::harness::{Ends, Home, free_port, is_open, wait_until};

fn config(port: u16, text: &str) -> String {
    format!(
        "[[sites]]\nlisten = [\"127.0.0.1:{port}\"]\n[sites.return]\nstatus = 200\ntext = \"{text}\"\n"
    )
}

#[test]
fn a_reload_returns_when_the_new_configuration_is_live() {
    let home = Home::new();
    let (first, second) = (free_port(), free_port());
    home.write("apus.toml", config(first, "old"));
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/").body, "old");
    // A connection from before the reload stays open and gets the new plan.
    let mut connection = apus.connect();
    connection
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut head = [0; 15];
    connection.read_exact(&mut head).unwrap();

    home.write(
        "apus.toml",
        config(first, "new")
            + &config(second, "second").replace("sites]]", "sites]]\nserver_name = \"b\""),
    );
    let (out, _) = home.expect(&["reload"], 0);
    assert_eq!(
        out,
        "site site-1 changed: handler\nsite b added\nreloaded\n"
    );
    assert_eq!(apus.get("/").body, "new");
    assert_eq!(
        crate::harness::get(([127, 0, 0, 1], second).into(), "/").body,
        "second"
    );
    connection
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut rest = String::new();
    connection.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("new"), "{rest}");

    home.write("apus.toml", config(first, "third"));
    apus.signal(Signal::HUP);
    wait_until("SIGHUP has reloaded", || apus.get("/").body == "third");
    wait_until("the old address is closed", || {
        !is_open(([127, 0, 0, 1], second).into())
    });
}

#[test]
fn a_file_with_mistakes_leaves_the_old_plan_live_and_is_reported() {
    let home = Home::new();
    home.write("apus.toml", config(free_port(), "old"));
    let apus = home.serve(&[]);
    home.write(
        "apus.toml",
        "[[sites]]\nlisten = [\"nowhere\"]\nroots = 1\n",
    );
    let (_, errors) = home.expect(&["reload"], 1);
    assert!(
        errors.contains("apus.toml:2:") && errors.contains("apus.toml:3:1"),
        "{errors}"
    );
    let (json, _) = home.expect(&["reload", "--json"], 1);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        json["error"].as_str().unwrap().contains("nowhere"),
        "{json}"
    );
    assert_eq!(apus.get("/").body, "old");
    let (status, _) = home.expect(&["status"], 0);
    assert!(
        status.contains("last reload") && status.contains("nowhere"),
        "{status}"
    );
    apus.wait_for_log("the reload failed");
    // `stop` works with a file that has mistakes.
    home.expect(&["stop"], 0);
}

#[test]
fn a_reload_says_what_changed() {
    let home = Home::new();
    let (port, other) = (free_port(), free_port());
    let site = format!(
        "[[sites]]\nname = \"shop\"\nlisten = [\"127.0.0.1:{port}\"]\nroot = \"site\"\n\
         [[sites.locations]]\npath = \"/a/\"\nreturn = {{ status = 404 }}\n"
    );
    home.write("apus.toml", &site);
    let apus = home.serve(&[]);
    let reload = |text: String| {
        home.write("apus.toml", text);
        home.expect(&["reload"], 0).0
    };
    // Lines that move change nothing.
    let out = reload(format!("# A comment\n\n{site}"));
    assert_eq!(out, "nothing has changed\nreloaded\n");
    apus.wait_for_log("\"changes\":\"none\"");
    let out = reload(format!(
        "[global]\nkeepalive_timeout = 30\nworker_threads = 3\n{}",
        site.replace("404", "410").replace(
            &format!("\"127.0.0.1:{port}\""),
            &format!("\"127.0.0.1:{port}\", \"127.0.0.1:{other}\"")
        )
    ));
    assert_eq!(
        out,
        format!(
            "a new number of workers needs a restart\n`worker_threads` of [global] changed\n\
             `keepalive_timeout` of [global] changed\n\
             site shop changed: listener 127.0.0.1:{other} added, location /a/\nreloaded\n"
        )
    );
    let groups =
        "upstream = \"app\"\n[[sites.upstreams]]\nname = \"app\"\nnodes = \"127.0.0.1:1\"\n";
    let proxy = format!("[[sites]]\nname = \"api\"\nlisten = [\"127.0.0.1:{port}\"]\n{groups}");
    let out = reload(proxy.clone());
    assert_eq!(
        out,
        "`worker_threads` of [global] changed\n`keepalive_timeout` of [global] changed\n\
         site shop removed\nsite api added\nupstream group api/app added\nreloaded\n"
    );
    let out = reload(proxy.replace("127.0.0.1:1\"", "127.0.0.1:2\""));
    assert_eq!(out, "upstream group api/app changed\nreloaded\n");
}

#[test]
fn an_address_that_cannot_be_bound_leaves_the_old_plan_live() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    home.write("apus.toml", config(port, "old"));
    let apus = home.serve(&[]);
    let taken_port = taken.local_addr().unwrap().port();
    home.write("apus.toml", config(taken_port, "new"));
    let (_, errors) = home.expect(&["reload"], 1);
    assert!(errors.contains(&taken_port.to_string()), "{errors}");
    assert_eq!(apus.get("/").body, "old");
}

#[test]
fn stop_returns_when_the_server_has_exited() {
    let home = Home::new();
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let address = apus.address();
    let (out, _) = home.expect(&["stop", "site"], 0);
    assert_eq!(out, "stopped\n");
    assert!(!is_open(address));
    assert!(apus.wait().success());
    let (_, errors) = home.expect(&["stop", "site"], 1);
    assert!(errors.contains("no server is running"), "{errors}");
}

#[test]
fn status_counts_requests() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    for _ in 0..3 {
        assert_eq!(apus.get("/").status, 200);
    }
    let (json, _) = home.expect(&["status", "site", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["totals"]["requests"], 3, "{json}");
    assert_eq!(status["pid"], apus.pid());
    assert_eq!(status["listening"][0], apus.address().to_string());
    let (text, _) = home.expect(&["status", "site"], 0);
    assert!(text.contains("requests"), "{text}");
}

#[test]
fn a_second_server_for_the_same_source_is_refused() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let (_, errors) = home.expect(&["serve", "site", "--listen", "127.0.0.1:0"], 1);
    assert!(errors.contains("already running"), "{errors}");
    assert_eq!(apus.get("/").status, 200);
}

#[test]
fn servers_of_a_folder_at_different_addresses_have_control_sockets_of_their_own() {
    let home = Home::new();
    let address = || format!("127.0.0.1:{}", free_port());
    let mut first = home.serve(&["site", "--listen", &address()]);
    let mut second = home.serve(&["site", "--listen", &address()]);
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    let of_folder = || {
        let (json, _) = home.expect(&["status", "site", "--json"], 0);
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["pid"].clone()
    };
    assert_eq!(of_folder(), first.pid());
    // The log of the other one names its socket.
    let log = second.wait_for_log("\"socket\":\"");
    let (_, socket) = log.split_once("\"socket\":\"").expect(&log);
    let (socket, _) = socket.split_once('"').expect(&log);
    home.expect(&["stop", "--socket", socket], 0);
    assert!(second.wait().success());
    assert_eq!(of_folder(), first.pid());
    home.expect(&["stop", "site"], 0);
    assert!(first.wait().success());
}

#[test]
fn a_server_that_was_killed_does_not_prevent_the_next_start() {
    let home = Home::new();
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    apus.signal(Signal::KILL);
    apus.wait();
    let (_, errors) = home.expect(&["status", "site"], 1);
    assert!(errors.contains("no server is running"), "{errors}");
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    assert_eq!(apus.get("/").status, 200);
}

#[test]
fn the_control_socket_has_the_configured_path_and_is_private() {
    let home = Home::new();
    let socket = "[global]\ncontrol_socket = \"own.sock\"\n";
    home.write("apus.toml", format!("{socket}{}", config(free_port(), "x")));
    let _apus = home.serve(&[]);
    let mode = std::fs::metadata(home.path("own.sock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // The socket is found even if the file has mistakes.
    home.write("apus.toml", format!("{socket}mistake = 1\n"));
    home.expect(&["stop"], 0);
    assert!(!home.path("own.sock").exists());
}

#[test]
fn a_server_with_a_configured_socket_is_found_when_the_file_cannot_be_parsed() {
    let home = Home::new();
    let good = format!(
        "[global]\ncontrol_socket = \"own.sock\"\n{}",
        config(free_port(), "x")
    );
    home.write("apus.toml", &good);
    let apus = home.serve(&[]);
    home.write("apus.toml", good.replace("[[sites]]", "[[sites]"));
    let (status, _) = home.expect(&["status"], 0);
    assert!(status.contains("apus.toml"), "{status}");
    let (_, errors) = home.expect(&["reload"], 1);
    assert!(errors.contains("apus.toml:3:"), "{errors}");
    assert_eq!(apus.get("/").body, "x");
    // A changed socket in the file does not hide the one that is in use.
    home.write("apus.toml", good.replace("own.sock", "other.sock"));
    let (out, _) = home.expect(&["reload"], 0);
    assert!(
        out.contains("a new control socket needs a restart"),
        "{out}"
    );
    home.write("apus.toml", good.replace("[[sites]]", "[[sites]"));
    home.expect(&["stop"], 0);
    // Without a server, the mistake is reported, because it may be the reason.
    let (_, errors) = home.expect(&["status"], 1);
    assert!(
        errors.contains("no server is running") && errors.contains("apus.toml:3:"),
        "{errors}"
    );
}

#[test]
fn each_warning_of_a_reload_is_on_its_own_line() {
    let home = Home::new();
    let port = free_port();
    home.write("apus.toml", config(port, "x"));
    let _apus = home.serve(&[]);
    // The unused cache and the changed number of workers each cause a warning.
    home.write(
        "apus.toml",
        format!(
            "[global]\nworker_threads = 7\n[global.cache]\nmemory_size = 10\n{}",
            config(port, "x")
        ),
    );
    let (out, _) = home.expect(&["reload"], 0);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.last(), Some(&"reloaded"), "{out}");
    assert!(lines.contains(&"1 warning"), "{out}");
    assert!(
        lines.contains(&"a new number of workers needs a restart"),
        "{out}"
    );
}

#[test]
fn signals_without_a_meaning_do_not_end_the_server() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let ignored = [
        (Signal::USR2, Some("SIGUSR2")),
        (Signal::ALARM, Some("SIGALRM")),
        (Signal::VTALARM, Some("SIGVTALRM")),
        (Signal::PROF, Some("SIGPROF")),
        (Signal::IO, Some("SIGIO")),
        (Signal::XFSZ, Some("SIGXFSZ")),
        (Signal::WINCH, None),
        (Signal::PIPE, None),
    ];
    for (signal, name) in ignored {
        apus.signal(signal);
        if let Some(name) = name {
            wait_until("it is logged", || apus.log().contains(name));
        }
        assert_eq!(apus.get("/").status, 200, "{signal:?}");
    }
    apus.signal(Signal::USR1);
    wait_until("logs are reopened", || apus.log().contains("reopened"));
    apus.signal(Signal::HUP);
    wait_until("SIGHUP reloads", || apus.log().contains("\"reloaded\""));
    assert_eq!(apus.get("/").status, 200);
}

#[test]
fn sigquit_completes_open_requests() {
    let home = Home::new();
    home.write("site/page", "x".repeat(1_000_000));
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let mut open = apus.connect();
    open.write_all(b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut begun = [0; 1];
    open.read_exact(&mut begun).unwrap();
    apus.signal(Signal::QUIT);
    let address = apus.address();
    wait_until("new connections are refused", || !is_open(address));
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 1_000_000);
    assert!(apus.wait().success());
}

#[test]
fn an_address_in_use_keeps_the_old_plan_and_is_reported_with_its_position() {
    let home = Home::new();
    home.write("apus.toml", config(free_port(), "old"));
    let apus = home.serve(&[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    home.write(
        "apus.toml",
        config(taken.local_addr().unwrap().port(), "new"),
    );
    let (_, errors) = home.expect(&["reload"], 1);
    assert!(errors.contains("apus.toml:2:11"), "{errors}");
    let (json, _) = home.expect(&["reload", "--json"], 1);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["details"][0]["line"], 2, "{json}");
    assert_eq!(apus.get("/").body, "old");
}

#[test]
fn a_reload_follows_a_symbolic_link_that_was_changed() {
    let home = Home::new();
    for (release, port) in [("one", free_port()), ("two", free_port())] {
        std::fs::create_dir(home.path(release)).unwrap();
        home.write(&format!("{release}/apus.toml"), config(port, release));
    }
    let link = |release: &str| {
        std::os::unix::fs::symlink(release, home.path("next")).unwrap();
        std::fs::rename(home.path("next"), home.path("current")).unwrap();
    };
    link("one");
    let apus = home.serve(&["current/apus.toml"]);
    assert_eq!(apus.get("/").body, "one");
    link("two");
    home.expect(&["reload", "current/apus.toml"], 0);
    let (json, _) = home.expect(&["status", "current/apus.toml", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    let address = status["listening"][0].as_str().unwrap().parse().unwrap();
    assert_eq!(crate::harness::get(address, "/").body, "two");
}

#[test]
fn reloads_refuse_and_truncate_no_request() {
    let home = Home::new();
    home.write("site/page", "x".repeat(100_000));
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nroot = \"site\"\nlisten = [\"127.0.0.1:{}\"]\n",
            free_port()
        ),
    );
    let apus = home.serve(&[]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut responses = 0;
                    while !done.load(Ordering::Relaxed) {
                        let reply = apus.get("/page");
                        assert_eq!((reply.status, reply.body.len()), (200, 100_000));
                        responses += 1;
                    }
                    responses
                })
            })
            .collect();
        let ends = Ends(&done);
        for _ in 0..15 {
            home.expect(&["reload"], 0);
        }
        drop(ends);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
}
