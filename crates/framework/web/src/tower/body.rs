//! Conversion of bodies between Apus and `http-body`, frame by frame.

use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, BodyStream, FileRange, Frame, Headers};
use bytes::{Buf, Bytes};
use http_body::SizeHint;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::BoxError;

/// The number of frames that wait for the reader.
const QUEUED_FRAMES: usize = 1;

/// The bytes of a file that are read at a time.
const PIECE: u64 = 64 * 1024;

/// A body that is `Send`: the request body of `tower` services, and the response body of
/// [`SendApp`](super::SendApp).
#[derive(Debug)]
pub struct SendBody(SendBodyKind);

#[derive(Debug)]
enum SendBodyKind {
    Whole(Bytes),
    Pieces {
        frames: mpsc::Receiver<Result<http_body::Frame<Bytes>, BodyError>>,
        remaining: Option<u64>,
    },
}

impl SendBody {
    /// An empty body.
    pub(super) fn empty() -> Self {
        Self(SendBodyKind::Whole(Bytes::new()))
    }

    /// The body of a message. A body that is not in memory is read by a task on this thread.
    pub(super) fn of(body: Body) -> Self {
        match body {
            Body::Empty => Self::empty(),
            Body::Bytes(bytes) => Self(SendBodyKind::Whole(bytes)),
            Body::Sealed(sealed) => Self(SendBodyKind::Whole(sealed.into_bytes())),
            body => {
                let remaining = body.len();
                let (sender, frames) = mpsc::channel(QUEUED_FRAMES);
                tokio::task::spawn_local(pump(LocalBody::new(body), sender));
                Self(SendBodyKind::Pieces { frames, remaining })
            }
        }
    }
}

/// Reads a body as fast as the receiver takes its frames, until the receiver is gone.
async fn pump(
    mut body: LocalBody,
    sender: mpsc::Sender<Result<http_body::Frame<Bytes>, BodyError>>,
) {
    while let Ok(permit) = sender.reserve().await {
        let next = std::future::poll_fn(|cx| {
            let body = Pin::new(&mut body);
            http_body::Body::poll_frame(body, cx)
        });
        let frame = tokio::select! {
            frame = next => frame,
            () = sender.closed() => return,
        };
        match frame {
            Some(frame) => permit.send(frame),
            None => return,
        }
    }
}

impl http_body::Body for SendBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            SendBodyKind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            SendBodyKind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready(Some(Ok(http_body::Frame::data(bytes))))
            }
            SendBodyKind::Pieces { frames, remaining } => {
                let frame = ready!(frames.poll_recv(cx));
                if let (Some(remaining), Some(Ok(frame))) = (remaining, &frame) {
                    let len = frame.data_ref().map_or(0, |data| data.len() as u64);
                    *remaining = remaining.saturating_sub(len);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, SendBodyKind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            SendBodyKind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            SendBodyKind::Pieces { remaining, .. } => {
                remaining.map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        }
    }
}

/// A body that is not `Send`: the response body of [`TowerApp`](super::TowerApp).
#[derive(Debug)]
pub struct LocalBody {
    body: Body,
    /// The rest of a file that is being sent, and the task that reads its next piece.
    file: Option<FileRange>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl LocalBody {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            file: None,
            reading: None,
        }
    }

    /// The next piece of the file, read on a blocking thread.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.reading.is_none() {
            let Some(range) = self.file.as_mut().filter(|range| range.len > 0) else {
                self.file = None;
                return Poll::Ready(None);
            };
            let (file, offset) = (range.file.clone(), range.offset);
            let len = range.len.min(PIECE);
            range.offset = range.offset.saturating_add(len);
            range.len = range.len.saturating_sub(len);
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; usize::try_from(len).map_err(io::Error::other)?];
                file.read_exact_at(&mut piece, offset)?;
                Ok(Bytes::from(piece))
            }));
        }
        let Some(reading) = &mut self.reading else {
            return Poll::Ready(None);
        };
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        Poll::Ready(Some(
            read.unwrap_or_else(|error| Err(io::Error::other(error))),
        ))
    }
}

impl http_body::Body for LocalBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        loop {
            if self.file.is_some() {
                match ready!(self.poll_file(cx)) {
                    Some(Ok(piece)) => {
                        return Poll::Ready(Some(Ok(http_body::Frame::data(piece))));
                    }
                    Some(Err(error)) => {
                        self.file = None;
                        self.body = Body::Empty;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                    None => {}
                }
            }
            return Poll::Ready(match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) => Some(Ok(http_body::Frame::data(bytes))),
                Some(Ok(Frame::Trailers(trailers))) => {
                    Some(Ok(http_body::Frame::trailers(trailers.to_header_map())))
                }
                Some(Ok(Frame::File(range))) => {
                    self.file = Some(range);
                    continue;
                }
                Some(Err(error)) => Some(Err(error)),
                None => None,
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.file.is_none() && matches!(self.body, Body::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        let in_file = self.file.as_ref().map_or(0, |range| range.len);
        match (self.body.len(), &self.reading) {
            (Some(len), None) => SizeHint::with_exact(len.saturating_add(in_file)),
            _ => SizeHint::new(),
        }
    }
}

/// A body of the `http-body` crate as a stream of Apus.
pub(super) struct HttpBodyStream<B>(pub(super) Pin<Box<B>>);

impl<B> BodyStream for HttpBodyStream<B>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(match ready!(self.0.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => Some(frame_of(frame)),
            Some(Err(error)) => Some(Err(BodyError::Source(error.into()))),
            None => None,
        })
    }

    fn remaining(&self) -> Option<u64> {
        self.0.size_hint().exact()
    }
}

fn frame_of<D: Buf>(frame: http_body::Frame<D>) -> Result<Frame, BodyError> {
    match frame.into_data() {
        // This does not copy if the data is `Bytes`.
        Ok(mut data) => Ok(Frame::Data(data.copy_to_bytes(data.remaining()))),
        Err(frame) => {
            let trailers = frame.into_trailers();
            let trailers = trailers
                .as_ref()
                .map_or_else(|_| Headers::new(), Headers::from);
            Ok(Frame::Trailers(trailers))
        }
    }
}
