//! A tunnel between a client and an origin that switched protocols (RFC 9110 section 7.8).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::Duplex;
use tokio::time::{Instant, Sleep};

/// The size of the buffer of one direction.
const BUFFER: usize = 16 * 1024;

/// Copies bytes in both directions until both have ended, one has failed, or no byte was copied for `idle`.
pub(super) async fn copy_bidirectional(
    mut client: Box<dyn Duplex>,
    mut origin: Box<dyn Duplex>,
    idle: Duration,
) {
    let mut to_origin = Direction::default();
    let mut to_client = Direction::default();
    let mut timer = Box::pin(tokio::time::sleep(idle));
    let mut moved_at = Instant::now();
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
            // The timer is reset only when it fires, not for each byte.
            match poll_timer(cx, timer.as_mut(), moved_at + idle) {
                Poll::Ready(()) => return Poll::Ready(()),
                Poll::Pending if moved => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
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
