//! A full disk below the cache: responses that it cannot store are passed on whole, and it stores responses
//! again when there is space.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{configured, is_hit, large, large_origin};
use crate::harness::{Home, wait_until};
use crate::proxy::{Configuration, Front};

/// Mounts a small file system in the namespace of the server. This needs no privileges if user namespaces
/// are allowed.
const MOUNT: [&str; 8] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs -o size=16m none disk && exec \"$@\"",
    "sh",
];

/// Without user namespaces, the size of files is limited. The server gets an error then, and no signal.
const LIMIT: [&str; 4] = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"];

/// The disk below the cache of a server.
enum Disk {
    Mounted { ballast: PathBuf },
    Limited { server: Pid },
}

impl Disk {
    /// Starts the server with a cache on this disk.
    fn serve(configuration: Configuration) -> (Front, Self) {
        let home = Home::new();
        fs::create_dir(home.path("disk")).unwrap();
        let may_mount = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "mount"])
            .args(["-t", "tmpfs", "none"])
            .arg(home.path("disk"))
            .output()
            .is_ok_and(|output| output.status.success());
        if may_mount {
            home.take_back();
        }
        // In the user namespace the server is root, so its default control socket would be that of root.
        let configuration = configuration
            .global("cache = { dir = \"disk/cache\", size = 512 }")
            .global("control_socket = \"apus.sock\"");
        let program = if may_mount { &MOUNT[..] } else { &LIMIT };
        let front = configuration.serve_through(program, home);
        let pid = front.apus.pid();
        let disk = if may_mount {
            // The path in the namespace of the server.
            let folder = front.home.path("disk");
            let ballast = format!("/proc/{pid}/root{}/ballast", folder.display());
            Self::Mounted {
                ballast: ballast.into(),
            }
        } else {
            let server = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            Self::Limited { server }
        };
        (front, disk)
    }

    fn fill(&self) {
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

    fn empty(&self) {
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

#[test]
fn responses_that_a_full_disk_cannot_store_are_passed_on_whole() {
    let body = large();
    let origin = large_origin(&body);
    let (front, disk) = Disk::serve(configured(&origin));
    disk.fill();
    for round in 0..3 {
        let mut wires: Vec<_> = (0..8).map(|_| front.connect()).collect();
        for (index, wire) in wires.iter_mut().enumerate() {
            // Two clients request each target.
            let target = format!("/{round}/{}", index / 2);
            wire.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        }
        for wire in &mut wires {
            let reply = wire.read();
            assert_eq!(reply.status, 200);
            assert!(reply.body == body);
        }
    }
    // Small responses are stored in memory.
    front.get("/small");
    assert!(is_hit(&front, "/small"));
    assert!(!is_hit(&front, "/0/0"));
    // A purge works nevertheless, and reports what it cannot write to disk.
    front.home.run(&["cache", "purge", "--all"]);
    assert!(!is_hit(&front, "/small"));
    let tag = "x".repeat(5000);
    let (_, errors) = front.home.expect(&["cache", "purge", "--tag", &tag], 1);
    assert!(errors.contains("purged, but "), "{errors}");
    front.assert_memory_is_bounded();
    let log = front.apus.log();
    let reports = log.matches("the cache cannot write to disk").count();
    assert_eq!(reports, 1, "{log}");
    disk.empty();
    wait_until("it is stored again", || is_hit(&front, "/0/0"));
    assert!(front.get("/0/0").body == body);
    assert!(is_hit(&front, "/small"));
}
