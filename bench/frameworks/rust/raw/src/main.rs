//! The floor of frameworks: reads, looks for the end of a head and for nothing in it, and writes the same bytes for every request.
//!
//! `bench-raw PORT FILE`: FILE is the response that is written, head and all. If it says `connection: close`, that is done.

#![forbid(unsafe_code)]

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("bench-raw PORT FILE"));
    };
    let response: &'static [u8] = Vec::leak(std::fs::read(file)?);
    let closes = response
        .to_ascii_lowercase()
        .windows(17)
        .any(|line| line == b"connection: close");
    Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(async {
            let listener = listen(&port)?;
            loop {
                let (connection, _) = listener.accept().await?;
                tokio::spawn(serve(connection, response, closes));
            }
        })
}

fn listen(port: &str) -> io::Result<TcpListener> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(4096)
}

async fn serve(mut connection: TcpStream, response: &[u8], closes: bool) -> io::Result<()> {
    let mut read = Vec::with_capacity(4096);
    while connection.read_buf(&mut read).await? > 0 {
        while let Some(end) = end_of_head(&read) {
            read.drain(..end);
            connection.write_all(response).await?;
            if closes {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn end_of_head(read: &[u8]) -> Option<usize> {
    read.windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4)
}
