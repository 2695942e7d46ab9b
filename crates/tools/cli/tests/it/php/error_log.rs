//! The error log of resident PHP: each message is logged at once, with its request.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::program;
use crate::harness::{Apus, Home, Reply, address_of, connect, free_port, get, is_root, wait_until};

const HANDLER: &str = r#"
function respond(): void {
    switch ($_GET['do']) {
        case 'log':
            error_log('log one');
            error_log('log two');
            echo $undefined_in_log;
            break;
        case 'wait':
            error_log('wait begins');
            while (!file_exists($_GET['file'])) {
                usleep(1000);
                clearstatcache();
            }
            break;
        case 'stream':
            echo str_repeat('x', 300000);
            flush();
            error_log('stream ends');
            break;
        case 'throw':
            throw new Exception("throw one\nthrow two");
        case 'fatal':
            error_log('fatal begins');
            new class implements Iterator {};
        case 'kill':
            error_log('kill begins');
            posix_kill(getmypid(), 9);
            sleep(60);
        case 'long':
            error_log(str_repeat('y', 200000) . ' end');
            break;
        case 'finish':
            frankenphp_finish_request();
            error_log('finish ends');
            break;
    }
}
"#;

/// The actions, the number of lines that each logs (more if the request is repeated), and the last of them.
const ACTIONS: [(&str, usize, &str); 7] = [
    ("log", 3, "undefined_in_log"),
    ("stream", 1, "stream ends"),
    ("finish", 1, "finish ends"),
    ("throw", 1, "throw two"),
    ("fatal", 2, "abstract methods"),
    ("kill", 1, "kill begins"),
    ("long", 1, "yyyyyyyy end"),
];

/// PHP-FPM as Debian configures it, without a file for the error log.
struct PhpFpm {
    child: Child,
    home: Home,
}

impl PhpFpm {
    fn start() -> Self {
        let home = Home::new();
        let folder = home.path("");
        let folder = folder.display();
        let mut text = format!(
            "[global]\nerror_log = {folder}/fpm.log\n[www]\nlisten = {folder}/fpm.sock\n\
             listen.mode = 0666\npm = static\npm.max_children = 8\n"
        );
        if is_root() {
            text += "user = www-data\n";
        }
        let file = home.write("fpm.conf", text);
        let child = program("/usr/sbin/php-fpm8.2")
            .args(["--nodaemonize", "--fpm-config"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("PHP-FPM listens", || home.path("fpm.sock").exists());
        Self { child, home }
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A server with the same application in modes `worker` and `classic`.
fn serve(home: &Home, php: &Path) -> Apus {
    let handler = |rest: &str| format!("<?php {HANDLER}\n{rest}");
    for mode in ["worker", "classic"] {
        fs::create_dir_all(home.path(mode)).unwrap();
    }
    let script = handler("while (frankenphp_handle_request(respond(...))) {}");
    home.write("worker/index.php", script);
    home.write("classic/handler.php", handler(""));
    let script = "<?php require_once __DIR__ . '/handler.php'; respond();";
    home.write("classic/index.php", script);
    let site = |mode: &str| {
        format!(
            "[[sites]]\nname = \"{mode}\"\nlisten = \"127.0.0.1:{}\"\nroot = \"{mode}\"\n\
             php_fastcgi = \"{}\"\n\
             access_log = {{ path = \"{mode}.log\", format = \"$request_id $request_uri\" }}\n\
             fastcgi = {{ front_controller = \"/index.php\", \
             workers = {{ mode = \"{mode}\", folder = \"run\", max = 2 }} }}\n",
            free_port(),
            php.display()
        )
    };
    home.write("apus.toml", site("worker") + &site("classic"));
    home.serve(&[])
}

/// The lines of the log with the request of an action.
fn lines(apus: &Apus, target: &str) -> Vec<serde_json::Value> {
    let log = apus.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &serde_json::Value| line["path"] == target)
        .collect()
}

fn assert_messages_are_logged_at_once(php: &Path) {
    let home = Home::new();
    let apus = serve(&home, php);
    for (mode, url) in ["worker", "classic"].iter().zip(apus.urls()) {
        let address = address_of(url);
        for (action, count, last) in ACTIONS {
            let target = format!("/?do={action}&of={mode}");
            let _ = get(address, &target);
            let mut found = Vec::new();
            wait_until(&format!("{target} is logged"), || {
                found = lines(&apus, &target);
                found
                    .iter()
                    .any(|line| line["message"].as_str().unwrap().contains(last))
            });
            assert!(found.len() >= count, "{target}: {found:?}");
            let is_of_request =
                |line: &serde_json::Value| line["request_id"].as_str().unwrap().len() == 32;
            assert!(found.iter().all(is_of_request), "{target}: {found:?}");
        }
        let file = home.path(&format!("{mode}.file"));
        let target = format!("/?do=wait&of={mode}&file={}", file.display());
        let mut waiting = connect(address);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        waiting.write_all(request.as_bytes()).unwrap();
        wait_until("the message is logged while the request runs", || {
            !lines(&apus, &target).is_empty()
        });
        fs::write(&file, "").unwrap();
        assert_eq!(Reply::read(waiting).status, 200);
    }
}

#[test]
fn each_message_of_phps_error_log_is_a_line_at_once_with_its_request() {
    assert_messages_are_logged_at_once(Path::new("/usr/bin/php-cgi8.2"));
    let fpm = PhpFpm::start();
    assert_messages_are_logged_at_once(&fpm.home.path("fpm.sock"));
}
