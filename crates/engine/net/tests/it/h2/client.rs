//! A client that sends exactly the frames of a test (RFC 9113), and reads the frames of the server.
//!
//! It shares nothing with the code under test: it reads fields with another decoder.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use apus_testkit::h2::{
    FRAME, PREFACE, RawFrame, WINDOW, block, code, data, flag, head, kind, ping, request, setting,
    settings, settings_ack, window_update,
};
use loona_hpack::Decoder;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The frames that arrived on a stream so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamResponse {
    pub(crate) status: u16,
    /// The status codes of interim responses.
    pub(crate) interim: Vec<u16>,
    /// The fields of the final response, without `:status`.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The server has ended its side.
    pub(crate) ended: bool,
    /// The server has reset it.
    pub(crate) reset: Option<u32>,
}

impl StreamResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find_map(|(field, value)| (field == name).then_some(value.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn take_head(&mut self, fields: Vec<(String, String)>) {
        let (pseudo, fields): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .partition(|(name, _)| name.starts_with(':'));
        if self.status != 0 {
            assert!(
                pseudo.is_empty(),
                "pseudo-header fields in a trailer section"
            );
            self.trailers = fields;
            return;
        }
        let [(name, status)] = pseudo.as_slice() else {
            panic!("pseudo-header fields of a response: {pseudo:?}");
        };
        assert_eq!(name, ":status");
        match status.parse().unwrap() {
            interim @ ..200 => self.interim.push(interim),
            status => (self.status, self.fields) = (status, fields),
        }
    }
}

/// The client's end of a connection.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    /// The windows are opened as data arrives.
    pub(crate) opens_windows: bool,
    /// SETTINGS and PING are acknowledged.
    pub(crate) acknowledges: bool,
    /// The settings of the server that have arrived.
    pub(crate) settings: BTreeMap<u16, u32>,
    /// GOAWAY frames that came: the last stream and the code.
    pub(crate) goaways: Vec<(u32, u32)>,
    /// The frames that arrived on each stream.
    pub(crate) responses: BTreeMap<u32, StreamResponse>,
    unread: Vec<u8>,
    /// What a read fills: clearing one for each read would cost a flood more than what it sends.
    buffer: Box<[u8]>,
    read: usize,
    decoder: Decoder<'static>,
    /// A field block of which more is to come.
    partial: Option<RawFrame>,
    /// What is sent later, during a flood.
    postponed: Option<Vec<u8>>,
    next_stream: u32,
    next_ping: u64,
    /// How much may be sent over all streams.
    window: i64,
    /// The windows of streams, relative to the initial one in the settings.
    windows: BTreeMap<u32, i64>,
}

impl<S: Read + Write> Peer<S> {
    /// A client that has sent nothing yet.
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            opens_windows: true,
            acknowledges: true,
            settings: BTreeMap::new(),
            goaways: Vec::new(),
            responses: BTreeMap::new(),
            unread: Vec::new(),
            buffer: vec![0; 64 * 1024].into(),
            read: 0,
            decoder: Decoder::new(),
            partial: None,
            postponed: None,
            next_stream: 1,
            next_ping: 1 << 32,
            window: WINDOW as i64,
            windows: BTreeMap::new(),
        }
    }

    /// A client that has sent its preface with no settings.
    pub(crate) fn open(stream: S) -> Self {
        Self::open_with(stream, &[])
    }

    /// A client that has sent its preface with these settings.
    pub(crate) fn open_with(stream: S, values: &[(u16, u32)]) -> Self {
        let mut peer = Self::new(stream);
        peer.send([PREFACE, &settings(values)].concat());
        peer
    }

    /// Reads field blocks with a dynamic table of this size, as the settings promise.
    pub(crate) fn limit_table(&mut self, size: usize) {
        self.decoder.set_max_allowed_table_size(size);
        self.decoder.set_max_table_size(size.min(4096));
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        if let Some(postponed) = &mut self.postponed {
            postponed.extend_from_slice(bytes.as_ref());
            return Ok(());
        }
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// The number of a stream that was not used.
    pub(crate) fn next_stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Sends the head of a request.
    pub(crate) fn request(&mut self, fields: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.next_stream();
        self.send(head(stream, &block(fields), end));
        stream
    }

    /// Sends `GET path`.
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.request(&request("GET", path), true)
    }

    /// `GET path` and its response.
    pub(crate) fn fetch(&mut self, path: &str) -> StreamResponse {
        let stream = self.get(path);
        self.response(stream)
    }

    /// Sends a body, as much at once as the windows allow.
    pub(crate) fn upload(&mut self, stream: u32, body: &[u8], end: bool) {
        let mut rest = body;
        while !rest.is_empty() {
            let allowed = self.window.min(self.window_of(stream)).min(FRAME as i64);
            if allowed <= 0 {
                self.read().expect("a window");
                continue;
            }
            let (part, more) = rest.split_at(rest.len().min(allowed as usize));
            rest = more;
            self.spend(stream, part.len());
            self.send(data(stream, part, end && rest.is_empty()));
        }
        if body.is_empty() {
            self.send(data(stream, [], end));
        }
    }

    /// Counts data that was sent without [`Peer::upload`].
    pub(crate) fn spend(&mut self, stream: u32, bytes: usize) {
        self.window -= bytes as i64;
        *self.windows.entry(stream).or_default() -= bytes as i64;
    }

    /// Waits until the windows allow this much.
    pub(crate) fn wait_for_window(&mut self, stream: u32, bytes: usize) {
        self.until("a window", |peer| {
            peer.window.min(peer.window_of(stream)) >= bytes as i64
        });
    }

    /// How much may be sent over the connection now.
    pub(crate) fn window(&self) -> i64 {
        self.window
    }

    /// How much may be sent over a stream now, if the connection's window allows it.
    pub(crate) fn window_of(&self, stream: u32) -> i64 {
        let initial = self.settings.get(&setting::INITIAL_WINDOW_SIZE);
        let initial = initial.map_or(WINDOW as i64, |size| i64::from(*size));
        initial + self.windows.get(&stream).copied().unwrap_or(0)
    }

    /// The next frame. It is recorded, and acknowledged if required.
    ///
    /// # Errors
    /// The connection ended, or nothing arrived for long.
    pub(crate) fn read(&mut self) -> io::Result<RawFrame> {
        loop {
            if let Some(frame) = self.take_frame() {
                self.note(&frame);
                return Ok(frame);
            }
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        self.unread.drain(..self.read);
        self.read = 0;
        let read = self.stream.read(&mut self.buffer)?;
        self.unread.extend_from_slice(&self.buffer[..read]);
        Ok(read)
    }

    fn take_frame(&mut self) -> Option<RawFrame> {
        let bytes = &self.unread[self.read..];
        let [l1, l2, l3, kind, flags, s1, s2, s3, s4, rest @ ..] = bytes else {
            return None;
        };
        let length = u32::from_be_bytes([0, *l1, *l2, *l3]) as usize;
        let frame = RawFrame {
            kind: *kind,
            flags: *flags,
            stream: u32::from_be_bytes([*s1, *s2, *s3, *s4]),
            payload: rest.get(..length)?.to_vec(),
        };
        self.read += 9 + length;
        Some(frame)
    }

    fn note(&mut self, frame: &RawFrame) {
        if self.partial.is_some() {
            assert_eq!(
                frame.kind,
                kind::CONTINUATION,
                "a field block is interrupted"
            );
        }
        match frame.kind {
            kind::DATA => {
                let response = self.responses.entry(frame.stream).or_default();
                assert!(response.status != 0 && !response.ended && !frame.has(flag::PADDED));
                response.body.extend_from_slice(&frame.payload);
                response.ended = frame.has(flag::END_STREAM);
                if self.opens_windows && !frame.payload.is_empty() {
                    let length = frame.payload.len() as u32;
                    let mut credit = window_update(0, length);
                    if !frame.has(flag::END_STREAM) {
                        credit.extend(window_update(frame.stream, length));
                    }
                    // The server may have closed meanwhile.
                    let _ = self.try_send(credit);
                }
            }
            kind::HEADERS => {
                assert!(!frame.has(flag::PADDED | flag::PRIORITY));
                self.note_block(frame.clone());
            }
            kind::CONTINUATION => {
                let mut whole = self.partial.take().expect("a field block");
                assert_eq!(whole.stream, frame.stream);
                whole.payload.extend_from_slice(&frame.payload);
                whole.flags |= frame.flags & flag::END_HEADERS;
                self.note_block(whole);
            }
            kind::RST_STREAM => {
                let response = self.responses.entry(frame.stream).or_default();
                response.reset = Some(frame.number(0));
            }
            kind::SETTINGS if !frame.has(flag::ACK) => {
                for pair in frame.payload.chunks(6) {
                    let setting = u16::from_be_bytes([pair[0], pair[1]]);
                    let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
                    self.settings.insert(setting, value);
                }
                if self.acknowledges {
                    let _ = self.try_send(settings_ack());
                }
            }
            kind::PING if !frame.has(flag::ACK) && self.acknowledges => {
                let _ = self.try_send(apus_testkit::h2::frame(
                    kind::PING,
                    flag::ACK,
                    0,
                    &frame.payload,
                ));
            }
            kind::GOAWAY => self.goaways.push((frame.number(0), frame.number(4))),
            kind::WINDOW_UPDATE => {
                let window = match frame.stream {
                    0 => &mut self.window,
                    stream => self.windows.entry(stream).or_default(),
                };
                *window += i64::from(frame.number(0));
            }
            _ => {}
        }
    }

    fn note_block(&mut self, whole: RawFrame) {
        if !whole.has(flag::END_HEADERS) {
            self.partial = Some(whole);
            return;
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let fields = self.decoder.decode(&whole.payload).unwrap().into_iter();
        let fields = fields.map(|(name, value)| (text(name), text(value)));
        let response = self.responses.entry(whole.stream).or_default();
        assert!(!response.ended, "a field block after the end of its stream");
        response.take_head(fields.collect());
        response.ended = whole.has(flag::END_STREAM);
    }

    /// The frames that arrived on a stream so far.
    pub(crate) fn received(&mut self, stream: u32) -> &mut StreamResponse {
        self.responses.entry(stream).or_default()
    }

    /// Reads until this is so.
    ///
    /// # Errors
    /// The connection ended, or nothing came for long.
    pub(crate) fn read_until(
        &mut self,
        mut reached: impl FnMut(&mut Self) -> bool,
    ) -> io::Result<()> {
        while !reached(self) {
            self.read()?;
        }
        Ok(())
    }

    /// As [`Peer::read_until`], where it has to come.
    pub(crate) fn until(&mut self, what: &str, reached: impl FnMut(&mut Self) -> bool) {
        if let Err(error) = self.read_until(reached) {
            panic!("{error} before {what}; GOAWAY {:?}", self.goaways);
        }
    }

    /// The whole response on a stream.
    pub(crate) fn response(&mut self, stream: u32) -> StreamResponse {
        self.until(&format!("the response on stream {stream}"), |peer| {
            let response = peer.received(stream);
            assert_eq!(
                response.reset, None,
                "stream {stream} was reset: {response:?}"
            );
            response.ended
        });
        self.responses.remove(&stream).unwrap()
    }

    /// The head of the response on a stream, which may go on.
    pub(crate) fn head(&mut self, stream: u32) -> StreamResponse {
        self.until(&format!("the head on stream {stream}"), |peer| {
            let response = peer.received(stream);
            assert_eq!(
                response.reset, None,
                "stream {stream} was reset: {response:?}"
            );
            response.status != 0
        });
        self.received(stream).clone()
    }

    /// The code with which the server resets a stream.
    pub(crate) fn reset_of(&mut self, stream: u32) -> u32 {
        self.until(&format!("the reset of stream {stream}"), |peer| {
            peer.received(stream).reset.is_some()
        });
        self.received(stream).reset.unwrap()
    }

    /// The code of the last GOAWAY before the server closes.
    pub(crate) fn goaway(&mut self) -> u32 {
        let end = loop {
            if let Err(error) = self.read() {
                break error;
            }
        };
        assert!(is_end(&end), "not closed: {end}; GOAWAY {:?}", self.goaways);
        match self.goaways.last() {
            Some((_, code)) => *code,
            None => panic!("closed without GOAWAY: {end}"),
        }
    }

    /// The server closes, with a GOAWAY that has nothing to complain of.
    pub(crate) fn assert_ended(&mut self) {
        assert_eq!(self.goaway(), code::NO_ERROR);
    }

    /// Reads all that the server sent up to now: it has acknowledged two PING frames, one after the other.
    pub(crate) fn fence(&mut self) {
        for _ in 0..2 {
            self.next_ping += 1;
            let payload = self.next_ping;
            self.send(ping(payload));
            loop {
                let frame = self.read().expect("a response to a PING");
                if frame.kind == kind::PING
                    && frame.has(flag::ACK)
                    && frame.payload == payload.to_be_bytes()
                {
                    break;
                }
            }
        }
    }
}

/// Whether an error of a read means that the connection has ended.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

impl Peer<TcpStream> {
    fn fill_without_waiting(&mut self) -> io::Result<usize> {
        self.unread.drain(..self.read);
        self.read = 0;
        let (read, _) = recv(&self.stream, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
        self.unread.extend_from_slice(&self.buffer[..read]);
        Ok(read)
    }

    /// Reads all available input: a GOAWAY behind what is left unread would be lost with a reset. Returns whether the
    /// connection is still open.
    pub(crate) fn pump(&mut self) -> bool {
        loop {
            let filled = self.fill_without_waiting();
            while let Some(frame) = self.take_frame() {
                self.note(&frame);
            }
            match filled {
                Ok(0) => return false,
                Ok(_) if self.goaways.is_empty() => {}
                Ok(_) => return true,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Sends these bytes, made anew for each turn, until the server sends GOAWAY or closes. Returns the
    /// number of turns and the code.
    pub(crate) fn flood(
        &mut self,
        most: usize,
        mut turn: impl FnMut(&mut Self) -> Vec<u8>,
    ) -> (usize, u32) {
        for turns in 0..most {
            let bytes = turn(self);
            if !self.send_and_read(bytes) || !self.goaways.is_empty() {
                return (turns, self.goaway());
            }
        }
        // The server may not have handled the last bytes.
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
        match self.goaway() {
            code::NO_ERROR => panic!("{most} turns were not stopped"),
            code => (most, code),
        }
    }

    /// Sends these bytes, and replies to what comes meanwhile: a server whose responses are not read does not read either, so
    /// that a client that only writes waits until the server gives it up. Returns whether the connection is still open.
    fn send_and_read(&mut self, bytes: Vec<u8>) -> bool {
        self.postponed = Some(bytes);
        let is_open = self.send_postponed();
        self.postponed = None;
        is_open
    }

    fn send_postponed(&mut self) -> bool {
        let mut unsent = Vec::new();
        loop {
            if !self.pump() {
                return false;
            }
            unsent.append(&mut self.postponed.replace(Vec::new()).unwrap_or_default());
            if unsent.is_empty() || !self.goaways.is_empty() {
                return true;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.stream, &unsent, flags) {
                Ok(written) => drop(unsent.drain(..written)),
                Err(Errno::WOULDBLOCK) => {
                    std::thread::park_timeout(std::time::Duration::from_millis(1));
                }
                // What the server sent before is still to be read.
                Err(_) => return false,
            }
        }
    }
}
