//! A tunnel between a client and an origin that switched protocols (RFC 9110 section 7.8).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::Duplex;
use apus_net::TunnelLimits;
use apus_transport::SendRate;
use tokio::time::{Instant, Sleep};

/// The size of the buffer of one direction.
const BUFFER: usize = 16 * 1024;

/// Copies bytes in both directions until both have ended, one has failed, no byte was copied for `idle`, or the client
/// takes less than the rate that it has to take.
pub(super) async fn copy_bidirectional(
    mut client: Box<dyn Duplex>,
    mut origin: Box<dyn Duplex>,
    idle: Duration,
) {
    let mut to_origin = Direction::default();
    let mut to_client = Direction::default();
    let mut timer = Box::pin(tokio::time::sleep(idle));
    let mut moved_at = Instant::now();
    let mut reader = ClientReader::new();
    poll_fn(|cx| {
        loop {
            let up = to_origin.poll(cx, &mut *client, &mut *origin);
            let down = to_client.poll(cx, &mut *origin, &mut *client);
            let moved = match (up, down) {
                (Err(_), _) | (_, Err(_)) => return Poll::Ready(()),
                (Ok(up), Ok(down)) => up || down,
            };
            if to_origin.is_done() && to_client.is_done() {
                return Poll::Ready(());
            }
            if moved {
                moved_at = Instant::now();
            }
            reader.note(&to_client, &*client);
            let deadline = reader.deadline(moved_at + idle);
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            // The timer is reset only when it fires, not for each byte.
            match poll_timer(cx, timer.as_mut(), deadline) {
                Poll::Ready(()) if moved_at + idle <= Instant::now() => return Poll::Ready(()),
                Poll::Ready(()) if !reader.takes_enough(&to_client, &*client) => {
                    return Poll::Ready(());
                }
                Poll::Ready(()) => {}
                Poll::Pending if moved => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// Whether the client takes what is sent to it: a tunnel holds a connection to the origin, too.
struct ClientReader {
    send_rate: SendRate,
    limits: TunnelLimits,
    started: Instant,
}

impl ClientReader {
    fn new() -> Self {
        Self {
            send_rate: SendRate::default(),
            limits: TunnelLimits::of_worker(),
            started: Instant::now(),
        }
    }

    /// Notes whether bytes wait for the client.
    fn note(&mut self, to_client: &Direction, client: &dyn Duplex) {
        let is_blocked = to_client.start < to_client.end;
        if is_blocked == self.send_rate.is_blocked() {
            return;
        }
        let now = self.started.elapsed();
        if is_blocked {
            self.send_rate.block(now, || taken(to_client, client))
        } else {
            self.send_rate.unblock(now)
        }
    }

    /// When the client must have taken enough, or `other` if that is earlier.
    fn deadline(&self, other: Instant) -> Instant {
        match self.send_rate.deadline(self.limits.send_timeout) {
            Some(deadline) => other.min(self.started + deadline),
            None => other,
        }
    }

    /// Whether the client took enough, at the deadline.
    fn takes_enough(&mut self, to_client: &Direction, client: &dyn Duplex) -> bool {
        let taken = taken(to_client, client);
        let now = self.started.elapsed();
        self.send_rate.check(now, taken, self.limits.send_rate)
    }
}

/// The bytes that the client has taken.
fn taken(to_client: &Direction, client: &dyn Duplex) -> u64 {
    to_client.written.saturating_sub(client.undelivered())
}

/// Is ready once `deadline` has passed.
fn poll_timer(cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>, deadline: Instant) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(cx));
        if timer.deadline() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}

/// One direction of a tunnel.
#[derive(Default)]
struct Direction {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The bytes that were written in total.
    written: u64,
    state: DirectionState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectionState {
    #[default]
    Open,
    /// The reader has ended; the rest still has to be written.
    Ending,
    Done,
}

impl Direction {
    fn is_done(&self) -> bool {
        self.state == DirectionState::Done
    }

    /// Copies as much as is possible now. Returns whether anything was copied.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn Duplex,
        to: &mut dyn Duplex,
    ) -> io::Result<bool> {
        let mut moved = false;
        loop {
            while self.start < self.end {
                let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
                match to.poll_write(cx, bytes) {
                    Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(written)) => {
                        self.start += written;
                        self.written += written as u64;
                        moved = true;
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => return Ok(moved),
                }
            }
            match self.state {
                DirectionState::Done => return Ok(moved),
                DirectionState::Ending => {
                    match to.poll_shutdown(cx) {
                        // An error means that this end is gone; the other direction notices that.
                        Poll::Ready(_) => self.state = DirectionState::Done,
                        Poll::Pending => return Ok(moved),
                    }
                    return Ok(true);
                }
                DirectionState::Open => {}
            }
            self.buffer.resize(BUFFER, 0);
            match from.poll_read(cx, &mut self.buffer) {
                Poll::Ready(Ok(0)) => self.state = DirectionState::Ending,
                Poll::Ready(Ok(read)) => (self.start, self.end) = (0, read),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    // A direction that is pending keeps no buffer.
                    self.buffer = Vec::new();
                    if let Poll::Ready(Err(error)) = to.poll_flush(cx) {
                        return Err(error);
                    }
                    return Ok(moved);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An origin that sends without end, or a client that takes bytes at a rate.
    struct TunnelEnd {
        sends: bool,
        /// Bytes that it takes, and the time between.
        takes: (usize, Duration),
        pause: Pin<Box<Sleep>>,
        taken: usize,
    }

    impl TunnelEnd {
        fn new(sends: bool, takes: (usize, Duration)) -> Self {
            let pause = Box::pin(tokio::time::sleep(Duration::ZERO));
            Self {
                sends,
                takes,
                pause,
                taken: 0,
            }
        }
    }

    impl Duplex for TunnelEnd {
        fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            if self.sends {
                Poll::Ready(Ok(buffer.len()))
            } else {
                Poll::Pending
            }
        }

        fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            ready!(self.pause.as_mut().poll(cx));
            self.pause.as_mut().reset(Instant::now() + self.takes.1);
            let taken = bytes.len().min(self.takes.0);
            self.taken += taken;
            if self.taken > 1_000_000 {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// How long a tunnel lasts whose client takes this number of bytes in each interval.
    async fn lasts(takes: (usize, Duration)) -> Duration {
        let origin = Box::new(TunnelEnd::new(true, (0, Duration::ZERO)));
        let client = Box::new(TunnelEnd::new(false, takes));
        let start = Instant::now();
        copy_bidirectional(client, origin, Duration::from_secs(3600)).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_too_little_does_not_hold_its_tunnel() {
        let second = Duration::from_secs(1);
        assert_eq!(lasts((1, 5 * second)).await, 60 * second);
        assert_eq!(lasts((127, second)).await, 60 * second);
        assert_eq!(
            lasts((1, Duration::from_secs(1_000_000))).await,
            60 * second
        );
        // At the rate it lasts until all was taken.
        assert_eq!(lasts((128, second)).await, 7812 * second);
        // The buffer of a tunnel has 16 KiB.
        assert_eq!(lasts((20_000, 50 * second)).await, 3050 * second);
    }
}
