//! A server that is started as root: the privileges that it drops, and the operations that it can do without
//! them.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use apus_server::control::TokenDigest;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clients::{Curl, certificate};
use crate::harness::{Apus, Home, free_port, get, get_unix, is_root, unprivileged, wait_until};

/// A folder that only root can enter.
fn root_only_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    folder
}

/// A free port that only root can listen on. Each caller has its own, as tests run side by side.
fn low_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(700);
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let port = ports.find(free).unwrap();
    assert!(port < 1024);
    port
}

/// The text of `/proc/PID/task/*/status` of each thread of a process.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .collect()
}

/// The words of a line of such a text.
fn line<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found.expect(name).split_whitespace().collect()
}

/// The child processes of a process, with their names.
fn children(pid: u32) -> Vec<(u32, String)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|number| {
            let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
            let is_child = line(&status, "PPid:") == [pid.to_string().as_str()];
            is_child.then(|| (number, line(&status, "Name:").concat()))
        })
        .collect()
}

fn helper(apus: &Apus) -> u32 {
    let children = children(apus.pid());
    let helper = children.iter().find(|(_, name)| name == "apus-helper");
    helper.unwrap_or_else(|| panic!("{children:?}")).0
}

fn assert_unprivileged(pid: u32) {
    let (uid, gid) = unprivileged();
    let (uid, gid) = (uid.to_string(), gid.to_string());
    let threads = threads(pid);
    assert!(threads.len() > 1, "{threads:?}");
    for status in threads {
        assert_eq!(line(&status, "Uid:"), [uid.as_str(); 4], "{status}");
        assert_eq!(line(&status, "Gid:"), [gid.as_str(); 4], "{status}");
        assert!(!line(&status, "Groups:").contains(&"0"), "{status}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(&status, set), ["0000000000000000"], "{set} {status}");
        }
        assert_eq!(line(&status, "NoNewPrivs:"), ["1"], "{status}");
    }
}

#[test]
fn no_thread_of_a_server_that_is_started_as_root_keeps_a_privilege() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let secret = home.write("site/secret", "x");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    home.write("site/large.css", "a { color: red }\n".repeat(1000));
    home.write(
        "apus.toml",
        "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\naccess_log = \"access.log\"\n\
         [[sites.locations]]\npath = \"/stored/\"\nupstream = \"http://127.0.0.1:1\"\ncache = true\n\
         [global.cache]\ndir = \"stored\"\nsize = 10\n",
    );
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/").status, 200);
    let curl = Curl::new().args(&["--compressed"]);
    let compressed = curl.get(&format!("http://{}/large.css", apus.address()));
    assert_eq!(compressed.status, 200);
    assert_ne!(apus.get("/secret").status, 200, "only root may read it");
    assert_unprivileged(apus.pid());
    let (uid, _) = unprivileged();
    for created in ["access.log", "stored"] {
        assert_eq!(
            fs::metadata(home.path(created)).unwrap().uid(),
            uid,
            "{created}"
        );
    }
    home.expect(&["reload"], 0);
    assert_eq!(apus.get("/").status, 200);
    assert_unprivileged(apus.pid());
}

#[test]
fn the_helper_exits_with_its_server_after_sigkill_and_sigterm() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    home.write(
        "apus.toml",
        format!(
            "[global]\ncontrol_socket = \"{}/own.sock\"\n\
             [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n",
            closed.path().display()
        ),
    );
    let is_gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
    let socket = closed.path().join("own.sock");
    for signal in [Signal::KILL, Signal::TERM] {
        let mut apus = home.serve(&[]);
        let found = fs::metadata(&socket).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600));
        let helper = helper(&apus);
        // The signals that systemd sends to all processes of a service do not end the helper before its
        // server.
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            kill_process(Pid::from_raw(helper as i32).unwrap(), signal).unwrap();
        }
        home.expect(&["reload"], 0);
        apus.signal(signal);
        apus.wait();
        wait_until("the helper has exited", || is_gone(helper));
    }
    assert_eq!(fs::read_dir(closed.path()).unwrap().count(), 0);
}

/// What root alone may do is done for the address of the operator, as for those of sites: a privileged port, a socket in a folder of
/// root, and a file of accounts that is root's, also when it changes.
#[test]
fn the_operator_has_a_privileged_port_a_socket_and_accounts_of_root() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let folder = root_only_folder();
    // The server's user has to reach the socket that it is given.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (low, path) = (low_port(), folder.path().join("admin.sock"));
    let account = |token: &str| {
        let file = home.write(
            "accounts.toml",
            format!(
                "[[accounts]]\nname = \"ana\"\nrole = \"read\"\ntokens = [\"{}\"]\n",
                TokenDigest::of(token)
            ),
        );
        fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    };
    account("first");
    home.write(
        "apus.toml",
        format!(
            "[global]\nadmin_listen = [\"127.0.0.1:{low}\", \"unix:{}\"]\nadmin_accounts = \"accounts.toml\"\n\
             [[sites]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n",
            path.display()
        ),
    );
    let apus = home.serve(&[]);
    let is_known = |token: &str| {
        let status = Curl::new()
            .args(&["-H", &format!("Authorization: Bearer {token}")])
            .get(&format!("http://127.0.0.1:{low}/api/v1/session"))
            .status;
        assert!(matches!(status, 200 | 401), "{status}");
        status == 200
    };
    assert!(is_known("first") && !is_known("second"));
    let socket = fs::metadata(&path).unwrap();
    assert_eq!(
        (socket.uid(), socket.mode() & 0o777),
        (unprivileged().0, 0o600)
    );
    assert_eq!(get_unix(&path, "/metrics").status, 200);
    account("second");
    wait_until("the new account", || {
        is_known("second") && !is_known("first")
    });
    home.expect(&["reload"], 0);
    assert!(is_known("second"));
    assert_unprivileged(apus.pid());
}

#[test]
fn a_reload_reads_a_new_key_of_root_and_listens_on_a_privileged_port() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    certificate(&home, "cert", "localhost");
    for name in ["cert.pem", "cert.key"] {
        fs::copy(home.path(name), closed.path().join(name)).unwrap();
        fs::remove_file(home.path(name)).unwrap();
    }
    let site = format!(
        "[[sites]]\nlisten = [\"127.0.0.1:{}\"]\nroot = \"site\"\n",
        free_port()
    );
    home.write("apus.toml", &site);
    let apus = home.serve(&[]);
    let (plain, tls) = (low_port(), low_port());
    let more = format!(
        "[[sites]]\nserver_name = \"localhost\"\nlisten = [\"127.0.0.1:{plain}\"]\n\
         listen_tls = [\"127.0.0.1:{tls}\"]\nroot = \"site\"\n\
         tls = {{ cert = \"{0}/cert.pem\", key = \"{0}/cert.key\" }}\n",
        closed.path().display()
    );
    home.write("apus.toml", site.clone() + &more);
    home.expect(&["reload"], 0);
    assert_eq!(get(([127, 0, 0, 1], plain).into(), "/").status, 200);
    let authority = closed.path().join("cert.pem");
    let curl = Curl::new().args(&["--cacert", authority.to_str().unwrap()]);
    assert_eq!(curl.get(&format!("https://localhost:{tls}/")).status, 200);
    assert_unprivileged(apus.pid());
    // A reload also works with a configuration that only root can read.
    fs::set_permissions(home.path("apus.toml"), Permissions::from_mode(0o600)).unwrap();
    home.write("apus.toml", &site);
    home.expect(&["reload"], 0);
    assert_eq!(apus.get("/").status, 200);
}

#[test]
fn a_log_in_a_folder_of_root_is_reopened_after_a_rotation() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    let log = closed.path().join("access.log");
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
             access_log = {{ path = \"{}\", format = \"$request_uri\" }}\n",
            log.display()
        ),
    );
    let apus = home.serve(&[]);
    let logged = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert_eq!(apus.get("/?first").status, 200);
    wait_until("the first request is logged", || {
        logged(&log).contains("first")
    });
    let old = closed.path().join("access.log.1");
    fs::rename(&log, &old).unwrap();
    apus.signal(Signal::USR1);
    wait_until("the log exists again", || log.exists());
    assert_eq!(apus.get("/?second").status, 200);
    wait_until("the second request is logged", || {
        logged(&log).contains("second")
    });
    assert!(!logged(&old).contains("second"));
}

#[test]
fn a_key_log_is_opened_by_root_in_a_folder_of_root_and_at_each_reload() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    certificate(&home, "cert", "localhost");
    let keys = closed.path().join("keys.log");
    fs::write(&keys, "").unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    home.write(
        "apus.toml",
        format!(
            "[global]\ntls_key_log = \"{}\"\n{}",
            keys.display(),
            tls_site(home.path("").as_path())
        ),
    );
    let apus = home.serve(&[]);
    assert_unprivileged(apus.pid());
    let warned = |count| {
        wait_until("a warning in the log", || {
            apus.log().matches("a file: whoever reads it").count() == count
        });
    };
    warned(1);
    let url = apus.urls()[0].replace("127.0.0.1", "localhost");
    let load = || {
        let reply = Curl::new().args(&["--insecure"]).get(&url);
        assert_eq!(reply.status, 200);
    };
    let logged = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let count = |path: &Path| logged(path).matches("CLIENT_TRAFFIC_SECRET_0 ").count();
    load();
    wait_until("the secrets of a connection", || count(&keys) == 1);
    let found = fs::metadata(&keys).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600));
    // As after a rotation.
    let old = closed.path().join("keys.log.1");
    fs::rename(&keys, &old).unwrap();
    home.expect(&["reload"], 0);
    warned(2);
    load();
    wait_until("the secrets of the next one", || count(&keys) == 1);
    assert_eq!(count(&old), 1);
    let found = fs::metadata(&keys).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600));
    // A link is not followed, and the server goes on as before.
    fs::remove_file(&keys).unwrap();
    symlink(&old, &keys).unwrap();
    let (out, errors) = home.expect(&["reload"], 1);
    assert!(
        format!("{out}{errors}").contains("symbolic link"),
        "{out}{errors}"
    );
    load();
    assert_eq!(count(&old), 1);
}

#[test]
fn a_server_that_dropped_root_does_not_say_that_its_control_socket_is_that_of_another() {
    if !is_root() {
        return;
    }
    for global in ["", "[global]\ncontrol_socket = \"own.sock\"\n"] {
        let home = Home::new();
        let site = "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nreturn = { status = 204 }\n";
        home.write("apus.toml", format!("{global}{site}"));
        let apus = home.serve(&[]);
        assert_unprivileged(apus.pid());
        assert_eq!(apus.get("/").status, 204);
        assert!(!apus.log().contains("control socket"), "{}", apus.log());
        // Clients find it without an argument.
        home.expect(&["status"], 0);
    }
}

#[test]
fn a_reload_says_that_another_user_needs_a_restart() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let site = "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nreturn = { status = 204 }\n";
    home.write("apus.toml", site);
    let _apus = home.serve(&[]);
    home.write("apus.toml", format!("[global]\nuser = \"root\"\n{site}"));
    for _ in 0..2 {
        let (out, _) = home.expect(&["reload"], 0);
        assert!(
            out.starts_with("another `user` or `group` needs a restart\n"),
            "{out}"
        );
    }
    home.write("apus.toml", site);
    let (out, _) = home.expect(&["reload"], 0);
    assert_eq!(out, "`user` of [global] changed\nreloaded\n");
}

#[test]
fn root_opens_no_log_in_a_folder_that_another_user_can_change() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(12_345), None).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\naccess_log = \"{}/log\"\n",
            folder.path().display()
        ),
    );
    let (_, errors) = home.expect(&["serve"], 1);
    assert!(
        errors.contains("others than root can change") && errors.contains("/log"),
        "{errors}"
    );
    assert!(!folder.path().join("log").exists());
}

/// A folder of another user, with a certificate and its key in files of root.
fn folder_of_another_user(home: &Home) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certificate(home, "cert", "localhost");
    for name in ["cert.pem", "cert.key"] {
        fs::copy(home.path(name), folder.path().join(name)).unwrap();
    }
    chown(folder.path(), Some(12_345), None).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

fn tls_site(folder: &Path) -> String {
    format!(
        "[[sites]]\nserver_name = \"localhost\"\nlisten_tls = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
         tls = {{ cert = \"{0}/cert.pem\", key = \"{0}/cert.key\" }}\n",
        folder.display()
    )
}

#[test]
fn root_reads_no_key_through_a_link_that_another_user_can_make() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let theirs = folder_of_another_user(&home);
    let closed = root_only_folder();
    fs::copy(home.path("cert.key"), closed.path().join("secret")).unwrap();
    let plain = format!(
        "[[sites]]\nlisten = [\"127.0.0.1:{}\"]\nroot = \"site\"\n",
        free_port()
    );
    home.write("apus.toml", plain.clone() + &tls_site(theirs.path()));
    let apus = home.serve(&[]);
    home.expect(&["reload"], 0);
    // The user replaces the key, which root would read at the next look.
    let key = theirs.path().join("cert.key");
    fs::remove_file(&key).unwrap();
    for owner in [12_345, 0] {
        symlink(closed.path().join("secret"), &key).unwrap();
        lchown(&key, Some(owner), None).unwrap();
        for command in ["reload", "check"] {
            let (out, errors) = home.expect(&[command], 1);
            let said = out + &errors;
            assert!(said.contains("a symbolic link leads to it"), "{said}");
        }
        fs::remove_file(&key).unwrap();
    }
    // A link to a file of the user's own is theirs to make.
    let own = theirs.path().join("own.key");
    fs::copy(home.path("cert.key"), &own).unwrap();
    chown(&own, Some(12_345), None).unwrap();
    symlink("own.key", &key).unwrap();
    lchown(&key, Some(12_345), None).unwrap();
    home.expect(&["reload"], 0);
    // Nobody writes to the named pipe.
    fs::remove_file(&key).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&key).status();
    assert!(made.unwrap().success());
    let (out, errors) = home.expect(&["reload"], 1);
    assert!((out + &errors).contains("it is not a file"));
    assert_eq!(apus.get("/").status, 200);
}

/// As certbot has them: a folder of root with links to the files of the last renewal.
#[test]
fn root_reads_keys_through_links_of_its_own() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    certificate(&home, "cert", "localhost");
    let closed = root_only_folder();
    for name in ["live", "archive"] {
        fs::create_dir(closed.path().join(name)).unwrap();
    }
    for name in ["cert.pem", "cert.key"] {
        let archived = closed.path().join("archive").join(name);
        fs::copy(home.path(name), &archived).unwrap();
        let target = Path::new("../archive").join(name);
        symlink(target, closed.path().join("live").join(name)).unwrap();
    }
    home.write("apus.toml", tls_site(&closed.path().join("live")));
    let _apus = home.serve(&[]);
    home.expect(&["reload"], 0);
}

#[test]
fn root_creates_no_folder_where_another_user_can_change_the_way() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(12_345), None).unwrap();
    fs::set_permissions(theirs.path(), Permissions::from_mode(0o755)).unwrap();
    let configure = |folder: &Path| {
        home.write(
            "apus.toml",
            format!(
                "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
                 [[sites.locations]]\npath = \"/stored/\"\nupstream = \"http://127.0.0.1:1\"\ncache = true\n\
                 [global.cache]\ndir = \"{}/a/b/cache\"\nsize = 10\n",
                folder.display()
            ),
        )
    };
    configure(theirs.path());
    home.expect(&["serve"], 1);
    assert!(!theirs.path().join("a").exists());
    // In a folder of root, all are created.
    let own = tempfile::tempdir().unwrap();
    fs::set_permissions(own.path(), Permissions::from_mode(0o755)).unwrap();
    configure(own.path());
    let _apus = home.serve(&[]);
    let found = fs::metadata(own.path().join("a/b/cache")).unwrap();
    assert_eq!(found.uid(), unprivileged().0);
    assert_eq!(fs::metadata(own.path().join("a/b")).unwrap().uid(), 0);
}

#[test]
fn a_folder_that_the_user_cannot_read_is_refused_without_user_root() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    fs::write(closed.path().join("index.html"), "closed").unwrap();
    let folder = closed.path().to_str().unwrap();
    let (_, errors) = home.expect(&["serve", folder, "--listen", "127.0.0.1:0"], 1);
    assert!(
        errors.contains("cannot read") && errors.contains("--user"),
        "{errors}"
    );
    let apus = home.serve(&[folder, "--listen", "127.0.0.1:0", "--user", "root"]);
    assert_eq!(apus.get("/").body, "closed");
    apus.wait_for_log("stays root");
    let (_, errors) = home.expect(&["serve", "site", "--user", "no-such-user"], 1);
    assert!(errors.contains("no-such-user"), "{errors}");
}

#[test]
fn a_root_that_the_user_cannot_read_causes_a_warning() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let closed = root_only_folder();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{}\"\n",
            closed.path().display()
        ),
    );
    let apus = home.serve(&[]);
    let log = apus.wait_for_log("may not read");
    assert!(log.contains("apus.toml:3:"), "{log}");
    assert_ne!(apus.get("/").status, 200);
    let (out, _) = home.expect(&["reload"], 0);
    assert!(out.contains("may not read"), "{out}");
}

#[test]
fn the_server_runs_as_the_configured_user_and_group() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    chown(home.path(""), Some(12_345), Some(54_321)).unwrap();
    let site = "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    home.write(
        "apus.toml",
        format!("[global]\nuser = \"12345\"\ngroup = \"54321\"\n{site}"),
    );
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/").status, 200);
    for status in threads(apus.pid()) {
        assert_eq!(line(&status, "Uid:"), ["12345"; 4]);
        assert_eq!(line(&status, "Gid:"), ["54321"; 4]);
    }
    drop(apus);
    home.write("apus.toml", format!("[global]\nuser = \"nemo\"\n{site}"));
    let (_, errors) = home.expect(&["check"], 1);
    assert!(
        errors.contains("apus.toml:2:8") && errors.contains("nemo"),
        "{errors}"
    );
}

fn application(home: &Home, user: &str) {
    home.write(
        "site/index.php",
        "<?php if (isset($_GET['hang'])) { for (;;) {} } echo getmypid(), ' ', posix_getuid();",
    );
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nname = \"app\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
             php_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
             [sites.fastcgi.workers]\nfolder = \"run\"\nmax = 2\nexecution_timeout = 1\n{user}"
        ),
    );
}

/// The PHP process that responds, and its user.
fn process_of(apus: &Apus) -> (u32, u32) {
    let body = apus.get("/").body;
    let (pid, user) = body.split_once(' ').expect(&body);
    (pid.parse().unwrap(), user.parse().unwrap())
}

#[test]
fn php_runs_as_the_user_of_the_server_and_never_as_root() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    application(&home, "");
    let apus = home.serve(&[]);
    assert_eq!(process_of(&apus).1, unprivileged().0);
}

#[test]
fn php_of_another_user_is_started_killed_and_replaced() {
    if !is_root() {
        return;
    }
    const NOBODY: u32 = 65_534;
    let home = Home::new();
    fs::set_permissions(home.path(""), Permissions::from_mode(0o755)).unwrap();
    application(&home, "user = \"nobody\"\n");
    let mut apus = home.serve(&[]);
    let (first, user) = process_of(&apus);
    assert_eq!(user, NOBODY);
    let status = fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    assert_eq!(line(&status, "CapEff:"), ["0000000000000000"]);
    assert_eq!(line(&status, "NoNewPrivs:"), ["1"]);
    assert_unprivileged(apus.pid());
    // A process that hangs is killed, although it has another user than the server.
    assert_eq!(apus.get("/?hang").status, 504);
    assert!(
        !apus.log().contains("could not be killed"),
        "{}",
        apus.log()
    );
    home.expect(&["reload"], 0);
    let (second, user) = process_of(&apus);
    assert_eq!(user, NOBODY);
    assert_ne!(first, second);
    apus.signal(Signal::TERM);
    apus.wait();
    wait_until("the PHP process has exited", || {
        !Path::new("/proc").join(second.to_string()).exists()
    });
}

#[test]
fn php_of_another_user_requires_a_start_as_root() {
    let home = Home::new();
    let user = if is_root() { "nobody" } else { "root" };
    application(&home, &format!("user = \"{user}\"\n"));
    if is_root() {
        // This server is started as an ordinary user, in a folder that the user owns.
        chown(home.path("apus.toml"), Some(unprivileged().0), None).unwrap();
        let (uid, gid) = unprivileged();
        let ids = [format!("--reuid={uid}"), format!("--regid={gid}")];
        let program = ["setpriv", &ids[0], &ids[1], "--clear-groups"];
        let output = home.command_through(&program, &["serve"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("started as root"), "{errors}");
    }
}
