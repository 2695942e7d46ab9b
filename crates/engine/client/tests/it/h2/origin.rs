//! Origins over HTTP/2: one of the `h2` crate, and a scripted one.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;

use apus_testkit::h2::{PREFACE, RawFrame, flag, kind, settings};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;

use crate::harness::PATIENCE;

/// Serves with the `h2` crate, on a task of this thread for each request.
pub(super) async fn serve<F, A>(handler: F) -> SocketAddr
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> A + 'static,
    A: Future<Output = ()> + 'static,
{
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 24)
        .max_concurrent_streams(500);
    serve_with(builder, handler).await
}

pub(super) async fn serve_with<F, A>(builder: h2::server::Builder, handler: F) -> SocketAddr
where
    F: Fn(Request<RecvStream>, SendResponse<Bytes>) -> A + 'static,
    A: Future<Output = ()> + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Rc::new(handler);
    tokio::task::spawn_local(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (builder, handler) = (builder.clone(), Rc::clone(&handler));
            tokio::task::spawn_local(async move {
                let mut connection = builder.handshake::<_, Bytes>(socket).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::task::spawn_local(handler(request, respond));
                }
            });
        }
    });
    address
}

/// An origin on a separate thread, whose script is a function.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Scripted {
    /// Accepts one connection and runs `script` with it.
    pub(super) fn start(script: impl FnOnce(&mut RawConnection) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut raw = RawConnection {
                stream,
                unread: Vec::new(),
            };
            script(&mut raw);
        });
        Self { address, thread }
    }

    /// Waits for the end of the script, which may have found something wrong.
    pub(super) async fn finish(self) {
        super::eventually("the end of the script", || self.thread.is_finished()).await;
        self.thread.join().unwrap();
    }
}

/// The origin's end of a connection.
pub(super) struct RawConnection {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

impl RawConnection {
    /// Reads the preface, and sends settings.
    pub(super) fn handshake(&mut self, values: &[(u16, u32)]) {
        let preface = self.exactly(PREFACE.len()).unwrap();
        assert_eq!(preface, PREFACE);
        self.send(settings(values));
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Waits for a request; its stream.
    pub(super) fn request(&mut self) -> u32 {
        self.until(kind::HEADERS).stream
    }

    /// Waits for a frame of this kind; acknowledgements are passed over.
    pub(super) fn until(&mut self, kind: u8) -> RawFrame {
        loop {
            let frame = self.frame().expect("a frame");
            if frame.kind == kind && !(kind == kind::SETTINGS && frame.has(flag::ACK)) {
                return frame;
            }
        }
    }

    /// The next frame; `None` at the end.
    pub(super) fn frame(&mut self) -> Option<RawFrame> {
        let header = self.exactly(9)?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        Some(RawFrame {
            kind: header[3],
            flags: header[4],
            stream: u32::from_be_bytes(header[5..9].try_into().unwrap()),
            payload: self.exactly(length as usize)?,
        })
    }

    /// Whether nothing comes as long as a read may take.
    pub(super) fn is_silent(&mut self) -> bool {
        let read = self.stream.read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            && self.unread.is_empty()
    }

    /// Reads up to the end; returns the frames.
    pub(super) fn rest(&mut self) -> Vec<RawFrame> {
        std::iter::from_fn(|| self.frame()).collect()
    }

    fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.unread.len() < len {
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the client says nothing: {error}"),
            }
        }
        Some(self.unread.drain(..len).collect())
    }
}
