//! Hello world on the standard library, with a thread for each connection: `bench-std PORT`.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// The stack of a thread, so that a thousand of them need little memory.
const STACK: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::other("bench-std PORT"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    for connection in listener.incoming() {
        let connection = connection?;
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || serve(connection))?;
    }
    Ok(())
}

/// Responds to the requests of a connection until it is closed.
fn serve(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut read = Vec::with_capacity(4096);
    let mut buffer = [0; 4096];
    loop {
        while let Some(end) = end_of_head(&read) {
            let head = read.drain(..end).collect::<Vec<u8>>();
            let head = String::from_utf8_lossy(&head).into_owned();
            let closes = head.to_ascii_lowercase().contains("\r\nconnection: close");
            connection.write_all(&response(&head, closes))?;
            if closes {
                return Ok(());
            }
        }
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

fn response(head: &str, closes: bool) -> Vec<u8> {
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match target.strip_prefix("/hello/") {
        Some(name) => ("200 OK", format!("Hello, {name}!")),
        None => ("404 Not Found", String::new()),
    };
    let connection = if closes { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\n{connection}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nX-Served-By: bench\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn end_of_head(read: &[u8]) -> Option<usize> {
    let at = read.windows(4).position(|four| four == b"\r\n\r\n");
    at.map(|at| at + 4)
}
