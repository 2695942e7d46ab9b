//! The UDP socket of an endpoint: batches of packets in (`recvmmsg`, GRO), and runs of packets out (GSO), with ECN.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use apus_quic_protocol::{DatagramSource, EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;

use crate::descriptor::{register, set_option};

/// The buffers of a socket in bytes, which the kernel limits (`net.core.rmem_max` and `wmem_max`): what arrives in
/// 10 ms at 1 Gbit/s, twice.
const SOCKET_BUFFER: usize = 2_500_000;
/// Messages of one `recvmmsg`. Each can be a run of packets of one sender.
const MESSAGES: usize = 16;
/// The most bytes of a message.
const MESSAGE_SIZE: usize = 65_535;
/// The most bytes of one send over IPv4: a larger one fails with `EMSGSIZE`, also as a run of packets.
const MAX_SENT: usize = 65_507;

/// The UDP socket of an endpoint.
pub(crate) struct UdpIo {
    socket: AsyncFd<OwnedFd>,
    state: UdpSocketState,
}

/// Packets of one call of the kernel.
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    meta: [RecvMeta; MESSAGES],
}

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; MESSAGES * MESSAGE_SIZE],
            meta: [RecvMeta::default(); MESSAGES],
        }
    }
}

impl UdpIo {
    /// The socket, with all options of QUIC.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        disable_timestamps(&socket)?;
        enlarge_buffers(&socket)?;
        Ok(Self {
            socket: register(socket.into())?,
            state,
        })
    }

    /// Whether packets are never fragmented, so that the path MTU can be discovered.
    pub(crate) fn can_discover_mtu(&self) -> bool {
        !self.state.may_fragment()
    }

    /// The most packets of this size that one send can have.
    pub(crate) fn most_segments(&self, size: u16) -> usize {
        segments(self.state.max_gso_segments(), size)
    }

    /// Receives a batch of packets, and passes each to `packet`, which may change its bytes.
    ///
    /// Returns how many packets there were. After an error, further packets can be received.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReceiveBuffer,
        mut packet: impl FnMut(DatagramSource, &mut [u8]),
    ) -> Poll<io::Result<usize>> {
        let mut slices = buffer.bytes.chunks_mut(MESSAGE_SIZE).map(IoSliceMut::new);
        let mut slices: [_; MESSAGES] =
            std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let (messages, mut guard) = loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let received = guard.try_io(|socket| {
                self.state
                    .recv(socket.get_ref().into(), &mut slices, &mut buffer.meta)
            });
            if let Ok(received) = received {
                break (received?, guard);
            }
        };
        if messages < MESSAGES {
            // Nothing is left, or the kernel will report again: this saves a call that returns EAGAIN.
            guard.clear_ready();
        }
        let mut count = 0;
        for (meta, slice) in buffer.meta.iter().zip(&mut slices).take(messages) {
            let source = DatagramSource {
                remote: meta.addr,
                local_ip: meta.dst_ip,
                ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            };
            let received = slice.get_mut(..meta.len).unwrap_or_default();
            for contents in received.chunks_mut(meta.stride.max(1)) {
                count += 1;
                packet(source, contents);
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Sends a run of packets; pending while the buffer of the socket is full.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        transmit: &Transmit,
        contents: &[u8],
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_write_ready(cx))?;
            if let Ok(sent) = guard.try_io(|_| self.try_send(transmit, contents)) {
                return Poll::Ready(sent);
            }
        }
    }

    /// Sends a run of packets now or never.
    pub(crate) fn try_send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit
                .ecn
                .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: contents.get(..transmit.size).unwrap_or(contents),
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        match self.state.try_send(self.socket.get_ref().into(), &transmit) {
            // A probe that is larger than the MTU of the interface: lost, as on the path.
            Err(error) if quinn_udp::is_msg_size_err(&error) => Ok(()),
            result => result,
        }
    }
}

/// The most packets of `size` bytes in one send, if the kernel takes runs of `kernel` packets.
fn segments(kernel: usize, size: u16) -> usize {
    kernel.min(MAX_SENT / usize::from(size.max(1))).max(1)
}

/// Turns off the time of each packet, which quinn-udp turns on: its buffer for control messages has no room for it
/// beside the size of a run of packets, and the kernel would leave out ECN.
fn disable_timestamps(socket: &UdpSocket) -> io::Result<()> {
    let off: libc::c_int = 0;
    // SAFETY: the option takes a `c_int`.
    unsafe { set_option(socket, libc::SO_TIMESTAMPNS, &off) }
}

/// Asks for larger buffers, and warns once if the kernel grants less.
fn enlarge_buffers(socket: &UdpSocket) -> io::Result<()> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let socket = SockRef::from(socket);
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    // The kernel reports twice what it counts for data.
    let granted = socket.recv_buffer_size()? / 2;
    if granted < SOCKET_BUFFER && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            granted,
            wanted = SOCKET_BUFFER,
            "the receive buffers of QUIC are small, so packets may be lost; raise net.core.rmem_max"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn a_send_has_at_most_65507_bytes() {
        for (size, most) in [
            (1_472, 44),
            (1_200, 54),
            (1_023, 64),
            (1_024, 63),
            (1_452, 45),
        ] {
            assert_eq!(segments(64, size), most, "{size}");
        }
        assert_eq!(segments(64, u16::MAX), 1);
        assert_eq!(segments(1, 1_200), 1);
        assert_eq!(segments(64, 0), 64);
    }

    #[test]
    fn a_run_of_packets_arrives_as_single_packets_with_ecn() {
        apus_testkit::block_on(async {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
                let destination = receiver.local_addr().unwrap();
                let [sender, receiver] =
                    [sender, receiver].map(|socket| UdpIo::new(socket).unwrap());
                let size = 4 * 1_200 + 100;
                let transmit = Transmit {
                    destination,
                    ecn: Some(EcnCodepoint::Ect0),
                    size,
                    segment_size: Some(1_200),
                    src_ip: None,
                };
                let mut contents = Vec::new();
                for packet in 0..5 {
                    contents.resize((packet + 1) * 1_200, packet as u8);
                }
                // Bytes after the packets are not sent.
                poll_fn(|cx| sender.poll_send(cx, &transmit, &contents))
                    .await
                    .unwrap();
                let mut buffer = ReceiveBuffer::new();
                let mut received = Vec::new();
                while received.len() < 5 {
                    poll_fn(|cx| {
                        receiver.poll_receive(cx, &mut buffer, |source, packet| {
                            received.push((source, packet.to_vec()));
                        })
                    })
                    .await
                    .unwrap();
                }
                for (number, (source, packet)) in received.iter().enumerate() {
                    let length = if number < 4 { 1_200 } else { 100 };
                    assert_eq!(*packet, vec![number as u8; length]);
                    assert_eq!(source.ecn, Some(EcnCodepoint::Ect0));
                    assert_eq!(source.local_ip, Some(destination.ip()));
                }
            }
        });
    }

    #[test]
    fn a_probe_above_the_mtu_of_the_interface_is_lost_silently() {
        apus_testkit::block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let destination = socket.local_addr().unwrap();
            let udp = UdpIo::new(socket).unwrap();
            let size = MAX_SENT + 1;
            let transmit = Transmit {
                destination,
                ecn: None,
                size,
                segment_size: None,
                src_ip: None,
            };
            assert!(udp.try_send(&transmit, &vec![0; size]).is_ok());
            let mut buffer = ReceiveBuffer::new();
            let received = poll_fn(|cx| {
                let polled = udp.poll_receive(cx, &mut buffer, |_, _| panic!("a packet"));
                Poll::Ready(polled.is_ready())
            });
            assert!(!received.await);
        });
    }
}
