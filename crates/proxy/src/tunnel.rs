//! A tunnel between a client and an origin that switched protocols (RFC 9110 section 7.8).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::Duplex;
use tokio::time::{Instant, Sleep};

/// What one direction holds of what was read and not written yet.
const BUFFER: usize = 16 * 1024;

/// Carries bytes both ways until both ends are done, one fails, or nothing moved for `idle`.
pub(super) async fn carry(
    mut client: Box<dyn Duplex>,
    mut origin: Box<dyn Duplex>,
    idle: Duration,
) {
    let mut to_origin = Way::default();
    let mut to_client = Way::default();
    let mut timer = Box::pin(tokio::time::sleep(idle));
    let mut moved_at = Instant::now();
    poll_fn(|cx| {
        loop {
            let there = to_origin.poll(cx, &mut *client, &mut *origin);
            let back = to_client.poll(cx, &mut *origin, &mut *client);
            let moved = match (there, back) {
                (Err(_), _) | (_, Err(_)) => return Poll::Ready(()),
                (Ok(there), Ok(back)) => there || back,
            };
            if to_origin.is_done() && to_client.is_done() {
                return Poll::Ready(());
            }
            if moved {
                moved_at = Instant::now();
            }
            // The timer is moved only when it fires.
            match poll_timer(cx, timer.as_mut(), moved_at + idle) {
                Poll::Ready(()) => return Poll::Ready(()),
                Poll::Pending if moved => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// Ready once `deadline` has passed.
fn poll_timer(cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>, deadline: Instant) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(cx));
        if timer.deadline() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}

/// One direction.
#[derive(Default)]
struct Way {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Nothing more comes; what was read is still to be written.
    Ending,
    Done,
}

impl Way {
    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Moves what can be moved; tells whether anything was.
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
            match self.stage {
                Stage::Done => return Ok(moved),
                Stage::Ending => {
                    match to.poll_shutdown(cx) {
                        // The other side may be gone already; its direction tells.
                        Poll::Ready(_) => self.stage = Stage::Done,
                        Poll::Pending => return Ok(moved),
                    }
                    return Ok(true);
                }
                Stage::Open => {}
            }
            self.buffer.resize(BUFFER, 0);
            match from.poll_read(cx, &mut self.buffer) {
                Poll::Ready(Ok(0)) => self.stage = Stage::Ending,
                Poll::Ready(Ok(read)) => (self.start, self.end) = (0, read),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    // A direction that waits holds no buffer.
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
