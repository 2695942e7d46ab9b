//! `apus top` on a terminal of its own.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::harness::{Home, free_port, get, wait_until};

/// `apus top` behind a pseudo-terminal, which `script` makes.
struct TopCommand {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl TopCommand {
    fn start(home: &Home) -> Self {
        let apus = env!("CARGO_BIN_EXE_apus");
        let command = format!("stty cols 140 rows 30; exec '{apus}' top --socket control.sock");
        let mut child = Command::new("script")
            .args(["-qfec", &command, "/dev/null"])
            .current_dir(home.path(""))
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                written.lock().unwrap().push_str(&text);
            }
        });
        Self { child, keys, shown }
    }

    /// Waits until the terminal has got a text, and forgets all that it got until then. Only what changes on the screen is written.
    fn wait_for(&self, text: &str) {
        wait_until(&format!("the terminal shows {text}"), || {
            let mut shown = self.shown.lock().unwrap();
            let found = without_sequences(&shown).contains(text);
            if found {
                shown.clear();
            }
            found
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }
}

impl Drop for TopCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The characters without the sequences that move the cursor and colour them.
fn without_sequences(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|character: char| character.is_ascii_alphabetic());
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

#[test]
fn an_operator_looks_and_acts_on_a_terminal() {
    let home = Home::new();
    let [site, node] = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            "[global]\ncontrol_socket = \"control.sock\"\n[global.cache]\nmemory_size = 16\n\
             [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n\
             [[sites.upstreams]]\nname = \"app\"\nnodes = [\"127.0.0.1:{node}\"]\n\
             [[sites.locations]]\npath = \"/api/\"\nupstream = \"app\"\ncache = true\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let mut top = TopCommand::start(&home);
    top.wait_for("no requests yet");
    for _ in 0..3 {
        assert_eq!(get(apus.address(), "/").status, 200);
    }
    top.wait_for("shop");
    top.press("p");
    top.wait_for("Purge all stored responses of the site shop?");
    top.press("y");
    top.wait_for("done: 0 responses");

    top.press("4");
    top.wait_for(&format!("127.0.0.1:{node}"));
    top.press("d");
    top.wait_for("Drain");
    top.press("n");
    top.wait_for("nothing was done");
    let is_drained = || home.expect(&["status"], 0).0.contains("drain");
    assert!(!is_drained());
    top.press("d");
    top.wait_for("Drain");
    top.press("y");
    top.wait_for("drains");
    assert!(is_drained());

    // Nobody bans this machine by mistake.
    top.press("2");
    top.wait_for("127.0.0.1");
    top.press("b");
    top.wait_for("Ban 127.0.0.1 for an hour");
    top.press("y");
    top.wait_for("failed: ");
    home.expect(&["ban", "add", "203.0.113.9", "--reason", "scans"], 0);
    top.press("5");
    top.wait_for("203.0.113.9");
    top.press("r");
    top.wait_for("Remove the ban of 203.0.113.9?");
    top.press("y");
    top.wait_for("nobody is banned");
    let (bans, _) = home.expect(&["ban", "list"], 0);
    assert!(!bans.contains("203.0.113.9"), "{bans}");

    top.press("q");
    let status = wait_until("the command ends", || top.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    // The terminal has its former screen again.
    wait_until("the screen is given back", || {
        top.shown.lock().unwrap().contains("\x1b[?1049l")
    });
}

#[test]
fn without_a_terminal_it_says_what_prints_the_same() {
    let home = Home::new();
    let (_, error) = home.expect(&["top"], 1);
    assert!(error.contains("apus status --top"), "{error}");
}
