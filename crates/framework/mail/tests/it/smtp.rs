//! Mails over SMTP, to a server of the test.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use apus_mail::{Mail, MailError, Mailer};
use apus_testkit::{block_on, eventually};

/// A server that accepts one connection, and has these replies to RCPT and to the end of the mail. Returns what the
/// client sent.
fn serve(extensions: &'static str, recipient: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve_session(stream, extensions, recipient)
    });
    (address, thread)
}

fn serve_session(mut stream: TcpStream, extensions: &str, recipient: &str) -> String {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut received = String::new();
    stream.write_all(b"220 test\r\n").unwrap();
    let mut is_data = false;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return received;
        }
        received.push_str(&line);
        let reply = match line.trim_end() {
            "." if is_data => {
                is_data = false;
                "250 taken"
            }
            _ if is_data => continue,
            line if line.starts_with("EHLO") => extensions,
            line if line.starts_with("RCPT") => recipient,
            "DATA" => {
                is_data = true;
                "354 go on"
            }
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        if stream.write_all(format!("{reply}\r\n").as_bytes()).is_err() {
            return received;
        }
    }
}

fn mail() -> Mail {
    Mail::new("ada@example.com", "Hello").text(".\r\nA line with a dot.")
}

#[test]
fn a_mail_reaches_the_server() {
    let (address, server) = serve("250-test\r\n250 8BITMIME", "250 ok");
    let mailer = Mailer::open(&format!("smtp://{address}"), "shop@example.com").unwrap();
    block_on(mailer.send(mail())).unwrap();
    drop(mailer);
    let received = server.join().unwrap();
    for expected in [
        "MAIL FROM:<shop@example.com>",
        "RCPT TO:<ada@example.com>",
        "Subject: Hello",
        // A line with a dot alone would end the mail (RFC 5321 section 4.5.2).
        "\r\n..\r\n",
        "A line with a dot.",
    ] {
        assert!(received.contains(expected), "{expected}\n{received}");
    }
}

#[test]
fn a_reader_whom_the_server_rejects_is_told() {
    for (reply, is_transient) in [("550 nobody of this name", false), ("451 try again", true)] {
        let (address, server) = serve("250 test", reply);
        let mailer = Mailer::open(&format!("smtp://{address}"), "shop@example.com").unwrap();
        let error = block_on(mailer.send(mail())).unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(error.to_string().contains(&reply[4..]), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_is_down_is_told_with_its_address() {
    // The system assigns no port below 1024 to others.
    let address = "127.0.0.1:1";
    let server = format!("smtp://user:hunter2@{address}");
    let mailer = Mailer::open(&server, "shop@example.com").unwrap();
    let error = block_on(mailer.send(mail())).unwrap_err();
    assert!(
        matches!(error, MailError::Delivery { .. }) && error.is_transient(),
        "{error:?}"
    );
    assert!(error.to_string().contains(address), "{error}");
    assert!(!format!("{error} {error:?} {mailer:?}").contains("hunter2"));
}

/// The second attempt is after two seconds.
#[test]
fn a_mail_that_is_sent_later_is_sent_again_if_the_server_is_busy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut busy, _) = listener.accept().unwrap();
        busy.write_all(b"421 busy\r\n").unwrap();
        drop(busy);
        let (stream, _) = listener.accept().unwrap();
        serve_session(stream, "250 test", "250 ok")
    });
    let mailer = Mailer::open(&format!("smtp://{address}"), "shop@example.com").unwrap();
    block_on(async {
        mailer.send_later(mail());
        drop(mailer);
        eventually("the second session ends", || server.is_finished()).await;
    });
    let received = server.join().unwrap();
    assert!(received.contains("Subject: Hello"), "{received}");
}

/// An attacker on the network could remove STARTTLS from the reply (RFC 3207 section 6).
#[test]
fn a_password_is_not_sent_without_tls_where_it_is_required() {
    let (address, server) = serve("250-test\r\n250 AUTH PLAIN LOGIN", "250 ok");
    let server_address = format!("smtp://user:hunter2@{address}?tls=required");
    let mailer = Mailer::open(&server_address, "shop@example.com").unwrap();
    block_on(mailer.send(mail())).unwrap_err();
    drop(mailer);
    let received = server.join().unwrap();
    assert!(!received.contains("AUTH"), "{received}");
    assert!(!received.contains("MAIL"), "{received}");
}

#[test]
fn a_server_without_tls_gets_nothing_over_smtps() {
    let (address, server) = serve("250 test", "250 ok");
    let mailer = Mailer::open(&format!("smtps://{address}"), "shop@example.com").unwrap();
    let error = block_on(mailer.send(mail())).unwrap_err();
    assert!(error.to_string().contains("smtps://127.0.0.1"), "{error}");
    drop(mailer);
    let received = server.join().unwrap_or_default();
    assert!(!received.contains("MAIL"), "{received}");
}
