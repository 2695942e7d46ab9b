//! PHP-FPM, MariaDB and the applications of Debian's packages, as `tests/origins/php/stack` runs
//! them: in a folder of their own, and no longer than the process of the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use super::source;
use crate::harness::wait_until;

/// Everything that was started together.
pub(crate) struct Stack {
    child: Child,
    folder: PathBuf,
}

impl Stack {
    /// With MariaDB and every application. All tests share it, since it takes seconds to start.
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

    /// PHP-FPM alone, for tests that do not hurt it; each has a folder of its own there.
    pub(crate) fn scripts() -> &'static Self {
        static SCRIPTS: OnceLock<Stack> = OnceLock::new();
        SCRIPTS.get_or_init(|| Self::php(3))
    }

    /// PHP-FPM alone, with so many children.
    pub(crate) fn php(children: usize) -> Self {
        Self::start(children, &["scripts"])
    }

    /// PHP-FPM with so many children, and small applications that may stay in memory.
    pub(crate) fn resident(children: usize) -> Self {
        Self::start(children, &["scripts", "frameworks"])
    }

    fn start(children: usize, parts: &[&str]) -> Self {
        // The stack itself removes it, since nothing that all tests share is ever dropped.
        let folder = tempfile::Builder::new().prefix("apus-stack-").tempdir();
        let folder = folder.unwrap().keep();
        let mut child = Command::new(source("stack"))
            .arg(&folder)
            .arg(children.to_string())
            .args(parts)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.trim() != "ready" {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("run `make tools`; what PHP needs does not start:\n{errors}");
        }
        Self { child, folder }
    }

    /// A file or folder of it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where PHP-FPM listens.
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
        // One that begins anew writes it anew.
        wait_until("PHP-FPM says who it is", || {
            let pid = fs::read_to_string(self.path("fpm.pid")).unwrap_or_default();
            master = pid.trim().parse().ok().and_then(Pid::from_raw);
            master.is_some()
        });
        master.unwrap()
    }

    /// Has PHP-FPM begin anew: its children finish what they do, and a new one takes its place. It hears no
    /// signal until it says that it is ready.
    pub(crate) fn restart_php(&self) {
        let begun = || {
            self.log_of_php()
                .matches("ready to handle connections")
                .count()
        };
        let (before, times) = (self.workers(), begun());
        kill_process(self.master(), Signal::USR2).unwrap();
        wait_until("PHP-FPM has begun anew", || {
            let now = self.workers();
            begun() > times && !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
        });
    }

    fn log_of_php(&self) -> String {
        fs::read_to_string(self.path("fpm.log")).unwrap_or_default()
    }

    /// Requests that PHP has answered so far, a line each: process, method and target.
    pub(crate) fn answered(&self) -> String {
        fs::read_to_string(self.path("access.log")).unwrap_or_default()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
