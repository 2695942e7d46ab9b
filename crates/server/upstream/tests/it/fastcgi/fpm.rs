//! A PHP-FPM of Debian for one test, with the scripts of the test.

use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use apus_client::{Address, ClientRequest};
use apus_codec::fastcgi::Params;
use apus_http::Method;
use apus_testkit::wait_until;
use apus_upstream::WorkerGroup;
use apus_upstream::plan::{NodePlan, NodeTarget};
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;

use crate::harness::request;

/// A running PHP-FPM.
pub(crate) struct Fpm {
    folder: PathBuf,
    address: Address,
    process: Child,
}

/// Its settings.
pub(crate) struct Pool<'a> {
    pub(crate) children: u32,
    pub(crate) tcp: bool,
    /// Further lines of the pool's configuration.
    pub(crate) lines: &'a str,
}

impl Default for Pool<'_> {
    fn default() -> Self {
        Self {
            children: 2,
            tcp: false,
            lines: "",
        }
    }
}

impl Fpm {
    /// Starts a PHP-FPM; `name` is unique to the test.
    pub(crate) fn start(name: &str, pool: &Pool<'_>) -> Self {
        let folder = std::env::temp_dir().join(format!("apus-fpm-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        // Scripts run as another user and write here.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let path = folder.join("socket");
        let (listen, address) = if pool.tcp {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            (address.to_string(), Address::Ip(address))
        } else {
            (
                path.display().to_string(),
                Address::Unix(path.as_path().into()),
            )
        };
        let (folder_name, children, lines) = (folder.display(), pool.children, pool.lines);
        let configuration = format!(
            "[global]\nerror_log = {folder_name}/log\ndaemonize = no\n\
             [www]\nuser = www-data\ngroup = www-data\nlisten = {listen}\nlisten.mode = 0666\n\
             pm = static\npm.max_children = {children}\n\
             php_admin_value[post_max_size] = 1G\n\
             php_admin_value[output_buffering] = 0\nphp_admin_value[error_log] =\n\
             php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\n{lines}\n"
        );
        fs::write(folder.join("configuration"), configuration).unwrap();
        let process = Command::new("/usr/sbin/php-fpm8.2")
            .arg("-F")
            .arg("-y")
            .arg(folder.join("configuration"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php8.2-fpm is missing: .ci/tools installs it");
        let fpm = Self {
            folder,
            address,
            process,
        };
        fpm.wait_until_it_listens();
        fpm
    }

    fn wait_until_it_listens(&self) {
        let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        wait_until("PHP-FPM listens", || {
            log().contains("ready to handle connections")
        });
    }

    /// Returns the plan of a node for it.
    pub(crate) fn node(&self) -> NodePlan {
        node(self.address.clone())
    }

    /// Returns the path of a file in the folder of the scripts.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns a request that runs this script, without a body.
    pub(crate) fn request(
        &self,
        group: &WorkerGroup,
        method: Method,
        script: &str,
    ) -> ClientRequest {
        self.request_with(group, method, script, &[])
    }

    /// Returns a request that runs this script, with further parameters.
    pub(crate) fn request_with(
        &self,
        group: &WorkerGroup,
        method: Method,
        script: &str,
        more: &[(&str, &str)],
    ) -> ClientRequest {
        let code = format!("<?php {script}");
        // The same script is always the same file, because PHP caches scripts by their path.
        let name = code.bytes().fold(0_u64, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(byte.into())
        });
        let path = self.file(&format!("{name:x}.php"));
        if !path.exists() {
            // Renamed when it is complete, because a request of another thread may read it.
            let thread = std::thread::current().id();
            let unfinished = self.file(&format!("{name:x}.{thread:?}"));
            fs::write(&unfinished, code).unwrap();
            fs::rename(&unfinished, &path).unwrap();
        }
        let mut params = Params::new();
        params.push("SCRIPT_FILENAME", path.to_str().unwrap());
        params.push("REQUEST_METHOD", method.as_str());
        params.push("SERVER_PROTOCOL", "HTTP/1.1");
        params.push("GATEWAY_INTERFACE", "CGI/1.1");
        params.push("REQUEST_URI", "/");
        for (name, value) in more {
            params.push(name, value);
        }
        let mut request = request(group, method);
        Rc::get_mut(&mut request.template.head).unwrap().params = Some(params);
        request
    }

    /// Returns a node in front of it that counts connections: those that are open, and the most at the same
    /// time.
    pub(crate) fn counted(&self) -> (NodePlan, Rc<Cell<(usize, usize)>>) {
        let Address::Unix(to) = self.address.clone() else {
            panic!("only over Unix sockets");
        };
        let path = self.file("counted");
        let listener = UnixListener::bind(&path).unwrap();
        let counts: Rc<Cell<(usize, usize)>> = Rc::default();
        let counted = Rc::clone(&counts);
        spawn_local(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let (to, counts) = (to.clone(), Rc::clone(&counted));
                let (now, most) = counts.get();
                counts.set((now + 1, most.max(now + 1)));
                spawn_local(async move {
                    let mut to = UnixStream::connect(&*to).await.unwrap();
                    let _ = copy_bidirectional(&mut from, &mut to).await;
                    let (now, most) = counts.get();
                    counts.set((now - 1, most));
                });
            }
        });
        (node(Address::Unix(path.as_path().into())), counts)
    }

    /// Returns the lines of a file; none if it does not exist.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(Into::into).collect()
    }
}

fn node(address: Address) -> NodePlan {
    NodePlan::new("php", NodeTarget::Address(address))
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // The master process ends its children.
        let _ = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
