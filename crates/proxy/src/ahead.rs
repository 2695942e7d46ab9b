//! A body that is taken in faster than it is read, into memory and then a file.
//!
//! Nothing is delayed: what came is read as soon as anybody wants it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{Body, BodyError, BodyStream, Frame};
use bytes::Bytes;

use super::frames::Frames;
use super::hold::Hold;
use super::spool::Spool;

/// Bytes that are written to the file at once, where so many came.
const GATHERED: usize = 256 * 1024;

impl Hold {
    /// Takes `body` in by a task of its own, as far ahead of its reader as allowed.
    pub fn run_ahead(&self, body: Body) -> Body {
        if !matches!(body, Body::Stream(_)) {
            return body;
        }
        let shared = Rc::new(RefCell::new(AheadBuffer {
            frames: Frames::new(body.len()),
            ..AheadBuffer::default()
        }));
        let filler = AheadFiller {
            body,
            shared: Rc::clone(&shared),
            // Something has to go into memory where no file can be written.
            most: usize::try_from(self.memory).unwrap_or(usize::MAX).max(1),
            spool: Spool::of_response(self),
        };
        tokio::task::spawn_local(filler.run());
        Body::stream(AheadStream(shared))
    }
}

/// The body between the task that takes it in and its reader.
#[derive(Default)]
struct AheadBuffer {
    frames: Frames,
    end: Option<Result<(), BodyError>>,
    is_abandoned: bool,
    reader: Option<Waker>,
    filler: Option<Waker>,
}

impl AheadBuffer {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_filler(&mut self) {
        if let Some(filler) = self.filler.take() {
            filler.wake();
        }
    }
}

/// What takes the body in.
struct AheadFiller {
    body: Body,
    shared: Rc<RefCell<AheadBuffer>>,
    most: usize,
    spool: Spool,
}

/// What the body gave.
enum BodyEvent {
    Frame(Frame),
    End(Result<(), BodyError>),
}

impl AheadFiller {
    async fn run(mut self) {
        while let Some(event) = poll_fn(|cx| self.poll_next(cx)).await {
            let Some(end) = self.take(event).await else {
                continue;
            };
            let mut shared = self.shared.borrow_mut();
            shared.end = Some(end);
            shared.wake_reader();
            return;
        }
    }

    /// What comes next, once there is room for it; `None` when nobody reads any more.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyEvent>> {
        {
            let mut shared = self.shared.borrow_mut();
            if shared.is_abandoned {
                return Poll::Ready(None);
            }
            // Also while the body is waited for: the reader may go.
            if !(shared.filler.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
                shared.filler = Some(cx.waker().clone());
            }
            if !shared.frames.has_file() {
                self.spool.renew();
            }
            if shared.frames.held() >= self.most && self.spool.room() == 0 {
                return Poll::Pending;
            }
        }
        self.poll_body(cx).map(Some)
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<BodyEvent> {
        self.body.poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => BodyEvent::Frame(frame),
            Some(Err(error)) => BodyEvent::End(Err(error)),
            None => BodyEvent::End(Ok(())),
        })
    }

    /// Takes in what the body gave. Tells its end.
    async fn take(&mut self, event: BodyEvent) -> Option<Result<(), BodyError>> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let frame = match event {
                BodyEvent::Frame(frame) => frame,
                BodyEvent::End(end) => return Some(end),
            };
            let is_full = self.shared.borrow().frames.held() >= self.most;
            match frame {
                Frame::Data(bytes) if is_full && self.spool.room() > 0 => {
                    let pieces;
                    (pieces, next) = self.gather(bytes).await;
                    self.put_aside(pieces).await;
                }
                frame => self.push(frame),
            }
        }
        None
    }

    /// These bytes and those that can be had at once behind them, and what is not of their kind.
    async fn gather(&mut self, first: Bytes) -> (Vec<Bytes>, Option<BodyEvent>) {
        let room = usize::try_from(self.spool.room()).unwrap_or(usize::MAX);
        let (most, mut len) = (GATHERED.min(room), first.len());
        let mut pieces = vec![first];
        while len < most {
            let polled = poll_fn(|cx| Poll::Ready(self.poll_body(cx))).await;
            match polled {
                Poll::Ready(BodyEvent::Frame(Frame::Data(bytes))) => {
                    len = len.saturating_add(bytes.len());
                    pieces.push(bytes);
                }
                Poll::Ready(other) => return (pieces, Some(other)),
                Poll::Pending => break,
            }
        }
        (pieces, None)
    }

    /// Puts bytes into the file, or into memory where that cannot be done.
    async fn put_aside(&mut self, pieces: Vec<Bytes>) {
        match self.spool.write(pieces).await {
            Ok(range) => self.push(Frame::File(range)),
            Err(pieces) => pieces
                .into_iter()
                .for_each(|piece| self.push(Frame::Data(piece))),
        }
    }

    fn push(&self, frame: Frame) {
        let mut shared = self.shared.borrow_mut();
        if !shared.is_abandoned {
            shared.frames.push(frame);
            shared.wake_reader();
        }
    }
}

/// The body for its reader.
struct AheadStream(Rc<RefCell<AheadBuffer>>);

impl BodyStream for AheadStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut shared = self.0.borrow_mut();
        if let Some(frame) = shared.frames.pop() {
            shared.wake_filler();
            return Poll::Ready(Some(Ok(frame)));
        }
        match shared.end.take() {
            Some(end) => Poll::Ready(end.err().map(Err)),
            None => {
                shared.reader = Some(cx.waker().clone());
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
        let mut shared = self.0.borrow_mut();
        shared.is_abandoned = true;
        shared.frames.clear();
        shared.wake_filler();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A body of which no eight bytes stand at two places, in pieces of many sizes.
    struct Source {
        given: Rc<Cell<usize>>,
        pieces: usize,
        size: usize,
        /// Where it breaks off.
        breaks: Option<usize>,
    }

    fn pattern(from: usize, to: usize) -> Vec<u8> {
        let byte = |at: usize| {
            let word = (at as u64 / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (word ^ word >> 29).to_le_bytes()[at % 8]
        };
        (from..to).map(byte).collect()
    }

    /// No piece is longer.
    const PIECE: usize = 70_000;

    impl BodyStream for Source {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            let given = self.given.get();
            if self.breaks.is_some_and(|at| given >= at) {
                return Poll::Ready(Some(Err(BodyError::TimedOut)));
            }
            if given == self.size {
                return Poll::Ready(None);
            }
            self.pieces += 1;
            let len = [1, PIECE, 16_384, 3, 40_000][self.pieces % 5];
            let to = self.size.min(given + len);
            self.given.set(to);
            Poll::Ready(Some(Ok(Frame::Data(pattern(given, to).into()))))
        }

        fn remaining(&self) -> Option<u64> {
            Some((self.size - self.given.get()) as u64)
        }
    }

    fn source(size: usize, breaks: Option<usize>) -> (Body, Rc<Cell<usize>>) {
        let given = Rc::<Cell<usize>>::default();
        let body = Body::stream(Source {
            given: Rc::clone(&given),
            pieces: 0,
            size,
            breaks,
        });
        (body, given)
    }

    fn hold(memory: u64, disk: u64, folder: &Path) -> Hold {
        Hold {
            memory,
            disk,
            folder: folder.to_owned(),
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        let limit = Duration::from_secs(60);
        runtime.block_on(async { tokio::time::timeout(limit, test).await.unwrap() });
    }

    /// Waits until so much was taken in.
    async fn taken(given: &Cell<usize>, at_least: usize) {
        while given.get() < at_least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        match frame {
            Frame::Data(bytes) => bytes.to_vec(),
            Frame::File(range) => {
                let mut bytes = vec![0; range.len as usize];
                range.file.read_exact_at(&mut bytes, range.offset).unwrap();
                bytes
            }
            Frame::Trailers(_) => panic!("trailers"),
        }
    }

    /// Reads to the end, which it gives with all the bytes.
    async fn read(body: &mut Body) -> (Vec<u8>, Option<BodyError>) {
        let mut bytes = Vec::new();
        loop {
            match body.frame().await {
                Some(Ok(frame)) => bytes.extend(bytes_of(&frame)),
                Some(Err(error)) => return (bytes, Some(error)),
                None => return (bytes, None),
            }
        }
    }

    #[test]
    fn every_byte_comes_around_every_threshold_and_no_more_is_taken_than_allowed() {
        const MEMORY: usize = 10_000;
        const DISK: usize = 300_000;
        let folder = tempfile::tempdir().unwrap();
        let thresholds = [
            1,
            MEMORY,
            PIECE,
            MEMORY + PIECE,
            GATHERED,
            MEMORY + GATHERED,
            DISK,
            MEMORY + DISK,
            2 * DISK,
        ];
        for (memory, disk) in [(MEMORY, DISK), (MEMORY, 0), (0, DISK), (1, 1), (DISK, 1)] {
            for size in thresholds.iter().flat_map(|at| at - 1..=at + 1) {
                run(async {
                    let what = format!("{size} bytes, {memory} in memory, {disk} in a file");
                    let (body, given) = source(size, None);
                    let hold = hold(memory as u64, disk as u64, folder.path());
                    let mut ahead = hold.run_ahead(body);
                    assert_eq!(ahead.len(), Some(size as u64));
                    taken(&given, size.min(memory.max(1) + disk)).await;
                    // As long as nobody reads, no more is taken than what fills both.
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    let most = memory + disk + 4 * PIECE;
                    assert!(given.get() <= most, "{what}: {} taken", given.get());
                    let (bytes, error) = read(&mut ahead).await;
                    assert!(error.is_none(), "{what}: {error:?}");
                    assert!(bytes == pattern(0, size), "{what}: {} bytes", bytes.len());
                });
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_given_to_the_reader_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let size = 3_000_000;
            let (body, _) = source(size, None);
            let mut ahead = hold(20_000, 100_000, folder.path()).run_ahead(body);
            let mut frames = Vec::new();
            while let Some(frame) = ahead.frame().await {
                frames.push(frame.unwrap());
                tokio::task::yield_now().await;
            }
            let bytes: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
            assert!(bytes == pattern(0, size));
        });
    }

    #[test]
    fn a_body_that_breaks_off_is_never_taken_for_whole() {
        let folder = tempfile::tempdir().unwrap();
        for breaks in [0, 1, 10_000, 100_000, 900_000] {
            run(async {
                let (body, _) = source(1_000_000, Some(breaks));
                let mut ahead = hold(10_000, 500_000, folder.path()).run_ahead(body);
                let (bytes, error) = read(&mut ahead).await;
                assert!(matches!(error, Some(BodyError::TimedOut)), "{breaks}");
                assert!(bytes.len() >= breaks && bytes == pattern(0, bytes.len()));
            });
        }
    }

    #[test]
    fn without_a_file_it_comes_at_the_pace_of_its_reader() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        run(async {
            let (body, given) = source(2_000_000, None);
            let mut ahead = hold(10_000, 1 << 30, &gone).run_ahead(body);
            taken(&given, 10_000).await;
            let mut bytes = bytes_of(&ahead.frame().await.unwrap().unwrap());
            assert!(given.get() <= 10_000 + GATHERED + 3 * PIECE);
            let (rest, error) = read(&mut ahead).await;
            assert!(error.is_none());
            bytes.extend(rest);
            assert!(bytes == pattern(0, 2_000_000));
        });
    }

    #[test]
    fn who_goes_away_ends_the_taking_in() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let (body, given) = source(usize::MAX, None);
            let ahead = hold(10_000, 500_000, folder.path()).run_ahead(body);
            taken(&given, 510_000).await;
            drop(ahead);
            // The source is let go of, and with it its count.
            while Rc::strong_count(&given) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn an_event_is_read_as_soon_as_it_comes() {
        struct Events(tokio::sync::mpsc::Receiver<Bytes>);
        impl BodyStream for Events {
            fn poll_frame(
                &mut self,
                cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame, BodyError>>> {
                let polled = self.0.poll_recv(cx);
                polled.map(|event| event.map(|event| Ok(Frame::Data(event))))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            let mut ahead =
                hold(4, 1 << 20, folder.path()).run_ahead(Body::stream(Events(receiver)));
            for number in 0..100 {
                let event = format!("data: {number}\n\n");
                sender.send(event.clone().into()).await.unwrap();
                let frame = ahead.frame().await.unwrap().unwrap();
                assert_eq!(bytes_of(&frame), event.as_bytes());
            }
            drop(sender);
            assert!(ahead.frame().await.is_none());
        });
    }
}
