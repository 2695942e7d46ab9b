//! Yielding of a task to the others.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::Context;

thread_local! {
    static YIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Makes the task run again after the others that are ready. The caller returns `Pending`.
///
/// A task does this before it writes, so that requests which arrived together are read together and sent
/// together: the peer is woken once for several of them.
pub fn yield_to_ready_tasks(cx: &Context<'_>) {
    YIELDED.set(true);
    // The runtime queues this task behind the others.
    cx.waker().wake_by_ref();
}

/// Whether a task of this thread has yielded since the last call. Such a task runs again in a moment, and
/// need not wait for anything else.
pub fn take_yield() -> bool {
    YIELDED.take()
}

/// Makes the task run again after the others that are ready, and after the runtime has looked for events. The caller
/// returns `Pending`.
///
/// A task does this when its share of the worker is spent. If it only woke itself, the runtime would run it up to 61
/// times before it learns that another socket is readable.
pub fn yield_to_events(cx: &mut Context<'_>) {
    // The future is dropped at once: its first poll has told the runtime to wake the task after it has polled for
    // events.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream as BlockingStream;
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn a_task_without_end_lets_the_runtime_see_other_sockets() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let polls = Rc::new(Cell::new(0));
        LocalSet::new().block_on(&runtime, async {
            let (mut sender, receiver) = BlockingStream::pair().unwrap();
            receiver.set_nonblocking(true).unwrap();
            let mut receiver = UnixStream::from_std(receiver).unwrap();
            let counter = Rc::clone(&polls);
            tokio::task::spawn_local(poll_fn(move |cx| {
                counter.set(counter.get() + 1);
                // When the reader waits.
                if counter.get() == 10 {
                    sender.write_all(b"x").unwrap();
                }
                yield_to_events(cx);
                Poll::<()>::Pending
            }));
            let mut byte = [0];
            receiver.read_exact(&mut byte).await.unwrap();
        });
        assert!((10..15).contains(&polls.get()), "{} polls", polls.get());
    }
}
