//! Content that is taken in faster than it is passed on: in memory up to a size, in a file without a
//! name beyond.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::{cell::RefCell, collections::VecDeque};

use apus_http::{Body, BodyError, BodyStream, FileRange, Frame, Headers};
use bytes::Bytes;

use super::frames::Frames;

/// How much content is taken in, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Bytes in memory; what is more goes into the file.
    pub memory: u64,
    /// Bytes in a file; 0 is none, and then no more is taken in than memory holds.
    pub disk: u64,
    /// The folder of the file.
    pub folder: PathBuf,
}

impl Hold {
    /// Takes in the whole of `body` before it is passed on. Content that is larger than allowed is
    /// passed on as what there is and then what still comes.
    ///
    /// # Errors
    /// The content broke off. A file that cannot be written ends the taking in, and is no error.
    pub(super) async fn take_in(&self, mut body: Body) -> Result<Body, BodyError> {
        if !matches!(body, Body::Stream(_)) {
            return Ok(body);
        }
        let mut held = Held::default();
        let mut in_memory = 0_u64;
        loop {
            match body.frame().await {
                None => return Ok(held.then(None)),
                Some(Err(error)) => return Err(error),
                Some(Ok(Frame::Trailers(lines))) => {
                    held.trailers = Some(lines);
                    return Ok(held.then(None));
                }
                Some(Ok(Frame::File(range))) => held.pieces.push_back(Piece::File(range)),
                Some(Ok(Frame::Data(bytes))) => {
                    let fits = in_memory.saturating_add(bytes.len() as u64) <= self.memory;
                    if fits && held.spool.is_none() {
                        in_memory = in_memory.saturating_add(bytes.len() as u64);
                        held.pieces.push_back(Piece::Bytes(bytes));
                        continue;
                    }
                    let spooled = held.spool.as_ref().map_or(0, |spool| spool.len);
                    if spooled >= self.disk {
                        held.pieces.push_back(Piece::Bytes(bytes));
                        return Ok(held.then(Some(body)));
                    }
                    if let Err((bytes, error)) = held.spool(bytes, &self.folder).await {
                        tracing::warn!(
                            folder = %self.folder.display(), %error,
                            "cannot hold content in a file; it is passed on as it comes"
                        );
                        held.pieces.push_back(Piece::Bytes(bytes));
                        return Ok(held.then(Some(body)));
                    }
                }
            }
        }
    }

    /// Takes `body` in by a task of its own, as far ahead of its reader as allowed in memory.
    pub(crate) fn run_ahead(&self, body: Body) -> Body {
        if !matches!(body, Body::Stream(_)) {
            return body;
        }
        let shared = Rc::new(RefCell::new(Ahead {
            frames: Frames::new(body.len()),
            ..Ahead::default()
        }));
        let most = usize::try_from(self.memory).unwrap_or(usize::MAX);
        tokio::task::spawn_local(fill(Rc::clone(&shared), body, most));
        Body::stream(AheadStream(shared))
    }
}

/// Content that was taken in.
#[derive(Default)]
struct Held {
    pieces: VecDeque<Piece>,
    spool: Option<Spool>,
    trailers: Option<Headers>,
}

enum Piece {
    Bytes(Bytes),
    File(FileRange),
}

/// A file without a name, which is gone when it is closed.
struct Spool {
    file: Arc<File>,
    len: u64,
}

impl Held {
    async fn spool(
        &mut self,
        bytes: Bytes,
        folder: &std::path::Path,
    ) -> Result<(), (Bytes, io::Error)> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => match open(folder.to_owned()).await {
                Ok(file) => self.spool.insert(Spool {
                    file: Arc::new(file),
                    len: 0,
                }),
                Err(error) => return Err((bytes, error)),
            },
        };
        let (file, at) = (Arc::clone(&spool.file), spool.len);
        let written = bytes.clone();
        let result = tokio::task::spawn_blocking(move || {
            std::os::unix::fs::FileExt::write_all_at(&*file, &written, at)
        });
        match result
            .await
            .map_err(io::Error::other)
            .and_then(|result| result)
        {
            Ok(()) => {
                let len = bytes.len() as u64;
                let range = FileRange {
                    file: Arc::clone(&spool.file),
                    offset: at,
                    len,
                };
                spool.len = at.saturating_add(len);
                match self.pieces.back_mut() {
                    // One range for all that lies in one piece.
                    Some(Piece::File(last))
                        if Arc::ptr_eq(&last.file, &range.file)
                            && last.offset.saturating_add(last.len) == at =>
                    {
                        last.len = last.len.saturating_add(len);
                    }
                    _ => self.pieces.push_back(Piece::File(range)),
                }
                Ok(())
            }
            Err(error) => Err((bytes, error)),
        }
    }

    /// The content: what was taken in, then `rest`.
    fn then(mut self, rest: Option<Body>) -> Body {
        if rest.is_none() && self.trailers.is_none() && self.pieces.len() <= 1 {
            return match self.pieces.pop_front() {
                None => Body::Empty,
                Some(Piece::Bytes(bytes)) => bytes.into(),
                Some(Piece::File(range)) => Body::File(range),
            };
        }
        let is_memory = self
            .pieces
            .iter()
            .all(|piece| matches!(piece, Piece::Bytes(_)));
        if rest.is_none() && self.trailers.is_none() && is_memory {
            let mut whole = Vec::new();
            for piece in &self.pieces {
                if let Piece::Bytes(bytes) = piece {
                    whole.extend_from_slice(bytes);
                }
            }
            return whole.into();
        }
        Body::stream(HeldStream { held: self, rest })
    }
}

/// Opens a file that nobody else can.
async fn open(folder: PathBuf) -> io::Result<File> {
    let opened = tokio::task::spawn_blocking(move || {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)
    });
    Ok(opened.await.map_err(io::Error::other)??.into())
}

struct HeldStream {
    held: Held,
    rest: Option<Body>,
}

impl BodyStream for HeldStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(piece) = self.held.pieces.pop_front() {
            return Poll::Ready(Some(Ok(match piece {
                Piece::Bytes(bytes) => Frame::Data(bytes),
                Piece::File(range) => Frame::File(range),
            })));
        }
        match &mut self.rest {
            Some(rest) => rest.poll_frame(cx),
            None => Poll::Ready(
                self.held
                    .trailers
                    .take()
                    .map(|lines| Ok(Frame::Trailers(lines))),
            ),
        }
    }

    fn remaining(&self) -> Option<u64> {
        let rest = self.rest.as_ref().map_or(Some(0), Body::len)?;
        let held = self.held.pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File(range) => range.len,
        });
        rest.checked_add(held.sum())
    }
}

/// Content between the task that takes it in and its reader.
#[derive(Default)]
struct Ahead {
    frames: Frames,
    end: Option<Option<BodyError>>,
    is_abandoned: bool,
    reader: Option<Waker>,
    filler: Option<Waker>,
}

async fn fill(shared: Rc<RefCell<Ahead>>, mut body: Body, most: usize) {
    std::future::poll_fn(|cx| {
        loop {
            {
                let mut ahead = shared.borrow_mut();
                if ahead.is_abandoned {
                    return Poll::Ready(());
                }
                if ahead.frames.held() >= most {
                    ahead.filler = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            let frame = match body.poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    // Also woken when the reader has gone.
                    shared.borrow_mut().filler = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            };
            let mut ahead = shared.borrow_mut();
            let is_end = !matches!(frame, Some(Ok(_)));
            match frame {
                Some(Ok(frame)) => ahead.frames.push(frame),
                Some(Err(error)) => ahead.end = Some(Some(error)),
                None => ahead.end = Some(None),
            }
            if let Some(reader) = ahead.reader.take() {
                reader.wake();
            }
            if is_end {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

struct AheadStream(Rc<RefCell<Ahead>>);

impl BodyStream for AheadStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut ahead = self.0.borrow_mut();
        if let Some(frame) = ahead.frames.pop() {
            if let Some(filler) = ahead.filler.take() {
                filler.wake();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        match ahead.end.take() {
            Some(Some(error)) => Poll::Ready(Some(Err(error))),
            Some(None) => Poll::Ready(None),
            None => {
                ahead.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.0.borrow().frames.remaining()
    }
}

impl Drop for AheadStream {
    fn drop(&mut self) {
        let mut ahead = self.0.borrow_mut();
        ahead.is_abandoned = true;
        ahead.frames.clear();
        if let Some(filler) = ahead.filler.take() {
            filler.wake();
        }
    }
}
