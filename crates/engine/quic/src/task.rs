//! The task of an endpoint: it receives packets, lets the tasks of connections run, and sends what they wrote.
//!
//! A turn has two halves. In the first, all packets and timers are handled and the tasks with events are woken. They
//! run before the second half, in which everything is sent. So a response leaves with the acknowledgement of its
//! request, and each task is woken once per batch. Both halves do a bounded amount of work; the rest waits for the
//! next turn, after the other tasks of the worker. A second half is followed by a first one in the same poll: packets
//! and timers that came between the halves have woken the task already, and would not wake it again.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::core::ConnectionCore;
use crate::endpoint_state::EndpointState;
use crate::events::QuicCloseReason;
use crate::receive::PacketHandler;
use crate::send::SendBuffer;
use crate::timers::{DeadlineHeap, KernelTimer};
use crate::udp::{ReceiveBuffer, UdpIo};
use crate::workers::{HandedPacket, Membership};

/// Calls of `recvmmsg` in a turn.
const RECEIVES: usize = 4;
/// Packets from other endpoints in a turn.
const HANDED_IN: usize = 256;
/// Sends in a turn, and of one connection in a turn. Each can be a run of packets.
const SENDS: usize = 64;
const SENDS_OF_ONE: usize = 4;

/// The task of an endpoint. It ends when the endpoint stops and has no connections left.
#[must_use = "connections make progress only while this runs"]
pub struct EndpointTask {
    state: Rc<EndpointState>,
    udp: UdpIo,
    packets: mpsc::Receiver<HandedPacket>,
    heap: DeadlineHeap,
    timer: KernelTimer,
    received: ReceiveBuffer,
    /// A response outside of connections.
    response: Vec<u8>,
    sent: SendBuffer,
    /// Whether the tasks that the first half woke have run.
    is_second_half: bool,
    /// Leaves the group of the socket, after the socket is closed.
    _membership: Membership,
}

impl EndpointTask {
    pub(crate) fn new(
        state: Rc<EndpointState>,
        udp: UdpIo,
        packets: mpsc::Receiver<HandedPacket>,
        membership: Membership,
    ) -> io::Result<Self> {
        Ok(Self {
            state,
            udp,
            packets,
            heap: DeadlineHeap::default(),
            timer: KernelTimer::new()?,
            received: ReceiveBuffer::new(),
            response: Vec::new(),
            sent: SendBuffer::default(),
            is_second_half: false,
            _membership: membership,
        })
    }

    /// Handles packets and timers. Returns whether there are more, and whether tasks were woken.
    fn handle_input(&mut self, cx: &mut Context<'_>, now: Instant) -> (bool, bool) {
        let more_handed_in = self.receive_handed_in(cx, now);
        let more_received = self.receive(cx, now);
        self.expire_timers(cx, now);
        let mut any_woken = false;
        for index in 0..self.state.work.len() {
            if let Some(connection) = self.state.work.get(index) {
                any_woken |= self.state.settle(&connection);
            }
        }
        self.state.free_memory(now);
        (more_handed_in || more_received, any_woken)
    }

    fn receive_handed_in(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        for _ in 0..HANDED_IN {
            match self.packets.poll_recv(cx) {
                Poll::Ready(Some(mut packet)) => {
                    self.state.count(|counters| counters.handed_in += 1);
                    PacketHandler::of(&self.state, &self.udp, &mut self.response, now)
                        .handle(packet.source, &mut packet.contents);
                }
                Poll::Ready(None) | Poll::Pending => return false,
            }
        }
        true
    }

    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut packets = PacketHandler::of(&self.state, &self.udp, &mut self.response, now);
        for _ in 0..RECEIVES {
            let polled = self
                .udp
                .poll_receive(cx, &mut self.received, |source, packet| {
                    packets.route(source, packet);
                });
            match polled {
                Poll::Ready(Ok(_)) => {}
                // Such as an error of ICMP, which anyone can send. It concerns no other packet.
                Poll::Ready(Err(error)) => tracing::debug!(%error, "receiving QUIC packets"),
                Poll::Pending => return false,
            }
        }
        true
    }

    fn expire_timers(&mut self, cx: &mut Context<'_>, now: Instant) {
        while let Poll::Ready(fired) = self.timer.poll_fired(cx) {
            if let Err(error) = fired {
                tracing::error!(%error, "the timer of a QUIC endpoint failed");
                return;
            }
        }
        while let Some((at, index)) = self.heap.pop_due(now) {
            let Some(connection) = self.state.connection(index) else {
                continue;
            };
            if connection.heap_entry.get() != Some(at) {
                continue;
            }
            connection.heap_entry.set(None);
            if connection.deadline.get().is_none_or(|due| due > now) {
                self.set_deadline(&connection);
                continue;
            }
            if connection
                .handshake_deadline
                .get()
                .is_some_and(|due| due <= now)
            {
                connection.close(now, 0, Bytes::new(), QuicCloseReason::HandshakeTimeout);
                connection.wake();
            }
            connection.protocol.borrow_mut().handle_timeout(now);
            self.state.work.push(&connection);
        }
    }

    /// Sends what connections have. Returns whether there is more that the socket would take.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let udp = &self.udp;
        match self
            .sent
            .poll_flush(|transmit, contents| udp.poll_send(cx, transmit, contents))
        {
            Poll::Ready(sent) => self.check(sent),
            Poll::Pending => return false,
        }
        let mut sends = SENDS;
        for _ in 0..self.state.work.len() {
            let Some(connection) = self.state.work.pop() else {
                break;
            };
            let most = sends.min(SENDS_OF_ONE);
            let sent = self.send_connection(cx, &connection, most, now);
            self.state.settle(&connection);
            self.set_deadline(&connection);
            match sent {
                Poll::Ready(count) => {
                    sends -= count;
                    if count == most {
                        self.state.work.push(&connection);
                    }
                }
                Poll::Pending => {
                    self.state.work.push(&connection);
                    return false;
                }
            }
            if sends == 0 {
                break;
            }
        }
        self.state.work.len() > 0
    }

    /// Sends at most `most` times for a connection; returns how often.
    fn send_connection(
        &mut self,
        cx: &mut Context<'_>,
        connection: &ConnectionCore,
        most: usize,
        now: Instant,
    ) -> Poll<usize> {
        for count in 0..most {
            let mut protocol = connection.protocol.borrow_mut();
            let segments = self.udp.most_segments(protocol.current_mtu());
            let udp = &self.udp;
            let sent = self.sent.poll_send(
                |packets| protocol.poll_transmit(now, segments, packets),
                |transmit, contents| udp.poll_send(cx, transmit, contents),
            );
            match sent {
                Poll::Ready(None) => return Poll::Ready(count),
                Poll::Ready(Some(sent)) => self.check(sent),
                Poll::Pending => {
                    self.state.count(|counters| counters.blocked_sends += 1);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(most)
    }

    /// A packet that the kernel rejects is lost, like one that a router rejects.
    fn check(&self, sent: io::Result<()>) {
        if let Err(error) = sent {
            self.state.count(|counters| counters.unsent += 1);
            tracing::debug!(%error, "sending a QUIC packet");
        }
    }

    /// Puts the next deadline of a connection into the heap, unless an earlier one is in it.
    fn set_deadline(&mut self, connection: &ConnectionCore) {
        let Some(deadline) = connection.update_deadline() else {
            return;
        };
        if connection
            .heap_entry
            .get()
            .is_none_or(|entry| deadline < entry)
        {
            connection.heap_entry.set(Some(deadline));
            self.heap.push(deadline, connection.handle.0);
        }
    }
}

impl Future for EndpointTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.state.work.set_task(cx.waker());
        let now = Instant::now();
        if std::mem::take(&mut this.is_second_half) {
            this.send(cx, now);
        }
        let (has_more_input, any_woken) = this.handle_input(cx, now);
        if any_woken {
            this.is_second_half = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let has_more_to_send = this.send(cx, now);
        if this.state.is_stopping.get() && this.state.connection_count() == 0 {
            return Poll::Ready(());
        }
        if let Err(error) = this.timer.set(this.heap.earliest(), now) {
            tracing::error!(%error, "the timer of a QUIC endpoint failed");
        }
        if has_more_input || has_more_to_send {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
