//! A response of a server to the request of a client over a simulated path.

use std::time::{Duration, Instant};

use apus_quic_protocol::{ConnectionEvent, Dir, ReadState, StreamEvent, StreamId};
use bytes::Bytes;

use crate::settings::QuicSettings;
use crate::simulation::end::End;
use crate::simulation::path::{PathDirection, PathSettings};

/// A transfer may take this long.
const MAX_TIME: Duration = Duration::from_secs(3_600);
/// Bytes of one write. A prime number, so that the contents of the body differ from packet to packet.
const BLOCK: usize = 65_521;

/// What is transferred, and how.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) path: PathSettings,
    pub(super) settings: QuicSettings,
    pub(super) body: usize,
    pub(super) seed: u64,
}

/// How a transfer went.
#[derive(Debug)]
pub(super) struct Outcome {
    /// From the first packet of the handshake to the last byte of the body.
    pub(super) time: Duration,
    /// Packets that the server sent, and how many of them it declared lost.
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Transfer {
    /// Runs it, and checks the body.
    pub(super) fn run(&self) -> Outcome {
        let begin = Instant::now();
        let mut now = begin;
        let mut to_server = PathDirection::new(self.path, self.seed, now);
        let mut to_client = PathDirection::new(self.path, !self.seed, now);
        let block: Bytes = (0..BLOCK).map(|at| ((at * at) >> 7) as u8).collect();
        let mut client = DownloadClient::new(End::client(self.settings.clone(), now));
        let mut server = DownloadServer::new(End::server(self.settings.clone()));
        while client.received < self.body || !client.is_finished {
            server.end.handle_input(now, &mut to_server);
            server.respond(&block, self.body);
            server.end.send(now, &mut to_client);
            client.end.handle_input(now, &mut to_client);
            client.read(&block);
            client.end.send(now, &mut to_server);
            now = [
                to_server.next_arrival(),
                to_client.next_arrival(),
                server.end.next_timer(),
                client.end.next_timer(),
            ]
            .into_iter()
            .flatten()
            .min()
            .unwrap()
            .max(now);
            assert!(now - begin < MAX_TIME, "{self:?} {}", client.received);
        }
        assert_eq!(client.received, self.body);
        let path = server.end.statistics().unwrap().path;
        Outcome {
            time: now - begin,
            sent: path.sent_packets,
            lost: path.lost_packets,
        }
    }
}

struct DownloadServer {
    end: End,
    stream: Option<StreamId>,
    written: usize,
    is_finished: bool,
}

impl DownloadServer {
    fn new(end: End) -> Self {
        Self {
            end,
            stream: None,
            written: 0,
            is_finished: false,
        }
    }

    /// Writes as much of the body as the window allows.
    fn respond(&mut self, block: &Bytes, body: usize) {
        while let Some(event) = self.end.next_event() {
            match event {
                ConnectionEvent::ConnectionLost { reason } => {
                    panic!("{reason} after {} bytes", self.written)
                }
                ConnectionEvent::Stream(StreamEvent::Opened(stream)) => self.stream = Some(stream),
                _ => {}
            }
        }
        let Some(connection) = self.end.connection() else {
            return;
        };
        let Some(stream) = self.stream.filter(|_| !self.is_finished) else {
            return;
        };
        while self.written < body {
            let chunk = block.slice(self.written % BLOCK..);
            let left = chunk.len().min(body - self.written);
            match connection
                .write(stream, &mut [chunk.slice(..left)])
                .unwrap()
            {
                0 => return,
                written => self.written += written,
            }
        }
        connection.finish(stream).unwrap();
        self.is_finished = true;
    }
}

struct DownloadClient {
    end: End,
    stream: Option<StreamId>,
    received: usize,
    is_finished: bool,
}

impl DownloadClient {
    fn new(end: End) -> Self {
        Self {
            end,
            stream: None,
            received: 0,
            is_finished: false,
        }
    }

    /// Sends the request once the handshake is complete, and reads the response.
    fn read(&mut self, block: &Bytes) {
        let mut is_readable = false;
        while let Some(event) = self.end.next_event() {
            let connection = self.end.connection().unwrap();
            match event {
                ConnectionEvent::Connected => {
                    let stream = connection.open(Dir::Bi).unwrap();
                    let request = Bytes::from_static(b"request");
                    connection.write(stream, &mut [request]).unwrap();
                    connection.finish(stream).unwrap();
                    self.stream = Some(stream);
                }
                ConnectionEvent::Stream(StreamEvent::Readable(_)) => is_readable = true,
                ConnectionEvent::ConnectionLost { reason } => {
                    panic!("{reason} after {} bytes", self.received)
                }
                _ => {}
            }
        }
        let Some(stream) = self.stream.filter(|_| is_readable) else {
            return;
        };
        let connection = self.end.connection().unwrap();
        let received = &mut self.received;
        let read = connection.read(stream, usize::MAX, |chunk| {
            assert_contents(*received as u64, &chunk, block);
            *received += chunk.len();
        });
        self.is_finished = read.unwrap() == ReadState::Finished;
    }
}

fn assert_contents(offset: u64, mut bytes: &[u8], block: &Bytes) {
    let mut at = offset as usize % BLOCK;
    while !bytes.is_empty() {
        let expected = &block[at..];
        let (part, after) = bytes.split_at(bytes.len().min(expected.len()));
        assert!(part == &expected[..part.len()], "at {offset}");
        (at, bytes) = (0, after);
    }
}
