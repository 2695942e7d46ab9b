//! The socket to a receiver of lines, on the receiver's own thread: it may wait, but never longer than [`PATIENCE`] at once.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv, sockopt};

use super::frame::{LogSender, SyslogFrame, TCP_BYTES, UDP_BYTES, UNIX_BYTES, count_octets};
use crate::batch::{LineBatch, LogMessage};
use crate::destination::{LogReceiver, SyslogAddress, SyslogFormat, SyslogHost};

/// The longest time of one system call. Between two, the thread looks whether it has to end.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The longest time until a connection is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection whose peer takes nothing for so long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The address of a name over UDP, which reports no fault, is looked up again after this time.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(300);

/// The time in which the network reports that there is no receiver of a datagram.
const PROOF_TIME: Duration = Duration::from_secs(1);

/// An open socket to a receiver.
pub(crate) struct ReceiverSocket {
    socket: Socket,
    frame: MessageFrame,
    opened: Instant,
    /// The batches that were sent, or that it was tried with.
    batches: u64,
}

enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Tcp(TcpStream),
}

#[derive(Clone, Copy)]
enum MessageFrame {
    Syslog(SyslogFrame),
    Journal,
}

/// What became of the messages of a batch from [`BatchDelivery::next`] on.
pub(crate) struct BatchDelivery<'a> {
    pub(crate) batch: &'a LineBatch,
    pub(crate) sender: &'a LogSender,
    /// The number of the first message that is not sent.
    pub(crate) next: usize,
    /// The messages that the kernel took.
    pub(crate) sent: u64,
    /// The messages that cannot be sent, or were sent before and reached nobody.
    pub(crate) failed: u64,
    /// Messages of [`BatchDelivery::failed`] that were counted as sent.
    pub(crate) unreached: u64,
}

impl BatchDelivery<'_> {
    fn passed(&mut self) {
        self.next = self.next.saturating_add(1);
    }
}

/// Why not all messages of a batch were sent.
pub(crate) enum SendFault {
    /// The socket is of no use any more.
    Broken(io::Error),
    /// The thread has to end, and the receiver is too slow.
    Ended,
}

impl From<io::Error> for SendFault {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl ReceiverSocket {
    pub(crate) fn open(receiver: &LogReceiver) -> io::Result<Self> {
        let (socket, frame) = match receiver {
            LogReceiver::Syslog(SyslogAddress::Udp(host)) => (
                Socket::Udp(first_reachable(host, open_udp)?),
                MessageFrame::Syslog(SyslogFrame {
                    format: SyslogFormat::Rfc5424,
                    has_host: true,
                    max_bytes: UDP_BYTES,
                }),
            ),
            LogReceiver::Syslog(SyslogAddress::Tcp(host)) => (
                Socket::Tcp(first_reachable(host, open_tcp)?),
                MessageFrame::Syslog(SyslogFrame {
                    format: SyslogFormat::Rfc5424,
                    has_host: true,
                    max_bytes: TCP_BYTES,
                }),
            ),
            LogReceiver::Syslog(SyslogAddress::Unix(path)) => (
                Socket::Unix(open_unix(path)?),
                MessageFrame::Syslog(SyslogFrame {
                    format: SyslogFormat::Rfc3164,
                    has_host: false,
                    max_bytes: UNIX_BYTES,
                }),
            ),
            LogReceiver::Journal(path) => (Socket::Unix(open_unix(path)?), MessageFrame::Journal),
        };
        Ok(Self {
            socket,
            frame,
            opened: Instant::now(),
            batches: 0,
        })
    }

    /// Whether a new socket may reach another machine.
    pub(crate) fn is_old(&self) -> bool {
        matches!(self.socket, Socket::Udp(_)) && self.opened.elapsed() > LOOKUP_INTERVAL
    }

    /// Whether a batch that was sent shows that there is a receiver. Over UDP, only the fault of a later one tells that there was none.
    pub(crate) fn is_proven(&self) -> bool {
        match self.socket {
            Socket::Udp(_) => self.batches > 1 && self.opened.elapsed() > PROOF_TIME,
            Socket::Unix(_) | Socket::Tcp(_) => self.batches > 0,
        }
    }

    /// Sends the messages of a batch that are not sent yet. `has_ended` is called while the receiver takes nothing, and says whether
    /// the time for it is over.
    pub(crate) fn send(
        &mut self,
        delivery: &mut BatchDelivery<'_>,
        has_ended: &mut dyn FnMut() -> bool,
    ) -> Result<(), SendFault> {
        self.batches = self.batches.saturating_add(1);
        match &mut self.socket {
            Socket::Tcp(stream) => send_stream(stream, self.frame, delivery, has_ended),
            Socket::Udp(socket) => {
                let is_udp = true;
                let send = |datagram: &[u8]| socket.send(datagram);
                send_datagrams(&send, (self.frame, is_udp), delivery, has_ended)
            }
            Socket::Unix(socket) => {
                let is_udp = false;
                let send = |datagram: &[u8]| socket.send(datagram);
                send_datagrams(&send, (self.frame, is_udp), delivery, has_ended)
            }
        }
    }
}

impl MessageFrame {
    fn write(self, sender: &LogSender, message: &LogMessage<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Journal => sender.journal(message, out),
            Self::Syslog(frame) => {
                let format = message.label.format.unwrap_or(frame.format);
                sender.syslog(message, SyslogFrame { format, ..frame }, out);
            }
        }
    }
}

fn send_datagrams(
    send: &dyn Fn(&[u8]) -> io::Result<usize>,
    (frame, is_udp): (MessageFrame, bool),
    delivery: &mut BatchDelivery<'_>,
    has_ended: &mut dyn FnMut() -> bool,
) -> Result<(), SendFault> {
    let mut datagram = Vec::new();
    while let Some(message) = delivery.batch.message(delivery.next) {
        datagram.clear();
        frame.write(delivery.sender, &message, &mut datagram);
        match send(&datagram) {
            Ok(_) => {
                delivery.sent = delivery.sent.saturating_add(1);
                delivery.passed();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_full(&error) => {
                if has_ended() {
                    return Err(SendFault::Ended);
                }
                // Not all of these errors come after a wait.
                if error.kind() != ErrorKind::WouldBlock {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
            }
            Err(error) if is_too_long(&error) => {
                delivery.failed = delivery.failed.saturating_add(1);
                delivery.passed();
            }
            Err(error) => {
                // The error of an earlier datagram, to which there was no receiver.
                if is_udp && error.kind() == ErrorKind::ConnectionRefused {
                    delivery.failed = delivery.failed.saturating_add(1);
                    delivery.unreached = delivery.unreached.saturating_add(1);
                }
                return Err(error.into());
            }
        }
    }
    Ok(())
}

fn send_stream(
    stream: &mut TcpStream,
    frame: MessageFrame,
    delivery: &mut BatchDelivery<'_>,
    has_ended: &mut dyn FnMut() -> bool,
) -> Result<(), SendFault> {
    refuse_closed(stream)?;
    let (mut bytes, mut text) = (Vec::new(), Vec::new());
    let mut ends = Vec::new();
    for number in delivery.next..delivery.batch.messages() {
        if let Some(message) = delivery.batch.message(number) {
            text.clear();
            frame.write(delivery.sender, &message, &mut text);
            count_octets(&text, &mut bytes);
        }
        ends.push(bytes.len());
    }
    let mut written = 0;
    let mut last_progress = Instant::now();
    let result = loop {
        let rest = bytes.get(written..).unwrap_or_default();
        if rest.is_empty() {
            break Ok(());
        }
        match stream.write(rest) {
            Ok(0) => break Err(io::Error::from(ErrorKind::WriteZero).into()),
            Ok(len) => {
                written = written.saturating_add(len);
                last_progress = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if has_ended() {
                    break Err(SendFault::Ended);
                }
                if last_progress.elapsed() > STALL_TIMEOUT {
                    break Err(io::Error::from(ErrorKind::TimedOut).into());
                }
            }
            Err(error) => break Err(error.into()),
        }
    };
    // A message that was sent in part is sent again as a whole, over another connection.
    let sent = ends.partition_point(|end| *end <= written);
    delivery.next = delivery.next.saturating_add(sent);
    delivery.sent = delivery.sent.saturating_add(sent as u64);
    result
}

/// Finds out whether the receiver has closed the connection: a write would succeed, and its lines would be lost.
fn refuse_closed(stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    match recv(stream, &mut buffer, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(ErrorKind::ConnectionAborted.into()),
        Ok(_) | Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the receiver does not read as fast as lines come.
fn is_full(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    error.kind() == ErrorKind::WouldBlock || code == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

/// The socket to the first address of a host that can be opened.
fn first_reachable<T>(
    host: &SyslogHost,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in (&*host.host, host.port).to_socket_addrs()? {
        match open(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
}

fn open_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local)?;
    socket.connect(address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn open_unix(path: &std::path::Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn open_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    // A machine that is gone is noticed, also when there is nothing to send.
    sockopt::set_socket_keepalive(&stream, true)?;
    let milliseconds = u32::try_from(STALL_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&stream, milliseconds)?;
    Ok(stream)
}
