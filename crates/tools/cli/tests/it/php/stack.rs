//! PHP-FPM, MariaDB and the applications of Debian's packages, which `tests/origins/php/stack` runs
//! in a separate folder and ends with the process of the tests.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use apus_testkit::{ReadyProcess, process_folder};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::source;
use crate::harness::wait_until;

/// A running PHP-FPM with its applications and its database.
pub(crate) struct Stack {
    _process: ReadyProcess,
    folder: PathBuf,
}

impl Stack {
    /// A stack with MariaDB and every application. All tests share it, since it takes seconds to start.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Stack> = OnceLock::new();
        let parts = [
            "database",
            "wordpress",
            "dokuwiki",
            "phpmyadmin",
            "frameworks",
        ];
        SHARED.get_or_init(|| Self::start(4, &parts))
    }

    /// PHP-FPM alone, for tests that do not disturb it; each has a separate folder there.
    pub(crate) fn scripts() -> &'static Self {
        static SCRIPTS: OnceLock<Stack> = OnceLock::new();
        SCRIPTS.get_or_init(|| Self::php(3))
    }

    /// PHP-FPM alone, with this number of children.
    pub(crate) fn php(children: usize) -> Self {
        Self::start(children, &["scripts"])
    }

    /// PHP-FPM with this number of children, and small applications that can be resident.
    pub(crate) fn resident(children: usize) -> Self {
        Self::start(children, &["scripts", "frameworks"])
    }

    /// PHP-FPM with this number of children, MariaDB and `examples/rabbit`.
    pub(crate) fn rabbit(children: usize) -> Self {
        Self::start(children, &["database", "rabbit"])
    }

    fn start(children: usize, parts: &[&str]) -> Self {
        let folder = process_folder();
        let mut command = Command::new(source("stack"));
        command.arg(&folder).arg(children.to_string()).args(parts);
        Self {
            _process: ReadyProcess::start(&mut command),
            folder,
        }
    }

    /// The path of a file or folder of the stack.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The socket on which PHP-FPM listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("fpm.sock")
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The processes that run scripts.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        let master = self.master().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.filter_map(Pid::from_raw).collect()
    }

    /// The process that starts the others.
    pub(crate) fn master(&self) -> Pid {
        let mut master = None;
        // A restart rewrites the file.
        wait_until("PHP-FPM has written its process id", || {
            let pid = fs::read_to_string(self.path("fpm.pid")).unwrap_or_default();
            master = pid.trim().parse().ok().and_then(Pid::from_raw);
            master.is_some()
        });
        master.unwrap()
    }

    /// Restarts PHP-FPM gracefully: its children finish their requests, and a new master replaces it. The
    /// master handles no signal until it has logged that it is ready.
    pub(crate) fn restart_php(&self) {
        let starts = || {
            self.php_log()
                .matches("ready to handle connections")
                .count()
        };
        let (before, count) = (self.workers(), starts());
        kill_process(self.master(), Signal::USR2).unwrap();
        wait_until("PHP-FPM has restarted", || {
            let now = self.workers();
            starts() > count && !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
        });
    }

    fn php_log(&self) -> String {
        fs::read_to_string(self.path("fpm.log")).unwrap_or_default()
    }

    /// The access log of PHP so far: one line per request with process, method and target.
    pub(crate) fn access_log(&self) -> String {
        fs::read_to_string(self.path("access.log")).unwrap_or_default()
    }
}

/// Whether a process runs: not when it has ended and waits for its parent, or the system, to look at its status.
fn runs(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[test]
fn nothing_of_the_stack_is_left_whatever_ends_its_script() {
    let bench = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bench/php/stack");
    for script in [source("stack"), PathBuf::from(bench)] {
        for (signal, is_group) in [
            (Signal::TERM, false),
            (Signal::TERM, true),
            (Signal::KILL, false),
        ] {
            let folder = process_folder();
            let mut child = Command::new(&script)
                .arg(&folder)
                .args(["2", "scripts"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            let log = folder.join("fpm.log");
            wait_until("PHP-FPM is ready", || {
                fs::read_to_string(&log)
                    .is_ok_and(|log| log.contains("ready to handle connections"))
            });
            let master = fs::read_to_string(folder.join("fpm.pid")).unwrap();
            let master = Pid::from_raw(master.trim().parse().unwrap()).unwrap();
            assert!(runs(master));
            let pid = Pid::from_child(&child);
            if is_group {
                kill_process_group(pid, signal).unwrap()
            } else {
                kill_process(pid, signal).unwrap()
            }
            child.wait().unwrap();
            wait_until("the end of PHP-FPM", || !runs(master));
            let _ = fs::remove_dir_all(&folder);
            let _ = fs::remove_file(folder.with_extension("ready"));
        }
    }
}
