//! Deferred requests that are completed once their server has ended: they are freed all the same.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use apus_testkit::CertificateAuthority;

use crate::program::{OtherProcess, Program, command, compile, connect, eventually};

/// Waits until the program holds as many requests, none of which it has freed.
fn until_held(program: &mut Program, count: usize) {
    eventually("the requests are held", || {
        program.send("r");
        program
            .line()
            .starts_with(&format!("running: held {count}, freed 0"))
    });
}

/// A request over a separate connection, whose body does not end.
fn post(port: u16, path: &str) -> TcpStream {
    let mut stream = connect(port);
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[b'x'; 5000]).unwrap();
    stream
}

/// Requests of URLs by curl, at the same time and over one connection.
fn curl(arguments: &[&str], urls: &[String]) -> OtherProcess {
    let child = Command::new("curl")
        .args(["-sk", "--parallel", "--max-time", "100"])
        .args(arguments)
        .args(urls)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    OtherProcess(child.unwrap())
}

#[test]
fn requests_that_are_completed_after_the_end_of_a_server_are_freed() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("late.c", folder.path());
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["localhost"]);
    let (certificate, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    fs::write(&certificate, &issued.pem).unwrap();
    fs::write(&key, &issued.key).unwrap();
    let mut command = command(&program);
    command.arg("server").arg(&certificate).arg(&key);
    let mut program = Program::start(command);
    let line = program.line();
    let (plain, tls) = line.split_once(' ').unwrap();
    let (plain, tls): (u16, u16) = (plain.parse().unwrap(), tls.parse().unwrap());

    let mut open = Vec::new();
    for path in ["/hold", "/read", "/hold", "/read"] {
        open.push(post(plain, path));
    }
    let urls = [format!("http://127.0.0.1:{plain}/hold")];
    let http2 = curl(&["--http2-prior-knowledge"], &urls);
    let urls: Vec<_> = (0..4)
        .map(|_| format!("https://127.0.0.1:{tls}/hold"))
        .collect();
    let http2_tls = curl(&["--http2"], &urls);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                assert!(crate::http3::try_get(tls, &authority, "localhost", "/hold").is_err())
            });
        }
        until_held(&mut program, 11);
        assert_eq!(
            program.end(),
            "ended: held 11, freed 0, closed 2\ncompleted: held 11, freed 11, closed 2\nfreed: held 11, freed 11, closed 2\n"
        );
    });
    drop((open, http2, http2_tls));
}

#[test]
fn requests_that_are_completed_after_the_end_of_a_worker_are_freed() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("late.c", folder.path());
    let mut command = command(&program);
    command.arg("worker");
    let mut program = Program::start(command);
    let hold = |program: &mut Program, freed: usize| {
        let port = program.line().parse().unwrap();
        let open = ["/hold", "/read"].map(|path| post(port, path));
        eventually("the requests are held", || {
            program.send("r");
            program
                .line()
                .starts_with(&format!("running: held 2, freed {freed}"))
        });
        program.send("e");
        open
    };
    let first = hold(&mut program, 0);
    assert_eq!(program.line(), "freed: held 2, freed 2, closed 0");
    let second = hold(&mut program, 2);
    assert_eq!(program.line(), "kept: held 2, freed 2, closed 1");
    program.line().parse::<u16>().unwrap();
    assert_eq!(program.end(), "another: held 2, freed 4, closed 1\n");
    drop((first, second));
}
