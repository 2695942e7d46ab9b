//! Steering: the program by which the kernel gives each packet to the socket of its endpoint (`SO_ATTACH_REUSEPORT_CBPF`
//! of socket(7)), whatever addresses the packet has.
//!
//! Without it, the kernel selects a socket by the addresses, so the packets of a client that migrates would reach
//! another worker than those before.

use std::io;
use std::net::UdpSocket;

use libc::{BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD};
use libc::{BPF_MISC, BPF_MOD, BPF_MUL, BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X, BPF_XOR};
use libc::{sock_filter, sock_fprog};

use crate::connection_id::{ConnectionIdKey, EndpointNumber, LENGTH, NUMBER_AT};
use crate::descriptor::set_option;

/// An endpoint whose socket is in the group of a port, at the index at which the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupMember {
    pub(crate) endpoint: EndpointNumber,
    /// Whether it takes new connections.
    pub(crate) accepts: bool,
}

/// No socket has this index, so the kernel selects one by the addresses of the packet.
const BY_ADDRESSES: u32 = u32::MAX;
/// The destination connection ID of a short header, and of a long one behind its length (RFC 8999 section 5).
const SHORT_ID: u32 = 1;
const LONG_ID: u32 = 6;

/// Attaches the program for these members to all sockets of the group.
pub(crate) fn attach(
    socket: &UdpSocket,
    key: &ConnectionIdKey,
    members: &[GroupMember],
) -> io::Result<()> {
    let mut program = program(key, members);
    let length = u16::try_from(program.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many sockets to steer"))?;
    let argument = sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option takes a `sock_fprog`; the kernel reads `len` instructions at its `filter`, which live until the
    // call returns.
    unsafe { set_option(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &argument) }
}

/// The endpoint for a new connection, by the connection ID that the client chose.
pub(crate) fn for_new_connection(
    key: &ConnectionIdKey,
    members: &[GroupMember],
    id: &[u8],
) -> Option<EndpointNumber> {
    let accepting = || members.iter().filter(|member| member.accepts);
    let index = usize::from(key.scramble(id)).checked_rem(accepting().count())?;
    accepting().nth(index).map(|member| member.endpoint)
}

/// The program: the socket of the endpoint that the connection ID names; for a connection ID that a client chose, one
/// that takes new connections.
fn program(key: &ConnectionIdKey, members: &[GroupMember]) -> Vec<sock_filter> {
    let number_at = NUMBER_AT as u32;
    // A = the number of the endpoint in the connection ID at `at`.
    let number = |at| {
        [
            load(BPF_W, at),
            alu(BPF_MUL, key.multiplier()),
            alu(BPF_RSH, 16),
            instruction(BPF_MISC | BPF_TAX, 0),
            load(BPF_H, at + number_at),
            instruction(BPF_ALU | BPF_XOR | BPF_X, 0),
        ]
    };
    let mut named: Vec<sock_filter> = Vec::new();
    for (index, member) in (0..).zip(members) {
        named.extend(return_if_equal(member.endpoint.into(), index));
    }
    let accepting = (0..).zip(members).filter(|(_, member)| member.accepts);
    let mut new = Vec::new();
    for (count, (index, _)) in (0..).zip(accepting.clone()) {
        new.extend(return_if_equal(count, index));
    }
    let accepting = u32::try_from(accepting.count()).unwrap_or(0);

    let short = number(SHORT_ID);
    let long = number(LONG_ID);
    let length = |part: &[sock_filter]| u32::try_from(part.len()).unwrap_or(u32::MAX);
    let mut program = vec![
        load(BPF_B, 0),
        jump(BPF_JSET, 0x80, length(&short) as u8 + 1, 0),
    ];
    program.extend(short);
    // Past the part for long headers: two instructions, the number, and one jump.
    program.push(always(length(&long) + 3));
    program.push(load(BPF_B, LONG_ID - 1));
    program.push(jump(BPF_JEQ, LENGTH as u32, 1, 0));
    program.push(always(length(&long) + length(&named)));
    program.extend(long);
    program.extend(named);
    program.push(load(BPF_B, 0));
    program.push(jump(BPF_JSET, 0x80, 1, 0));
    program.push(instruction(BPF_RET | BPF_K, BY_ADDRESSES));
    if accepting > 0 {
        program.push(load(BPF_W, LONG_ID));
        program.push(alu(BPF_MUL, key.multiplier()));
        program.push(alu(BPF_RSH, 16));
        program.push(alu(BPF_MOD, accepting));
        program.extend(new);
    }
    program.push(instruction(BPF_RET | BPF_K, BY_ADDRESSES));
    program
}

fn return_if_equal(value: u32, index: u32) -> [sock_filter; 2] {
    [
        jump(BPF_JEQ, value, 0, 1),
        instruction(BPF_RET | BPF_K, index),
    ]
}

fn load(size: u32, at: u32) -> sock_filter {
    instruction(BPF_LD | size | BPF_ABS, at)
}

fn alu(operation: u32, operand: u32) -> sock_filter {
    instruction(BPF_ALU | operation | BPF_K, operand)
}

fn always(over: u32) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, over)
}

fn jump(condition: u32, operand: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter {
        jt: if_true,
        jf: if_false,
        ..instruction(BPF_JMP | condition | BPF_K, operand)
    }
}

/// An instruction: all codes are below 256.
fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}
