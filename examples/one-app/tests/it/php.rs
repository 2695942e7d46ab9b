//! PHP programs by `php-cgi`, which runs as long as the test.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub(crate) struct PhpCgi {
    child: Child,
    folder: TempDir,
}

impl PhpCgi {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A FastCGI server gets its listening socket as standard input. Clients that connect before it runs
        // wait for it.
        let listener = UnixListener::bind(folder.path().join("php.sock")).unwrap();
        let child = Command::new("php-cgi")
            .env_remove("PHP_FCGI_CHILDREN")
            .env_remove("REQUEST_METHOD")
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run `make tools`: there is no php-cgi");
        Self { child, folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("php.sock")
    }
}

impl Drop for PhpCgi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
