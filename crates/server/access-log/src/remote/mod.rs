//! The receivers of lines that are not files: for each one a bounded queue and a thread, which may wait for it.
//!
//! Workers only push to the queue. When it is full, lines are lost and counted, and no worker, no file and no other receiver waits.

mod frame;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::batch::LineBatch;
use crate::destination::LogReceiver;
use frame::LogSender;
use socket::{BatchDelivery, ReceiverSocket, SendFault};

/// The most memory of the lines that wait for one receiver.
const MAX_QUEUE_BYTES: usize = 8 * 1024 * 1024;

/// The times between two attempts to reach a receiver: the first and the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// How long a receiver that no configuration names any more may take for what waits for it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long receivers may take for what waits for them when the server stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time between two reports of lost lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The stack of a thread: it looks up names.
const STACK_BYTES: usize = 512 * 1024;

/// A receiver with its queue and its thread, which ends after this value is dropped.
pub(crate) struct RemoteLog {
    shared: Arc<RemoteShared>,
}

struct RemoteShared {
    receiver: LogReceiver,
    queue: Mutex<RemoteQueue>,
    /// Notified when the queue has a batch, or what it says about the end has changed.
    changed: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct RemoteQueue {
    batches: VecDeque<Arc<LineBatch>>,
    bytes: usize,
    /// Until when the batches have to be sent; what is left then is lost.
    deadline: Option<Instant>,
    /// Who waits until the queue is empty.
    waiting: Vec<oneshot::Sender<()>>,
    is_closed: bool,
}

impl RemoteLog {
    /// Starts the thread. It connects when there is a line.
    pub(crate) fn start(receiver: LogReceiver) -> io::Result<Self> {
        let shared = Arc::new(RemoteShared {
            receiver,
            queue: Mutex::default(),
            changed: Condvar::new(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let of_thread = RemoteThread {
            shared: shared.clone(),
            sender: LogSender::of_process(),
            socket: None,
            backoff: FIRST_BACKOFF,
            is_faulty: false,
            losses: LossReport::default(),
        };
        thread::Builder::new()
            .name("apus-log".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || of_thread.run())?;
        Ok(Self { shared })
    }

    pub(crate) fn receiver(&self) -> &LogReceiver {
        &self.shared.receiver
    }

    /// The written and the lost lines.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.shared.written), read(&self.shared.lost))
    }

    /// Adds a batch to the queue. If it is full, the lines of the batch are lost and counted.
    pub(crate) fn push(&self, batch: Arc<LineBatch>) {
        let mut queue = self.shared.locked();
        let bytes = queue.bytes.saturating_add(batch.size());
        if bytes > MAX_QUEUE_BYTES {
            drop(queue);
            self.shared.lose(batch.lines);
            return;
        }
        queue.bytes = bytes;
        queue.batches.push_back(batch);
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// The thread, which may still send when this value is dropped.
    pub(crate) fn thread(&self) -> ReceiverThread {
        ReceiverThread(Arc::downgrade(&self.shared))
    }
}

/// The thread of a receiver, which may have ended.
pub(crate) struct ReceiverThread(Weak<RemoteShared>);

impl ReceiverThread {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Has what waits sent at once. The result is there when nothing waits any more; `None` if the thread has ended.
    pub(crate) fn flush(&self) -> Option<oneshot::Receiver<()>> {
        let shared = self.0.upgrade()?;
        let (done, is_done) = oneshot::channel();
        let mut queue = shared.locked();
        queue.waiting.push(done);
        queue.end_within(FLUSH_TIMEOUT);
        drop(queue);
        shared.changed.notify_one();
        Some(is_done)
    }
}

impl RemoteQueue {
    fn end_within(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        self.deadline = Some(self.deadline.map_or(deadline, |known| known.min(deadline)));
    }
}

impl Drop for RemoteLog {
    fn drop(&mut self) {
        let mut queue = self.shared.locked();
        queue.is_closed = true;
        queue.end_within(CLOSE_TIMEOUT);
        drop(queue);
        self.shared.changed.notify_one();
    }
}

impl RemoteShared {
    fn locked(&self) -> MutexGuard<'_, RemoteQueue> {
        // A panic of another thread leaves the queue consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// The next batch, for which it waits; `None` if there will be none.
    fn next(&self) -> Option<Arc<LineBatch>> {
        let mut queue = self.locked();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                queue.bytes = queue.bytes.saturating_sub(batch.size());
                return Some(batch);
            }
            for waiting in queue.waiting.drain(..) {
                let _ = waiting.send(());
            }
            if queue.is_closed {
                return None;
            }
            queue.deadline = None;
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the time or until the queue has to be sent at once.
    fn wait(&self, time: Duration) {
        let queue = self.locked();
        let _ = self
            .changed
            .wait_timeout_while(queue, time, |queue| queue.deadline.is_none())
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn is_ending(&self) -> bool {
        self.locked().deadline.is_some()
    }

    fn has_ended(&self) -> bool {
        self.locked()
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Takes all that waits. Returns its lines.
    fn clear(&self) -> u64 {
        let mut queue = self.locked();
        queue.bytes = 0;
        let batches = std::mem::take(&mut queue.batches);
        batches.iter().map(|batch| batch.lines).sum()
    }
}

/// The thread of a receiver.
struct RemoteThread {
    shared: Arc<RemoteShared>,
    sender: LogSender,
    socket: Option<ReceiverSocket>,
    backoff: Duration,
    /// Whether the log says that the receiver cannot be reached.
    is_faulty: bool,
    losses: LossReport,
}

/// What the log says about lost lines.
#[derive(Default)]
struct LossReport {
    /// The time and the count of the last report.
    reported: Option<(Instant, u64)>,
}

impl LossReport {
    /// Logs lost lines, at most once per interval.
    fn update(&mut self, shared: &RemoteShared) {
        let lost = shared.lost.load(Ordering::Relaxed);
        let (last, known) = self
            .reported
            .map_or((None, 0), |(at, lost)| (Some(at), lost));
        if lost == known || last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL) {
            return;
        }
        self.reported = Some((Instant::now(), lost));
        let receiver = &shared.receiver;
        warn!(%receiver, lost, "access log lines are lost: the receiver does not keep up");
    }
}

impl RemoteThread {
    fn run(mut self) {
        while let Some(batch) = self.shared.next() {
            if self.socket.as_ref().is_some_and(ReceiverSocket::is_old) {
                self.socket = None;
            }
            self.deliver(&batch);
            self.losses.update(&self.shared);
        }
    }

    /// Sends a batch. It tries until that succeeds, or the queue has to end.
    fn deliver(&mut self, batch: &LineBatch) {
        let mut next = 0;
        loop {
            // An attempt that began before the end was asked for does not count as the last one.
            let is_last = self.shared.is_ending();
            let Err(fault) = self.try_to_send(batch, &mut next) else {
                return;
            };
            let is_over = match fault {
                SendFault::Ended => true,
                SendFault::Broken(error) => {
                    self.socket = None;
                    self.report_fault(&error);
                    is_last
                }
            };
            if is_over {
                return self.give_up(batch.messages().saturating_sub(next) as u64);
            }
            self.losses.update(&self.shared);
            self.shared.wait(self.backoff);
            self.backoff = self.backoff.saturating_mul(2).min(MAX_BACKOFF);
        }
    }

    fn try_to_send(&mut self, batch: &LineBatch, next: &mut usize) -> Result<(), SendFault> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => ReceiverSocket::open(&self.shared.receiver)?,
        };
        let mut delivery = BatchDelivery {
            batch,
            sender: &self.sender,
            next: *next,
            sent: 0,
            failed: 0,
            unreached: 0,
        };
        let shared = &self.shared;
        let losses = &mut self.losses;
        let result = socket.send(&mut delivery, &mut || {
            losses.update(shared);
            shared.has_ended()
        });
        *next = delivery.next;
        shared.written.fetch_add(delivery.sent, Ordering::Relaxed);
        shared
            .written
            .fetch_sub(delivery.unreached, Ordering::Relaxed);
        shared.lose(delivery.failed);
        if result.is_ok() {
            if socket.is_proven() {
                self.backoff = FIRST_BACKOFF;
                self.report_recovery();
            }
            self.socket = Some(socket);
        }
        result
    }

    /// Counts what is left as lost.
    fn give_up(&mut self, of_batch: u64) {
        let waiting = self.shared.clear();
        let lines = of_batch.saturating_add(waiting);
        self.shared.lose(lines);
        let receiver = &self.shared.receiver;
        error!(%receiver, lines, "access log lines are lost: the receiver does not take them, and the time for it is over");
        let lost = self.shared.lost.load(Ordering::Relaxed);
        self.losses.reported = Some((Instant::now(), lost));
    }

    fn report_fault(&mut self, error: &io::Error) {
        if !self.is_faulty {
            self.is_faulty = true;
            let receiver = &self.shared.receiver;
            error!(%receiver, %error, "the receiver of an access log cannot be reached: lines wait for it, and are lost when too many wait");
        }
    }

    fn report_recovery(&mut self) {
        if self.is_faulty {
            self.is_faulty = false;
            let lost = self.shared.lost.load(Ordering::Relaxed);
            let receiver = &self.shared.receiver;
            info!(%receiver, lost, "the receiver of an access log is reached again");
        }
    }
}
