//! A body that is compressed piece by piece, as the client takes it.

use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::fields::remove_digests;
use apus_http::{Body, BodyError, BodyStream, ConnectionReservation, FileRange, Frame, Headers};
use bytes::{Bytes, BytesMut};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::encoder::ContentEncoder;
use crate::encoding::{Encoding, PIECE};

/// Brotli is flushed after this number of bytes. It would hold back twice its window otherwise, in
/// memory that is several times as much.
const FLUSH_AFTER: usize = 64 * 1024;

/// A body that is compressed as it is sent.
struct CompressedBody {
    source: Body,
    /// Whether each frame of the source is sent on at once, as events need it.
    flushes: bool,
    state: EncoderState,
    /// Bytes that were compressed since the last flush.
    unflushed: usize,
    /// Bytes of the source that are not compressed yet.
    pending: Bytes,
    file: Option<FileRange>,
    /// The piece of the file that is being read.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    trailers: Option<Headers>,
    /// The memory of the encoder, released with it.
    memory: Option<ConnectionReservation>,
}

/// The state of the encoder.
enum EncoderState {
    /// The encoder is created when the client can take something.
    Unstarted(Encoding),
    Started(Box<ContentEncoder>),
    Ended,
}

impl Encoding {
    /// The same body, compressed as it is sent. `memory` is the reservation for it; a body that is not
    /// going to be sent, as for HEAD, needs none.
    pub fn stream(self, body: Body, memory: Option<ConnectionReservation>) -> Body {
        Body::stream(CompressedBody::new(body, self, memory))
    }
}

impl CompressedBody {
    fn new(source: Body, encoding: Encoding, memory: Option<ConnectionReservation>) -> Self {
        Self {
            flushes: matches!(source, Body::Stream(_)),
            source,
            state: EncoderState::Unstarted(encoding),
            unflushed: 0,
            pending: Bytes::new(),
            file: None,
            reading: None,
            trailers: None,
            memory,
        }
    }

    /// Compresses a piece of the pending bytes, and returns the output of the encoder.
    fn advance(&mut self) -> io::Result<Bytes> {
        let Some(encoder) = self.state.start()? else {
            return Ok(Bytes::new());
        };
        let piece = self.pending.split_to(self.pending.len().min(PIECE));
        encoder.write(&piece)?;
        self.unflushed = self.unflushed.saturating_add(piece.len());
        let is_wanted = self.pending.is_empty() && self.flushes && self.file.is_none();
        let is_much = self.unflushed >= FLUSH_AFTER && encoder.holds_back();
        if is_wanted || is_much {
            encoder.flush()?;
            self.unflushed = 0;
        }
        Ok(encoder.take())
    }

    /// Ends the compressed body, and returns its last bytes.
    fn finish(&mut self) -> io::Result<Bytes> {
        self.state.start()?;
        let rest = match std::mem::replace(&mut self.state, EncoderState::Ended) {
            EncoderState::Started(encoder) => encoder.finish()?.into(),
            EncoderState::Unstarted(_) | EncoderState::Ended => Bytes::new(),
        };
        self.memory = None;
        Ok(rest)
    }

    /// Reads the next piece of a file that the source gave, on a thread that may wait for the disk.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(range) = &mut self.file else {
            return Poll::Ready(Ok(()));
        };
        let len = usize::try_from(range.len).map_or(PIECE, |len| len.min(PIECE));
        let reading = self.reading.get_or_insert_with(|| {
            let (file, offset) = (range.file.clone(), range.offset);
            spawn_blocking(move || {
                let mut piece = BytesMut::zeroed(len);
                file.read_exact_at(&mut piece, offset)?;
                Ok(piece.freeze())
            })
        });
        let read = ready!(Pin::new(reading).poll(cx)).unwrap_or_else(|error| Err(error.into()));
        self.reading = None;
        let piece = read?;
        range.offset = range.offset.saturating_add(piece.len() as u64);
        range.len = range.len.saturating_sub(piece.len() as u64);
        if range.len == 0 {
            self.file = None;
        }
        self.pending = piece;
        Poll::Ready(Ok(()))
    }
}

impl EncoderState {
    /// The encoder, created if it has to be; `None` once the body has ended.
    fn start(&mut self) -> io::Result<Option<&mut ContentEncoder>> {
        if let Self::Unstarted(encoding) = self {
            *self = Self::Started(Box::new(ContentEncoder::new(*encoding)?));
        }
        Ok(match self {
            Self::Started(encoder) => Some(encoder),
            Self::Unstarted(_) | Self::Ended => None,
        })
    }
}

impl BodyStream for CompressedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if self.pending.is_empty() {
                ready!(self.poll_file(cx))?;
            }
            if !self.pending.is_empty() {
                let output = self.advance()?;
                if !output.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::Data(output))));
                }
                if !self.pending.is_empty() || self.file.is_some() {
                    // Other connections have their turn before the next piece.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            if matches!(self.state, EncoderState::Ended) {
                return Poll::Ready(self.trailers.take().map(|lines| Ok(Frame::Trailers(lines))));
            }
            match ready!(self.source.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => self.pending = bytes,
                Some(Ok(Frame::File(range))) => {
                    self.file = Some(range).filter(|range| range.len > 0)
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                end => {
                    if let Some(Ok(Frame::Trailers(mut lines))) = end {
                        remove_digests(&mut lines);
                        self.trailers = Some(lines);
                    }
                    let rest = self.finish()?;
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(rest))));
                    }
                }
            }
        }
    }

    fn waits_for_window(&self) -> bool {
        !matches!(self.state, EncoderState::Ended)
    }
}
