//! Resident PHP in a `php-cgi` that the binary starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Apus, Home, wait_until};

const APPLICATION: &str = r#"<?php
switch (strtok($_SERVER['REQUEST_URI'], '?')) {
    case '/events':
        header('X-Apus-Events: news');
        echo ": welcome\n\n";
        break;
    case '/publish':
        Apus\Channel::publish('news', $_GET['text']);
        echo 'published';
        break;
    case '/upload':
        echo strlen(file_get_contents('php://input'));
        break;
    case '/sleep':
        file_put_contents('php://stderr', 'asleep: ' . getmypid() . "\n");
        sleep(600);
        break;
    case '/complain':
        Apus\Log::warning('oh');
        break;
    default:
        header('X-Pid: ' . getmypid());
        echo 'VERSION ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'];
}
"#;

fn home(version: &str) -> Home {
    let home = Home::new();
    home.write("site/index.php", APPLICATION.replace("VERSION", version));
    home.write("site/style.css", "a {}");
    home.write(
        "apus.toml",
        "[[sites]]\nname = \"app\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
         php_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
         access_log = { path = \"access.log\", format = \"$request_id $request_uri\" }\n\
         [sites.fastcgi.workers]\nfolder = \"run\"\nmax = 2\n",
    );
    home
}

fn children(apus: &Apus) -> Vec<u32> {
    let tasks = format!("/proc/{}/task", apus.pid());
    let mut found = Vec::new();
    for task in std::fs::read_dir(tasks).unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().flat_map(str::parse::<u32>));
    }
    found
}

fn is_alive(pid: u32) -> bool {
    std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
        .is_ok_and(|line| !line.is_empty())
}

#[test]
fn an_application_is_served_from_memory_reloaded_and_shown_in_the_status() {
    let home = home("one");
    let apus = home.serve(&[]);
    let reply = apus.get("/some/page?x=1");
    assert_eq!(
        (reply.status, &*reply.body),
        (200, "one GET /some/page?x=1")
    );
    assert_eq!(apus.get("/style.css").body, "a {}");
    home.write("site/index.php", APPLICATION.replace("VERSION", "two"));
    home.expect(&["reload"], 0);
    assert_eq!(apus.get("/").body, "two GET /");
    let (status, _) = home.expect(&["status"], 0);
    assert!(status.contains("\nphp app: "), "{status}");
    let (metrics, _) = home.expect(&["status", "--metrics"], 0);
    assert!(
        metrics.contains("apus_php_requests_total{pool=\"app\"} 2\n"),
        "{metrics}"
    );
    let (json, _) = home.expect(&["status", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pool = &json["php"][0];
    assert_eq!(
        (&pool["requests"], &pool["reloads"]),
        (&2.into(), &1.into())
    );
    let workers = pool["workers"].as_array().unwrap();
    assert!(
        workers
            .iter()
            .any(|one| one["memory_bytes"].as_u64() > Some(0))
    );
}

#[test]
fn warnings_of_an_application_are_logged_with_their_request() {
    let home = home("one");
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/complain").status, 200);
    let request_id = || {
        let log = home.read("access.log");
        let line = log.lines().find_map(|line| line.strip_suffix(" /complain"));
        line.map(str::to_owned)
    };
    wait_until("the request is in the access log", || {
        request_id().is_some()
    });
    let request_id = request_id().unwrap();
    assert_eq!(request_id.len(), 32, "{request_id}");
    wait_until("the warning is logged with its request", || {
        let log = apus.log();
        let mut lines = log.lines().filter(|line| line.contains("oh"));
        lines.any(|line| line.contains("/complain") && line.contains(&request_id))
    });
}

#[test]
fn a_reload_to_an_application_that_does_not_start_is_logged_and_changes_nothing() {
    let home = home("one");
    home.write("apus.toml", home.read("apus.toml") + "mode = \"worker\"\n");
    let loop_of = |text: &str| {
        format!("<?php while (frankenphp_handle_request(function () {{ echo '{text}'; }})) {{}}")
    };
    home.write("site/index.php", loop_of("old"));
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/").body, "old");
    home.write("site/index.php", "<?php throw new Exception('not yet');");
    home.expect(&["reload"], 0);
    wait_until("the reason is logged", || apus.log().contains("not yet"));
    assert_eq!(apus.get("/").body, "old");
    home.write("site/index.php", loop_of("new"));
    home.expect(&["reload"], 0);
    assert_eq!(apus.get("/").body, "new");
}

#[test]
fn events_continue_while_other_requests_are_handled() {
    let home = home("one");
    let apus = home.serve(&[]);
    let mut stream = apus.connect();
    stream
        .write_all(b"GET /events HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut until = |wanted: &str| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            if line.trim_end() == wanted {
                return;
            }
        }
        panic!("no `{wanted}`");
    };
    until("content-type: text/event-stream");
    until(": welcome");
    for number in 0..3 {
        let target = format!("/publish?text=event-{number}");
        assert_eq!(apus.get(&target).body, "published");
        until(&format!("data: event-{number}"));
    }
}

#[test]
fn no_php_process_survives_a_server_that_is_killed_or_stopped() {
    for signal in [Signal::KILL, Signal::TERM] {
        let home = home("one");
        let mut apus = home.serve(&[]);
        let head = apus.get("/").head;
        let field = head.lines().find_map(|line| line.strip_prefix("x-pid: "));
        let pid: u32 = field.unwrap().parse().unwrap();
        let masters = children(&apus);
        assert!(!masters.is_empty() && masters.iter().all(|pid| is_alive(*pid)));
        apus.signal(signal);
        apus.wait();
        wait_until("PHP is gone", || {
            !is_alive(pid) && masters.iter().all(|pid| !is_alive(*pid))
        });
    }
}

/// The process of the worker that responds.
fn worker(apus: &Apus) -> u32 {
    let head = apus.get("/").head;
    let field = head.lines().find_map(|line| line.strip_prefix("x-pid: "));
    field.unwrap().parse().unwrap()
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn php_that_executes_a_request_ends_with_a_server_that_is_killed() {
    let home = home("one");
    let mut apus = home.serve(&[]);
    let mut busy = apus.connect();
    busy.write_all(b"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let log = apus.wait_for_log("asleep: ");
    let pid = log.split("asleep: ").nth(1).unwrap();
    let pid: u32 = pid.split('"').next().unwrap().parse().unwrap();
    assert!(is_alive(pid));
    apus.signal(Signal::KILL);
    apus.wait();
    wait_until("PHP is gone", || !is_alive(pid));
}

#[test]
fn children_of_a_php_cgi_master_that_was_killed_end_with_it_and_others_take_their_place() {
    let home = home("one");
    let apus = home.serve(&[]);
    let old = worker(&apus);
    kill(master_of(old));
    wait_until("the children are gone", || !is_alive(old));
    wait_until("others serve", || apus.get("/").status == 200);
    assert_ne!(worker(&apus), old);
}

#[test]
fn a_start_ends_php_whose_master_guard_and_server_were_killed() {
    let home = home("one");
    let mut apus = home.serve(&[]);
    let old = worker(&apus);
    // The server cannot see that the master ends, nor the shell that guards its children.
    apus.signal(Signal::STOP);
    for child in children(&apus) {
        kill(child);
    }
    apus.signal(Signal::KILL);
    apus.wait();
    assert!(is_alive(old));
    let apus = home.serve(&[]);
    wait_until("the orphan is gone", || !is_alive(old));
    assert_eq!(apus.get("/").status, 200);
}

/// The master of a child of php-cgi.
fn master_of(child: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

const CHAT: &str = r#"<?php
use Apus\{App, Channel, Request, Response, Socket};

$app = new App();
$app->get('/', fn (Request $request) => Response::text('home'));
$app->socket(
    '/chat/{room}',
    open: function (Request $request, Socket $socket, string $room) {
        if ($room === 'closed') {
            return Response::text('no', 403);
        }
        $socket->join($room);
        $socket->keep(['room' => $room]);
        $socket->send("welcome to $room");
    },
    message: function (Socket $socket, string $message, string $room) {
        if ($message === 'bye') {
            $socket->close(4001, 'as you wish');
        } else {
            Channel::publish($room, $message);
        }
    },
    close: function (Socket $socket, int $code, string $room) {
        Channel::publish($socket->kept()['room'], "left with $code");
    },
);
$app->run();
"#;

/// A WebSocket client (RFC 6455).
struct Client(BufReader<TcpStream>);

impl Client {
    /// Opens a WebSocket; otherwise the status of the refusal.
    fn open(apus: &Apus, path: &str) -> Result<Self, u16> {
        Self::open_with(apus, path, "")
    }

    /// The same with more field lines.
    fn open_with(apus: &Apus, path: &str, fields: &str) -> Result<Self, u16> {
        let mut stream = apus.connect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{fields}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 101 {
            return Err(status);
        }
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Ok(Self(reader))
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        // Masked with zeros.
        frame.extend_from_slice(payload);
        self.0.get_mut().write_all(&frame).unwrap();
    }

    /// The next frame other than a ping: its opcode and payload.
    fn next(&mut self) -> (u8, String) {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            assert!(head[1] < 126);
            let mut payload = vec![0; head[1].into()];
            self.0.read_exact(&mut payload).unwrap();
            let opcode = head[0] & 0x0f;
            if opcode != 9 {
                let skip = if opcode == 8 { 2 } else { 0 };
                let text = String::from_utf8(payload.split_off(skip)).unwrap();
                let code = payload
                    .iter()
                    .fold(0_u16, |code, byte| code << 8 | u16::from(*byte));
                return (
                    opcode,
                    if skip > 0 {
                        format!("{code} {text}")
                    } else {
                        text
                    },
                );
            }
        }
    }
}

#[test]
fn websockets_in_the_same_room_get_the_same_messages() {
    let home = home("one");
    home.write("site/index.php", CHAT);
    home.write("apus.toml", home.read("apus.toml") + "mode = \"native\"\n");
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/").body, "home");
    assert_eq!(Client::open(&apus, "/chat/closed").err(), Some(403));
    let text = |text: &str| (1, text.to_owned());
    let [mut one, mut two] = [(), ()].map(|()| Client::open(&apus, "/chat/lobby").ok().unwrap());
    let mut other = Client::open(&apus, "/chat/other").ok().unwrap();
    for client in [&mut one, &mut two] {
        assert_eq!(client.next(), text("welcome to lobby"));
    }
    assert_eq!(other.next(), text("welcome to other"));
    for number in 0..20 {
        let message = format!("message {number}");
        one.send(1, message.as_bytes());
        for client in [&mut one, &mut two] {
            assert_eq!(client.next(), text(&message));
        }
    }
    two.send(1, b"bye");
    assert_eq!(two.next(), (8, "4001 as you wish".to_owned()));
    two.send(8, &[0x0f, 0xa1]);
    assert_eq!(one.next(), text("left with 4001"));
    drop(one);
    // The server still responds, and sends a close frame to the remaining client when it stops.
    assert_eq!(apus.get("/").body, "home");
    let (status, _) = home.expect(&["status", "--json"], 0);
    assert!(status.contains("\"sockets\""), "{status}");
    home.expect(&["stop"], 0);
    assert_eq!(other.next().0, 8);
}

#[test]
fn ws_open_does_not_run_with_the_cookies_of_a_victim_of_another_site() {
    let home = home("one");
    let script = r#"<?php
        $app = new Apus\App();
        $app->socket(
            '/feed',
            open: function (Apus\Request $request, Apus\Socket $socket) {
                file_put_contents(__DIR__ . '/opened', $request->cookie('who') . "\n", FILE_APPEND);
            },
            message: fn () => null,
        );
        $app->run();
    "#;
    home.write("site/index.php", script);
    home.write("apus.toml", home.read("apus.toml") + "mode = \"native\"\n");
    let apus = home.serve(&[]);
    // The pool learns from this request that the application takes sockets.
    assert_eq!(apus.get("/").status, 404);
    let open = |fields: &str| Client::open_with(&apus, "/feed", fields);
    for origin in [
        "http://evil.test",
        "https://evil.test",
        "null",
        "http://a.evil.test",
        "http://a:81",
    ] {
        let fields = format!("origin: {origin}\r\ncookie: who=victim\r\n");
        assert_eq!(open(&fields).err(), Some(403), "{origin}");
    }
    assert_eq!(home.read("site/opened"), "");
    assert!(open("origin: http://a\r\ncookie: who=visitor\r\n").is_ok());
    assert_eq!(home.read("site/opened"), "visitor\n");
}
