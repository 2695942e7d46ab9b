//! A small disk in the folder `disk` of a server, which can be full.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::harness::Home;

/// The disk of a server that runs.
pub(crate) enum Disk {
    /// A small file system in the namespace of the server, and the file that fills it.
    Mounted { ballast: PathBuf },
    /// Without user namespaces, the size of files is limited. The server gets an error then, and no signal.
    Limited { server: Pid },
}

/// The disk of a server that has not been started.
pub(crate) struct PreparedDisk {
    may_mount: bool,
    script: String,
}

impl PreparedDisk {
    /// A disk of this size, as `tmpfs` takes it, and whether it is full at the start.
    pub(crate) fn new(home: &Home, size: &str, is_full: bool) -> Self {
        fs::create_dir(home.path("disk")).unwrap();
        // This needs no privileges if user namespaces are allowed.
        let may_mount = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "mount"])
            .args(["-t", "tmpfs", "none"])
            .arg(home.path("disk"))
            .output()
            .is_ok_and(|output| output.status.success());
        if may_mount {
            home.take_back();
        }
        let script = match (may_mount, is_full) {
            (true, false) => format!("mount -t tmpfs -o size={size} none disk && exec \"$@\""),
            (true, true) => format!(
                "mount -t tmpfs -o size={size} none disk && {{ cat /dev/zero >disk/ballast; exec \"$@\"; }}"
            ),
            (false, false) => "trap '' XFSZ; exec \"$@\"".to_owned(),
            (false, true) => "trap '' XFSZ; ulimit -S -f 0; exec \"$@\"".to_owned(),
        };
        Self { may_mount, script }
    }

    /// The program that starts the server.
    pub(crate) fn program(&self) -> Vec<&str> {
        let shell = ["sh", "-c", &self.script, "sh"];
        if self.may_mount {
            [
                &["unshare", "--user", "--map-root-user", "--mount"],
                &shell[..],
            ]
            .concat()
        } else {
            shell.to_vec()
        }
    }

    /// The disk of the server, which has this process.
    pub(crate) fn of(self, home: &Home, pid: u32) -> Disk {
        if self.may_mount {
            // The path in the namespace of the server.
            let folder = home.path("disk");
            let ballast = format!("/proc/{pid}/root{}/ballast", folder.display());
            Disk::Mounted {
                ballast: ballast.into(),
            }
        } else {
            let server = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            Disk::Limited { server }
        }
    }
}

impl Disk {
    pub(crate) fn fill(&self) {
        match self {
            Self::Mounted { ballast } => {
                let mut file = File::create(ballast).unwrap();
                for size in [1 << 20, 4096, 1] {
                    while file.write_all(&vec![0; size]).is_ok() {}
                }
            }
            Self::Limited { server } => limit(*server, Some(0)),
        }
    }

    pub(crate) fn empty(&self) {
        match self {
            Self::Mounted { ballast } => fs::remove_file(ballast).unwrap(),
            Self::Limited { server } => limit(*server, getrlimit(Resource::Fsize).current),
        }
    }
}

fn limit(server: Pid, bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit {
        current: bytes,
        maximum,
    };
    prlimit(Some(server), Resource::Fsize, limit).unwrap();
}
