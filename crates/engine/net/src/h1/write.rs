//! The output of an HTTP/1.1 connection: one buffer, vectored writes, files by `sendfile`.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_codec::h1::BodyFraming;
use apus_http::{
    Completion, FileRange, Headers, ResponseHead, ResponseObservers, ResponseOutcome, SealedMemory,
    StatusCode,
};
use apus_transport::TICK;
use apus_transport::file::{is_cached, read_away, read_cached, read_cold};
use rustix::io::Errno;

use super::Http1Connection;

/// A body up to this size is copied behind its head; a larger one is written from where it is.
// So that several pipelined responses become one piece of one write.
pub(super) const MAX_COPY: usize = 4 * 1024;

/// How much of a file is sent before other connections are polled.
// sendfile(2) goes on for as long as the socket takes bytes: over the loopback interface one download would hold the
// worker.
const FILE_TURN: u64 = 1024 * 1024;

/// A response whose last bytes are encoded, and the observers of its completion.
pub(super) struct PendingCompletion {
    observers: ResponseObservers,
    completion: Completion,
}

/// Why a body was not sent whole.
pub(super) enum BodySendError {
    /// Its source failed after `sent` bytes.
    Source { sent: u64 },
    /// The client closed, or is too slow.
    Client { error: io::Error, sent: u64 },
}

impl BodySendError {
    /// The same error, after this number of earlier bytes.
    pub(super) fn after(self, before: u64) -> Self {
        match self {
            Self::Source { sent } => Self::Source {
                sent: sent + before,
            },
            Self::Client { error, sent } => Self::Client {
                error,
                sent: sent + before,
            },
        }
    }
}

impl Http1Connection<'_> {
    /// Encodes the head of a response; returns the framing of its body and the length of the head.
    pub(super) fn encode_head(
        &mut self,
        status: StatusCode,
        headers: &Headers,
        content_length: Option<u64>,
    ) -> (BodyFraming, u64) {
        if self.out.capacity() == 0 {
            self.out = self.worker.buffers.take();
        }
        let before = self.out.len();
        let (date, server) = (self.worker.clock.date(), self.worker.server_field());
        let head = ResponseHead {
            status,
            headers,
            content_length,
            date: &date,
            server: server.as_deref(),
            alt_svc: self.alt_svc.value(),
        };
        let framing = self.codec.send_head(head, &mut self.out);
        drop(server);
        (framing, (self.out.len() - before) as u64)
    }

    /// Sends a part of a body that is in memory, now or with the next write.
    pub(super) async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() <= MAX_COPY {
            self.out.extend_from_slice(bytes);
            return Ok(());
        }
        self.write_out_and(bytes).await
    }

    /// Sends sealed memory.
    pub(super) async fn send_sealed(&mut self, sealed: &SealedMemory) -> io::Result<()> {
        // Under TLS the bytes pass through this process anyway, so the file of the memory would only be read back.
        if !self.transport.sends_files() {
            return self.send_bytes(sealed.bytes()).await;
        }
        self.write_by(|connection, cx, sent| connection.poll_write_out_and_sealed(cx, sealed, sent))
            .await
    }

    fn poll_write_out_and_sealed(
        &mut self,
        cx: &mut Context<'_>,
        sealed: &SealedMemory,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out_before_file(cx, sent))?;
        while let from = *sent - self.out.len()
            && from < sealed.bytes().len()
        {
            let written = ready!(self.transport.poll_send_sealed(cx, sealed, from))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent += written;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all encoded bytes.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.write_out_and(&[]).await
    }

    async fn write_out_and(&mut self, body: &[u8]) -> io::Result<()> {
        self.write_by(|connection, cx, sent| connection.poll_write_out_and(cx, body, sent))
            .await
    }

    /// Writes the encoded bytes and more by `poll`, which counts the bytes that it sent.
    async fn write_by(
        &mut self,
        mut poll: impl FnMut(&mut Self, &mut Context<'_>, &mut usize) -> Poll<io::Result<()>>,
    ) -> io::Result<()> {
        let mut sent = 0;
        poll_fn(|cx| {
            let before = sent;
            let polled = poll(self, cx, &mut sent);
            self.watch_writing(cx, polled, sent - before)
        })
        .await?;
        self.worker.counters.bytes_out.add(sent as u64);
        self.out.clear();
        self.notify_completions(true);
        Ok(())
    }

    fn poll_write_out_and(
        &mut self,
        cx: &mut Context<'_>,
        body: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        let whole = self.out.len() + body.len();
        while *sent < whole {
            let out = self.out.get(*sent..).unwrap_or_default();
            let body = body
                .get(sent.saturating_sub(self.out.len())..)
                .unwrap_or_default();
            let written = if out.is_empty() {
                ready!(self.transport.poll_write(cx, &[IoSlice::new(body)]))?
            } else if body.is_empty() {
                ready!(self.transport.poll_write(cx, &[IoSlice::new(out)]))?
            } else {
                ready!(
                    self.transport
                        .poll_write(cx, &[IoSlice::new(out), IoSlice::new(body)])
                )?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent += written;
        }
        self.transport.poll_flush(cx)
    }

    /// Whether all encoded bytes have left, and none is pending in TLS.
    pub(super) fn is_flushed(&self) -> bool {
        self.out.is_empty() && !self.transport.has_unsent_records()
    }

    /// As [`Self::flush`], for a caller that is polled: written bytes leave the buffer.
    pub(super) fn poll_flush_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut sent = 0;
        let polled = self.poll_write_out_and(cx, &[], &mut sent);
        self.worker.counters.bytes_out.add(sent as u64);
        self.out.drain(..sent);
        let polled = self.watch_writing(cx, polled, sent);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.notify_completions(true);
        }
        polled
    }

    /// Applies the time limit of writes, in which the client has to take enough of all that is sent to it.
    fn watch_writing<T>(
        &mut self,
        cx: &Context<'_>,
        polled: Poll<io::Result<T>>,
        sent: usize,
    ) -> Poll<io::Result<T>> {
        self.sent = self.sent.saturating_add(sent as u64);
        if polled.is_ready() {
            self.stop_waiting_for_reader();
            return polled;
        }
        self.slot.register(cx);
        let now = TICK.saturating_mul(self.worker.clock.ticks());
        let (sent, transport) = (self.sent, &self.transport);
        // What the kernel has taken is not what the client has taken: its buffers hold megabytes, and a client that
        // reads nothing would look as if it made progress.
        let taken = || sent.saturating_sub(transport.undelivered());
        self.send_rate.block(now, taken);
        if self.slot.is_refused() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.slot.is_expired() {
            // The deadline of the slot may come from an earlier wait, or be early by the granularity of the sweep:
            // only the deadline of this write counts.
            let is_due = self.send_deadline().is_some_and(|deadline| deadline <= now);
            let is_enough = !is_due || {
                let taken = taken();
                self.send_rate.check(now, taken, self.limits.send_rate)
            };
            if !is_enough || self.slot.is_evicted() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.slot.renew();
        }
        let left = self.send_deadline().unwrap_or(now).saturating_sub(now);
        self.slot.set_busy(&self.worker.clock, left);
        polled
    }

    /// When the client must have taken enough of the response, if it is waited for.
    fn send_deadline(&self) -> Option<Duration> {
        self.send_rate.deadline(self.limits.send_timeout)
    }

    /// Ends the time limit of a write. The source of the next bytes has none.
    pub(super) fn stop_waiting_for_reader(&mut self) {
        if self.send_rate.is_blocked() {
            self.send_rate
                .unblock(TICK.saturating_mul(self.worker.clock.ticks()));
            self.slot.clear_deadline();
        }
    }

    /// Sends a part of a file.
    pub(super) async fn send_file(&mut self, range: &FileRange) -> Result<(), BodySendError> {
        if range.len == 0 {
            return Ok(());
        }
        let mut sent = 0;
        let client = |sent| move |error| BodySendError::Client { error, sent };
        if self.transport.sends_files() {
            self.write_out_before_file().await.map_err(client(0))?;
        }
        let mut turn = 0;
        while sent < range.len {
            let offset = range.offset + sent;
            let left = range.len - sent;
            let moved = if self.transport.sends_files() {
                self.send_file_part(range, offset, left).await
            } else {
                self.copy_file_part(range, offset, left).await
            };
            let moved = match moved {
                Ok(0) => {
                    // The client was promised the old length: only the end of the connection tells it that the rest
                    // is missing.
                    tracing::warn!("a file became shorter while it was sent");
                    return Err(BodySendError::Source { sent });
                }
                Ok(moved) => moved,
                Err(FileSendError::File(error)) => {
                    tracing::warn!(%error, "a file cannot be read on");
                    return Err(BodySendError::Source { sent });
                }
                Err(FileSendError::Client(error)) => return Err(client(sent)(error)),
            };
            sent += moved;
            turn += moved;
            if turn >= FILE_TURN {
                turn = 0;
                tokio::task::yield_now().await;
                // A client that takes all at once is never waited for.
                if self.slot.is_refused() {
                    return Err(client(sent)(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
        Ok(())
    }

    /// Writes the encoded bytes so that the kernel can send them together with the file.
    async fn write_out_before_file(&mut self) -> io::Result<()> {
        self.write_by(Self::poll_write_out_before_file).await
    }

    fn poll_write_out_before_file(
        &mut self,
        cx: &mut Context<'_>,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.out.get(*sent..).filter(|rest| !rest.is_empty()) {
            *sent += ready!(self.transport.poll_write_more(cx, rest))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends some of the file with `sendfile`; 0 at the end of the file.
    async fn send_file_part(
        &mut self,
        range: &FileRange,
        offset: u64,
        left: u64,
    ) -> Result<u64, FileSendError> {
        let left = left.min(FILE_TURN);
        // `sendfile` would block every connection of this worker while it reads from the disk.
        // The last byte is examined: read-ahead fills the cache in order, so the others are mostly there when it is.
        if !is_cached(range, offset + left - 1) {
            read_cold(range, offset, left)
                .await
                .map_err(FileSendError::File)?;
        }
        let moved = poll_fn(|cx| {
            let polled = self.transport.poll_send_file(cx, &range.file, offset, left);
            let sent = match &polled {
                Poll::Ready(Ok(sent)) => *sent,
                _ => 0,
            };
            self.watch_writing(cx, polled, sent)
        })
        .await
        .map_err(|error| match Errno::from_io_error(&error) {
            // sendfile(2) has one error for both its descriptors: these are of the file, all others of the socket.
            Some(Errno::IO | Errno::INVAL | Errno::OVERFLOW) => FileSendError::File(error),
            _ => FileSendError::Client(error),
        })?;
        self.worker.counters.bytes_out.add(moved as u64);
        Ok(moved as u64)
    }

    /// Reads some of the file and writes it; 0 at the end of the file.
    async fn copy_file_part(
        &mut self,
        range: &FileRange,
        offset: u64,
        left: u64,
    ) -> Result<u64, FileSendError> {
        let mut page = self.worker.buffers.take_page();
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(page.len());
        let part = page.get_mut(..len).unwrap_or_default();
        let mut read = read_cached(range, part, offset);
        if read.is_none() {
            read_cold(range, offset, len as u64)
                .await
                .map_err(FileSendError::File)?;
            read = read_cached(range, part, offset);
        }
        let (result, read) = match read {
            Some(read) => {
                let read = read.map_err(FileSendError::File)?;
                let part = page.get(..read).unwrap_or_default();
                (self.write_out_and(part).await, read)
            }
            // The page cache dropped it at once: the machine is short of memory.
            None => {
                let part = FileRange {
                    file: Arc::clone(&range.file),
                    offset,
                    len: left,
                };
                let bytes = read_away(part).await.map_err(FileSendError::File)?;
                (self.write_out_and(&bytes).await, bytes.len())
            }
        };
        self.worker.buffers.put_page(page);
        result.map_err(FileSendError::Client)?;
        Ok(read as u64)
    }

    /// Adds a response that was encoded to its end, to be reported when it has left.
    pub(super) fn add_completion(&mut self, observers: ResponseObservers, completion: Completion) {
        let outcome = completion.outcome;
        self.completions.push(PendingCompletion {
            observers,
            completion,
        });
        if outcome == ResponseOutcome::ClientGone {
            self.notify_completions(false);
        } else if self.out.is_empty() {
            self.notify_completions(true);
        }
    }

    /// Reports the completion of the encoded responses.
    pub(super) fn notify_completions(&mut self, left: bool) {
        if self.completions.is_empty() {
            return;
        }
        let duration = self.arrived.elapsed();
        for mut pending in self.completions.drain(..) {
            // A response that was encoded whole but did not leave was not received: the access log must not say 200
            // with all bytes.
            if !left && pending.completion.outcome == ResponseOutcome::Complete {
                pending.completion.outcome = ResponseOutcome::ClientGone;
            }
            pending.notify(duration);
        }
    }
}

/// Why a part of a file was not sent.
enum FileSendError {
    /// The file cannot be read: a faulty disk, or a network share that is gone.
    File(io::Error),
    /// The client closed, or is too slow.
    Client(io::Error),
}

impl PendingCompletion {
    fn notify(mut self, duration: Duration) {
        self.completion.duration = duration;
        self.observers.notify(&self.completion);
    }
}
