//! A connected Unix socket whose task is woken for input only, until a write has to wait.
//!
//! A socket of the runtime also wakes its task when it becomes writable, and a Unix socket reports that each
//! time its peer has read: with small requests that is one useless wake-up for each.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connected Unix socket whose task is woken for input only.
///
/// It belongs to the thread that made it; [`into_std`](Self::into_std) and [`new`](Self::new) move it to
/// another. After a write had to wait, its task is also woken when the socket becomes writable.
#[derive(Debug)]
pub struct ReadInterestSocket {
    reading: AsyncFd<UnixStream>,
    /// The same socket by another descriptor, after a write had to wait.
    writing: Option<AsyncFd<OwnedFd>>,
}

impl ReadInterestSocket {
    /// Registers a non-blocking socket with the reactor of this thread.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        // SAFETY: a stream keeps its descriptor, open, as long as it lives, and the `AsyncFd` owns it.
        let reading = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self {
            reading,
            writing: None,
        })
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the queue of the listener is full, or the error of the
    /// system.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Over Unix sockets this never waits.
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::new(socket.into())
    }

    /// The socket, without its registration.
    pub fn into_std(self) -> UnixStream {
        self.reading.into_inner()
    }

    /// Reads into the spare capacity of `buffer`; 0 at the end.
    ///
    /// # Errors
    /// The error of the system.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let len = buffer.len();
        let read = ready!(self.poll_read_into(cx, buffer.spare_capacity_mut()))?;
        // SAFETY: the first `read` bytes behind `len` were filled.
        unsafe { buffer.set_len(len + read) };
        Poll::Ready(Ok(read))
    }

    /// Waits until a read may return something. An error is left to the read.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.reading.poll_read_ready(cx).map(drop)
    }

    /// Fills the beginning of `room`, and returns how many bytes of it; 0 at the end.
    pub fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        room: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.reading.poll_read_ready(cx))?;
            match read(self.reading.as_fd(), room) {
                Ok(read) => {
                    // A short read has emptied the socket. At the end it stays readable.
                    if read > 0 && read < room.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Reads into the spare capacity of `buffer`, if the reactor knows of any input, without another system
    /// call. 0 at the end.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if no input is known, or the error of the system.
    pub fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let len = buffer.len();
        let read = (self.reading).try_io(Interest::READABLE, |socket| {
            Ok(read(socket.as_fd(), buffer.spare_capacity_mut())?)
        })?;
        // SAFETY: the first `read` bytes behind `len` were filled.
        unsafe { buffer.set_len(len + read) };
        Ok(read)
    }

    /// Writes some of these bytes. Tries first, and waits then.
    ///
    /// # Errors
    /// The error of the system.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writable(cx, |socket| send(socket, slices))
    }

    /// Calls `write` on the socket. Tries first, and then waits as long as it would block.
    pub fn poll_writable(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.writing.is_none() {
            match uninterrupted(|| write(self.reading.as_fd())) {
                Err(Errno::AGAIN) => {}
                done => return Poll::Ready(Ok(done?)),
            }
            // epoll takes a descriptor once: a second registration with another interest needs another descriptor.
            let again = self.reading.as_fd().try_clone_to_owned()?;
            // SAFETY: a descriptor stays the same and open as long as it lives, and the `AsyncFd` owns it.
            let again = unsafe { AsyncFd::register_with_interest(again, Interest::WRITABLE) }?;
            self.writing = Some(again);
        }
        loop {
            let Some(writing) = &self.writing else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let mut ready = ready!(writing.poll_write_ready(cx))?;
            match uninterrupted(|| write(writing.as_fd())) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                done => return Poll::Ready(Ok(done?)),
            }
        }
    }

    /// Writes some of these bytes, without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the buffer of the socket is full, or the error of the
    /// system.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(uninterrupted(|| send(self.reading.as_fd(), slices))?)
    }
}

impl AsFd for ReadInterestSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }
}

fn read(socket: BorrowedFd<'_>, room: &mut [MaybeUninit<u8>]) -> rustix::io::Result<usize> {
    uninterrupted(|| Ok(rustix::io::read(socket, &mut *room)?.0.len()))
}

// `NOSIGNAL`: Rust ignores SIGPIPE in its own programs, but not in one in C that uses libapus.
fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    match slices {
        // One buffer, the usual case, is cheaper to send by the call that takes one.
        [bytes] => rustix::net::send(socket, bytes, SendFlags::NOSIGNAL),
        _ => {
            let nothing = &mut SendAncillaryBuffer::default();
            rustix::net::sendmsg(socket, slices, nothing, SendFlags::NOSIGNAL)
        }
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(test);
    }

    fn pair() -> (ReadInterestSocket, ReadInterestSocket) {
        let (one, other) = UnixStream::pair().unwrap();
        let register = |socket: UnixStream| {
            socket.set_nonblocking(true).unwrap();
            ReadInterestSocket::new(socket).unwrap()
        };
        (register(one), register(other))
    }

    #[test]
    fn more_than_the_socket_holds_arrives_whole_and_in_order() {
        run(async {
            let (mut one, other) = pair();
            let sent: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
            let writing = async {
                let mut left = sent.as_slice();
                while !left.is_empty() {
                    let slices = [IoSlice::new(left)];
                    let written = poll_fn(|cx| one.poll_write(cx, &slices)).await.unwrap();
                    left = &left[written..];
                }
                one.into_std()
            };
            let reading = async {
                let mut received = BytesMut::new();
                while received.len() < sent.len() {
                    received.reserve(100_000);
                    let read = poll_fn(|cx| other.poll_read(cx, &mut received)).await;
                    assert!(read.unwrap() > 0);
                }
                received
            };
            let (socket, received) = tokio::join!(writing, reading);
            assert!(received == sent);
            drop(socket);
            let mut rest = BytesMut::with_capacity(1);
            let read = poll_fn(|cx| other.poll_read(cx, &mut rest)).await;
            assert_eq!(read.unwrap(), 0);
        });
    }

    #[test]
    fn input_that_arrived_while_no_task_read_is_found_without_waiting() {
        run(async {
            let (one, other) = pair();
            let mut input = BytesMut::with_capacity(64);
            one.try_write(&[IoSlice::new(b"first")]).unwrap();
            let read = poll_fn(|cx| other.poll_read(cx, &mut input)).await;
            assert_eq!((read.unwrap(), &input[..]), (5, &b"first"[..]));
            let none = other.try_read(&mut input).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            one.try_write(&[IoSlice::new(b"second")]).unwrap();
            poll_fn(|cx| other.reading.poll_read_ready(cx).map_ok(drop))
                .await
                .unwrap();
            assert_eq!(other.try_read(&mut input).unwrap(), 6);
            assert_eq!(input, &b"firstsecond"[..]);
        });
    }
}
