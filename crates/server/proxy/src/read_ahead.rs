//! Read-ahead of a response body, into memory and then a file, for a client that reads slower than the origin sends.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_http::{Body, BodyError, BodyStream, Frame};
use bytes::Bytes;

use super::frame_queue::FrameQueue;
use super::hold::HoldSettings;
use super::spool::Spool;

/// The most bytes of one write to the file.
const MAX_WRITE: usize = 256 * 1024;

impl HoldSettings {
    /// Reads `body` in a separate task, as far ahead of its reader as the settings allow.
    pub fn read_ahead(&self, body: Body) -> Body {
        if !matches!(body, Body::Stream(_)) {
            return body;
        }
        let shared = Rc::new(RefCell::new(ReadAheadBuffer {
            frames: FrameQueue::new(body.len()),
            ..ReadAheadBuffer::default()
        }));
        let task = ReadAheadTask {
            body,
            shared: Rc::clone(&shared),
            // At least one byte, because there may be no file.
            max_memory: usize::try_from(self.memory).unwrap_or(usize::MAX).max(1),
            spool: Spool::of_response(self.folder.clone(), self.disk),
        };
        tokio::task::spawn_local(task.run());
        Body::stream(ReadAheadBody(shared))
    }
}

/// The part of the body between the task and the reader.
#[derive(Default)]
struct ReadAheadBuffer {
    frames: FrameQueue,
    end: Option<Result<(), BodyError>>,
    is_abandoned: bool,
    reader: Option<Waker>,
    task: Option<Waker>,
}

impl ReadAheadBuffer {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

/// The task that reads the body.
struct ReadAheadTask {
    body: Body,
    shared: Rc<RefCell<ReadAheadBuffer>>,
    max_memory: usize,
    spool: Spool,
}

/// A frame or the end of the body.
enum BodyEvent {
    Frame(Frame),
    End(Result<(), BodyError>),
}

impl ReadAheadTask {
    async fn run(mut self) {
        while let Some(event) = poll_fn(|cx| self.poll_next(cx)).await {
            let Some(end) = self.store(event).await else {
                continue;
            };
            let mut shared = self.shared.borrow_mut();
            shared.end = Some(end);
            shared.wake_reader();
            return;
        }
    }

    /// Polls the next event, once there is room for it; `None` if the reader is gone.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyEvent>> {
        {
            let mut shared = self.shared.borrow_mut();
            if shared.is_abandoned {
                return Poll::Ready(None);
            }
            // Needed even while the body is pending: the reader may go.
            if !(shared.task.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
                shared.task = Some(cx.waker().clone());
            }
            if !shared.frames.has_file() {
                self.spool.renew();
            }
            if shared.frames.in_memory() >= self.max_memory && self.spool.room() == 0 {
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

    /// Stores an event. Returns the end of the body if that came.
    async fn store(&mut self, event: BodyEvent) -> Option<Result<(), BodyError>> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let frame = match event {
                BodyEvent::Frame(frame) => frame,
                BodyEvent::End(end) => return Some(end),
            };
            let is_full = self.shared.borrow().frames.in_memory() >= self.max_memory;
            match frame {
                Frame::Data(bytes) if is_full && self.spool.room() > 0 => {
                    let pieces;
                    (pieces, next) = self.gather(bytes).await;
                    self.write(pieces).await;
                }
                frame => self.push(frame),
            }
        }
        None
    }

    /// Gathers the bytes that are ready behind these, and the first event that is not bytes.
    async fn gather(&mut self, first: Bytes) -> (Vec<Bytes>, Option<BodyEvent>) {
        let room = usize::try_from(self.spool.room()).unwrap_or(usize::MAX);
        let (max, mut len) = (MAX_WRITE.min(room), first.len());
        let mut pieces = vec![first];
        while len < max {
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

    /// Writes bytes to the file, or keeps them in memory if that fails.
    async fn write(&mut self, pieces: Vec<Bytes>) {
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

/// The body as its reader gets it.
struct ReadAheadBody(Rc<RefCell<ReadAheadBuffer>>);

impl BodyStream for ReadAheadBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut shared = self.0.borrow_mut();
        if let Some(frame) = shared.frames.pop() {
            shared.wake_task();
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

impl Drop for ReadAheadBody {
    fn drop(&mut self) {
        let mut shared = self.0.borrow_mut();
        shared.is_abandoned = true;
        shared.frames.clear();
        shared.wake_task();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A body in which each eight bytes are unique, in pieces of many sizes.
    struct PatternBody {
        given: Rc<Cell<usize>>,
        pieces: usize,
        size: usize,
        /// The position at which it breaks off.
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

    impl BodyStream for PatternBody {
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
        let body = Body::stream(PatternBody {
            given: Rc::clone(&given),
            pieces: 0,
            size,
            breaks,
        });
        (body, given)
    }

    fn hold(memory: u64, disk: u64, folder: &Path) -> HoldSettings {
        HoldSettings {
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

    /// Waits until this many bytes were read ahead.
    async fn wait_for(given: &Cell<usize>, at_least: usize) {
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

    /// Reads to the end, and returns all bytes and the error at the end.
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
    fn passes_every_byte_around_each_threshold_and_reads_no_further_than_allowed() {
        const MEMORY: usize = 10_000;
        const DISK: usize = 300_000;
        let folder = tempfile::tempdir().unwrap();
        let thresholds = [
            1,
            MEMORY,
            PIECE,
            MEMORY + PIECE,
            MAX_WRITE,
            MEMORY + MAX_WRITE,
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
                    let mut ahead = hold.read_ahead(body);
                    assert_eq!(ahead.len(), Some(size as u64));
                    wait_for(&given, size.min(memory.max(1) + disk)).await;
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    // At each frame: no more is ahead of the reader than what fills memory and file.
                    let max = memory + disk + 4 * PIECE;
                    let mut bytes = Vec::new();
                    loop {
                        let ahead_by = given.get() - bytes.len();
                        assert!(ahead_by <= max, "{what}: {ahead_by} bytes ahead");
                        match ahead.frame().await {
                            Some(frame) => bytes.extend(bytes_of(&frame.unwrap())),
                            None => break,
                        }
                        tokio::task::yield_now().await;
                    }
                    assert!(bytes == pattern(0, size), "{what}: {} bytes", bytes.len());
                });
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn never_overwrites_a_range_that_the_reader_has() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let size = 3_000_000;
            let (body, _) = source(size, None);
            let mut ahead = hold(20_000, 100_000, folder.path()).read_ahead(body);
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
    fn never_takes_a_body_that_breaks_off_for_complete() {
        let folder = tempfile::tempdir().unwrap();
        for breaks in [0, 1, 10_000, 100_000, 900_000] {
            run(async {
                let (body, _) = source(1_000_000, Some(breaks));
                let mut ahead = hold(10_000, 500_000, folder.path()).read_ahead(body);
                let (bytes, error) = read(&mut ahead).await;
                assert!(matches!(error, Some(BodyError::TimedOut)), "{breaks}");
                assert!(bytes.len() >= breaks && bytes == pattern(0, bytes.len()));
            });
        }
    }

    #[test]
    fn reads_no_faster_than_the_reader_without_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        run(async {
            let (body, given) = source(2_000_000, None);
            let mut ahead = hold(10_000, 1 << 30, &gone).read_ahead(body);
            wait_for(&given, 10_000).await;
            let mut bytes = bytes_of(&ahead.frame().await.unwrap().unwrap());
            assert!(given.get() <= 10_000 + MAX_WRITE + 3 * PIECE);
            let (rest, error) = read(&mut ahead).await;
            assert!(error.is_none());
            bytes.extend(rest);
            assert!(bytes == pattern(0, 2_000_000));
        });
    }

    #[test]
    fn stops_when_the_reader_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let (body, given) = source(usize::MAX, None);
            let ahead = hold(10_000, 500_000, folder.path()).read_ahead(body);
            wait_for(&given, 510_000).await;
            drop(ahead);
            // The task drops the body, and with it the counter.
            while Rc::strong_count(&given) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn passes_an_event_as_soon_as_it_comes() {
        struct EventBody(tokio::sync::mpsc::Receiver<Bytes>);
        impl BodyStream for EventBody {
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
                hold(4, 1 << 20, folder.path()).read_ahead(Body::stream(EventBody(receiver)));
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
