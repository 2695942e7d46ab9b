//! `SynFilter`: the refused clients whose attempts to connect the kernel drops, because they come again and again.
//!
//! To accept a connection and to close it takes about 25 us, most of it in the kernel. A program of the Berkeley Packet Filter on
//! the listening socket drops the first segment of a connection (SYN, RFC 9293 section 3.1), which takes nothing of this process.
//! Linux asks for no privilege; a sandbox that forbids it (EPERM) leaves the connections to be closed.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use libc::sock_filter;

use crate::worker::Worker;

/// The attempts to connect, of which half are forgotten each second, after which a client is dropped.
const ATTEMPTS: u8 = 16;

/// The seconds for which a client is dropped. Nobody sees what the kernel drops, so afterwards its attempts count anew.
const HOLD: u8 = 10;

/// The clients that are counted, and the most that are dropped: the program is searched by halves, and may have 4,096
/// instructions (`BPF_MAXINSNS`), of which a client takes fewer than nine.
const MAX_CLIENTS: usize = 256;

/// The time between two looks at the clients.
const INTERVAL: Duration = Duration::from_secs(1);

/// What puts a program on the listening socket, or with `None` takes it away. Without it, refused clients are closed as before.
type Attach = dyn Fn(Option<&[sock_filter]>);

/// The refused clients of a listening socket.
pub(crate) struct SynFilter {
    worker: Rc<Worker>,
    attach: Box<Attach>,
    clients: RefCell<Vec<RefusedClient>>,
}

struct RefusedClient {
    address: IpAddr,
    source: Source,
    attempts: u8,
    /// The seconds for which it stays dropped; 0 if it is not.
    dropped: u8,
}

/// The source of a segment, as the program compares it: an address of IPv4, or the first 64 bits of one of IPv6, which is what one
/// client usually has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    V4(u32),
    V6(u32, u32),
}

impl Source {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments().map(u32::from);
                Self::V6(a << 16 | b, c << 16 | d)
            }
        }
    }
}

impl SynFilter {
    /// No client was refused yet.
    pub(crate) fn new(worker: &Rc<Worker>, attach: Box<Attach>) -> Rc<Self> {
        Rc::new(Self {
            worker: Rc::clone(worker),
            attach,
            clients: RefCell::default(),
        })
    }

    /// Counts a connection of a client that was refused.
    pub(crate) fn count(self: &Rc<Self>, address: IpAddr) {
        let source = Source::of(address);
        let mut clients = self.clients.borrow_mut();
        if clients.is_empty() {
            tokio::task::spawn_local(forget(Rc::downgrade(self)));
        }
        let known = clients.iter_mut().find(|client| client.source == source);
        let Some(client) = known else {
            // Past the most, those that come later are closed as before.
            if clients.len() < MAX_CLIENTS {
                clients.push(RefusedClient {
                    address,
                    source,
                    attempts: 1,
                    dropped: 0,
                });
            }
            return;
        };
        client.attempts = client.attempts.saturating_add(1);
        // Connections that were in the queue still come while it is dropped.
        if client.attempts >= ATTEMPTS && client.dropped == 0 {
            client.dropped = HOLD;
            self.renew(&clients);
        }
    }

    /// Puts a program on the socket that drops the clients that are to be dropped now.
    fn renew(&self, clients: &[RefusedClient]) {
        let dropped = clients.iter().filter(|client| client.dropped > 0);
        let mut sources: Vec<Source> = dropped.map(|client| client.source).collect();
        sources.sort_unstable();
        let program = (!sources.is_empty()).then(|| program(&sources));
        (self.attach)(program.as_deref());
    }

    /// A second has passed. Returns whether there are clients left.
    fn pass_second(&self) -> bool {
        let mut clients = self.clients.borrow_mut();
        let mut is_changed = false;
        clients.retain_mut(|client| {
            client.attempts /= 2;
            if client.dropped == 0 {
                return client.attempts > 0;
            }
            client.dropped = client.dropped.saturating_sub(1);
            // Whoever is banned no longer can connect within a second.
            let stays = client.dropped > 0 && self.worker.would_refuse(client.address);
            is_changed |= !stays;
            stays
        });
        if is_changed {
            self.renew(&clients);
        }
        !clients.is_empty()
    }
}

/// Forgets the refused clients of a socket that come no more, as long as there are any.
async fn forget(filter: Weak<SynFilter>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(filter) = filter.upgrade() else {
            return;
        };
        if !filter.pass_second() {
            return;
        }
    }
}

// Codes of <linux/bpf_common.h>.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_NOT_LESS: u16 = 0x35;
const JUMP_IF_SET: u16 = 0x45;
const SHIFT_RIGHT: u16 = 0x74;
const RETURN: u16 = 0x06;

/// Where the network header begins (`SKF_NET_OFF` of <linux/filter.h>); other offsets are those in the TCP header.
const NETWORK: u32 = 0xfff0_0000;
/// The source in the header of IPv4 (RFC 791 section 3.1) and of IPv6 (RFC 8200 section 3).
const SOURCE_V4: u32 = NETWORK + 12;
const SOURCE_V6: u32 = NETWORK + 8;

const PASS: sock_filter = instruction(RETURN, (0, 0), u32::MAX);
const DROP: sock_filter = instruction(RETURN, (0, 0), 0);

/// The sources that are compared one after the other.
const LEAF: usize = 4;

/// An instruction. A jump goes on after the first number of instructions if its condition holds, and after the second if not.
const fn instruction(code: u16, (jt, jf): (u8, u8), k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn load(code: u16, offset: u32) -> sock_filter {
    instruction(code, (0, 0), offset)
}

fn jump_over(part: &[sock_filter]) -> sock_filter {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    instruction(JUMP, (0, 0), length)
}

/// A program that drops the segments with which clients begin to connect (SYN, bit 1 of byte 13 of the TCP header).
pub(crate) const DROP_ALL: [sock_filter; 4] = [
    load(LOAD_BYTE, 13),
    instruction(JUMP_IF_SET, (0, 1), 2),
    DROP,
    PASS,
];

/// The same of these sources, which are in order. Accepted sockets inherit it: their segments pass after three instructions.
fn program(sources: &[Source]) -> Vec<sock_filter> {
    let v6 = sources.partition_point(|source| matches!(source, Source::V4(_)));
    let (v4, v6) = sources.split_at(v6);
    let mut of_v6 = vec![load(LOAD_WORD, SOURCE_V6)];
    search(v6, &mut of_v6);
    let mut program = vec![
        load(LOAD_BYTE, 13),
        instruction(JUMP_IF_SET, (1, 0), 2),
        PASS,
        // The version is the first half of the first byte.
        load(LOAD_BYTE, NETWORK),
        instruction(SHIFT_RIGHT, (0, 0), 4),
        instruction(JUMP_IF_EQUAL, (0, 1), 4),
        jump_over(&of_v6),
    ];
    program.extend(of_v6);
    program.push(load(LOAD_WORD, SOURCE_V4));
    search(v4, &mut program);
    program
}

/// Adds the search for the source whose first word is loaded.
fn search(sources: &[Source], program: &mut Vec<sock_filter>) {
    let Some((at, word)) = middle(sources).filter(|_| sources.len() > LEAF) else {
        for source in sources {
            match *source {
                Source::V4(word) => {
                    program.extend([instruction(JUMP_IF_EQUAL, (0, 1), word), DROP]);
                }
                Source::V6(first, second) => program.extend([
                    instruction(JUMP_IF_EQUAL, (0, 4), first),
                    load(LOAD_WORD, SOURCE_V6 + 4),
                    instruction(JUMP_IF_EQUAL, (0, 1), second),
                    DROP,
                    load(LOAD_WORD, SOURCE_V6),
                ]),
            }
        }
        program.push(PASS);
        return;
    };
    let (below, others) = sources.split_at(at);
    let mut of_below = Vec::new();
    search(below, &mut of_below);
    // A conditional jump reaches 255 instructions, and the other kind any.
    program.push(instruction(JUMP_IF_NOT_LESS, (0, 1), word));
    program.push(jump_over(&of_below));
    program.extend(of_below);
    search(others, program);
}

/// Where to halve the sources, and the first word of those from there on; `None` if all have the same one.
fn middle(sources: &[Source]) -> Option<(usize, u32)> {
    let word = |source: &Source| match *source {
        Source::V4(word) | Source::V6(word, _) => word,
    };
    let pivot = word(sources.get(sources.len() / 2)?);
    let below = sources.partition_point(|source| word(source) < pivot);
    let at = if below > 0 {
        below
    } else {
        sources.partition_point(|source| word(source) == pivot)
    };
    Some((at, word(sources.get(at)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel does with a segment: whether it passes. Every load of a program is within the headers.
    fn passes(program: &[sock_filter], network: &[u8], tcp: &[u8]) -> bool {
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let (header, offset) = if k >= NETWORK {
                (network, (k - NETWORK) as usize)
            } else {
                (tcp, k as usize)
            };
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            at += 1;
            match code {
                LOAD_BYTE => accumulator = header[offset].into(),
                LOAD_WORD => {
                    let word = header[offset..offset + 4].try_into().unwrap();
                    accumulator = u32::from_be_bytes(word);
                }
                SHIFT_RIGHT => accumulator >>= k,
                JUMP => at += k as usize,
                JUMP_IF_EQUAL => at += jump(accumulator == k),
                JUMP_IF_NOT_LESS => at += jump(accumulator >= k),
                JUMP_IF_SET => at += jump(accumulator & k != 0),
                RETURN => return k > 0,
                code => panic!("no such code: {code:#x}"),
            }
        }
    }

    fn network_header(source: IpAddr) -> Vec<u8> {
        match source {
            IpAddr::V4(source) => [&[0x45; 12][..], &source.octets(), &[9; 4]].concat(),
            IpAddr::V6(source) => [&[0x60; 8][..], &source.octets(), &[9; 16]].concat(),
        }
    }

    /// Addresses of which many are the same, or the same but for one part.
    fn address() -> impl Strategy<Value = IpAddr> {
        let byte = || prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()];
        prop_oneof![
            [byte(), byte(), byte(), byte()].prop_map(IpAddr::from),
            (any::<[bool; 14]>(), byte(), byte()).prop_map(|(bits, a, b)| {
                let mut bytes = [0x20; 16];
                bytes[0] = a;
                bytes[7] = b;
                for (byte, bit) in bytes[1..].iter_mut().zip(bits) {
                    *byte ^= u8::from(bit) * 0x7f;
                }
                IpAddr::from(bytes)
            }),
        ]
    }

    fn sorted(addresses: &[IpAddr]) -> Vec<Source> {
        let mut sources: Vec<_> = addresses
            .iter()
            .map(|address| Source::of(*address))
            .collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn drops_the_first_segment_of_these_sources_and_no_other(
            dropped in prop::collection::vec(address(), 0..MAX_CLIENTS),
            others in prop::collection::vec(address(), 1..50),
        ) {
            let sources = sorted(&dropped);
            let program = program(&sources);
            for address in dropped.iter().chain(&others) {
                let is_dropped = sources.binary_search(&Source::of(*address)).is_ok();
                let segment = |flags: u8| [[0; 13].as_slice(), &[flags, 0, 0]].concat();
                let header = network_header(*address);
                prop_assert_eq!(passes(&program, &header, &segment(0x02)), !is_dropped);
                for flags in [0x10, 0x11, 0x04, 0x18] {
                    prop_assert!(passes(&program, &header, &segment(flags)), "{:#x}", flags);
                }
            }
        }
    }

    #[test]
    fn the_largest_programs_are_no_longer_than_the_kernel_allows() {
        let v4: Vec<_> = (0..256_u32)
            .map(|n| IpAddr::from((n * 77_777).to_be_bytes()))
            .collect();
        let v6 = |different: usize| -> Vec<_> {
            let address = |n: u8| {
                let mut bytes = [0; 16];
                bytes[different] = n;
                IpAddr::from(bytes)
            };
            (0..=255).map(address).collect()
        };
        for addresses in [v4, v6(0), v6(3), v6(7)] {
            let sources = sorted(&addresses);
            assert_eq!(sources.len(), MAX_CLIENTS);
            assert!(program(&sources).len() < 9 * MAX_CLIENTS);
        }
    }
}
