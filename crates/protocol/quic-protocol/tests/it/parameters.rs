//! Transport parameters that are wrong, of either end (RFC 9000 sections 7.3, 7.4 and 18).

use crate::harness::parameters::{added, number, removed, replaced};
use crate::harness::tls::EditParameters;
use crate::harness::*;

/// How the client closes a connection with these parameters of the server.
fn code_of_client(edit: EditParameters) -> Option<u64> {
    let mut pair = Pair::with(Settings {
        edit_server_parameters: Some(edit),
        ..Settings::default()
    });
    pair.run_for(ms(100));
    pair.client.own_error()
}

/// How the server closes a connection with these parameters of the client.
fn code_of_server(edit: EditParameters) -> Option<u64> {
    let mut pair = Pair::with(Settings {
        edit_client_parameters: Some(edit),
        ..Settings::default()
    });
    pair.run_for(ms(100));
    pair.server.own_error()
}

/// Section 7.3: an attacker may have changed the connection IDs of Initial packets.
#[test]
fn a_client_closes_when_connection_ids_are_not_those_of_the_handshake() {
    for edit in [
        removed(0x0),
        replaced(0x0, &[7; 8]),
        removed(0xf),
        replaced(0xf, &[7; 8]),
        // There was no Retry packet.
        replaced(0x10, &[7; 8]),
    ] {
        assert_eq!(code_of_client(edit), Some(0x8));
    }
}

#[test]
fn a_client_closes_when_a_server_hides_its_retry_packet() {
    for edit in [removed(0x10), replaced(0x10, &[7; 8])] {
        let mut pair = Pair::with(Settings {
            edit_server_parameters: Some(edit),
            ..Settings::default()
        });
        pair.server.on_incoming = end::OnIncoming::Retry;
        pair.run_for(ms(100));
        assert_eq!(pair.client.own_error(), Some(0x8));
    }
}

#[test]
fn a_server_closes_when_connection_ids_are_not_those_of_the_handshake() {
    for edit in [removed(0xf), replaced(0xf, &[7; 8])] {
        assert_eq!(code_of_server(edit), Some(0x8));
    }
}

/// Section 18.2.
#[test]
fn parameters_that_only_servers_have_are_errors_of_clients() {
    for edit in [
        replaced(0x0, &[1; 8]),
        replaced(0x2, &[1; 16]),
        replaced(0x10, &[1; 8]),
        replaced(0xd, &[&[1; 24][..], &[8], &[2; 24]].concat()),
    ] {
        assert_eq!(code_of_server(edit), Some(0x8));
    }
}

/// The last value that is allowed, and the first that is not.
#[test]
fn values_beyond_their_bounds_are_errors_of_either_end() {
    for (id, allowed, wrong) in [
        (0x3, 1_200, 1_199),
        (0x8, 1 << 60, (1 << 60) + 1),
        (0x9, 1 << 60, (1 << 60) + 1),
        (0xa, 20, 21),
        (0xb, (1 << 14) - 1, 1 << 14),
        (0xe, 2, 1),
    ] {
        assert_eq!(code_of_client(number(id, allowed)), None, "{id:#x}");
        assert_eq!(code_of_client(number(id, wrong)), Some(0x8), "{id:#x}");
        assert_eq!(code_of_server(number(id, allowed)), None, "{id:#x}");
        assert_eq!(code_of_server(number(id, wrong)), Some(0x8), "{id:#x}");
    }
}

/// Section 18: an integer that is cut off, and one with bytes behind it, in each parameter that is an integer.
#[test]
fn integers_of_another_length_are_errors_of_either_end() {
    for id in [0x1, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xa, 0xb, 0xe] {
        for value in [&[][..], &[0x44], &[0x45, 0x00, 0x00]] {
            let edit = replaced(id, value);
            assert_eq!(code_of_client(edit.clone()), Some(0x8), "{id:#x}");
            assert_eq!(code_of_server(edit), Some(0x8), "{id:#x}");
        }
    }
}

/// Sections 18.2 and 10.3, RFC 9287 section 3: values of a fixed length, and connection IDs of more than 20 bytes.
#[test]
fn values_of_another_length_are_errors() {
    for (id, value) in [
        (0xc, &[0][..]),
        (0x2ab2, &[0]),
        (0xf, &[7; 21]),
        // What is left of a version.
        (0x11, &[0, 0, 0, 1, 0, 0, 0]),
        (0x11, &[]),
    ] {
        assert_eq!(code_of_client(replaced(id, value)), Some(0x8), "{id:#x}");
        assert_eq!(code_of_server(replaced(id, value)), Some(0x8), "{id:#x}");
    }
    for (id, value) in [
        (0x0, &[7; 21][..]),
        (0x2, &[]),
        (0x2, &[1; 15]),
        (0x2, &[1; 17]),
        (0x10, &[7; 21]),
    ] {
        assert_eq!(code_of_client(replaced(id, value)), Some(0x8), "{id:#x}");
    }
}

/// Section 18.2: the addresses, a connection ID of 1 to 20 bytes, and a token.
#[test]
fn a_preferred_address_has_a_connection_id_and_a_token() {
    for (id_length, token, is_valid) in [
        (0, 16, false),
        (1, 16, true),
        (20, 16, true),
        (21, 16, false),
        (8, 15, false),
        (8, 17, false),
    ] {
        let id = vec![9; usize::from(id_length)];
        let value = [&[0; 24][..], &[id_length], &id, &vec![3; token]].concat();
        // With a valid one, the server gives the number of that connection ID to another one, which is another error.
        let code = code_of_client(replaced(0xd, &value));
        assert_eq!(code != Some(0x8), is_valid, "{id_length} {token}");
    }
    assert_eq!(code_of_client(replaced(0xd, &[0; 24])), Some(0x8));
}

#[test]
fn a_parameter_that_comes_twice_is_an_error() {
    for edit in [added(0x4, &[1]), added(0xf, &[7; 8])] {
        assert_eq!(code_of_client(edit.clone()), Some(0x8));
        assert_eq!(code_of_server(edit), Some(0x8));
    }
}

#[test]
fn a_parameter_that_is_cut_off_is_an_error() {
    for edit in [
        added(0x1, &[0x40]),
        added(0xc, &[1]),
        replaced(0x2, &[1; 15]),
    ] {
        assert_eq!(code_of_client(edit), Some(0x8));
    }
}

/// Section 7.4.2, and those of section 18.1.
#[test]
fn unknown_parameters_are_ignored() {
    for id in [27, 31 * 5 + 27, 0x7fff_ffff] {
        assert_eq!(code_of_client(added(id, b"grease")), None);
        assert_eq!(code_of_server(added(id, b"")), None);
    }
}

/// Section 9.6: a client that does not use the preferred address has one connection ID more.
#[test]
fn a_client_stays_at_the_address_of_the_handshake() {
    let mut preferred = vec![203, 0, 113, 1, 0x01, 0xbb];
    preferred.extend([0; 18]);
    preferred.push(8);
    // The one that the server offers with number 1 later, too.
    preferred.extend([0xa1, 0, 0, 0, 0, 0, 0, 2]);
    preferred.extend([3; 16]);
    let mut pair = Pair::with(Settings {
        edit_server_parameters: Some(replaced(0xd, &preferred)),
        ..Settings::default()
    });
    pair.handshake();
    pair.transfer(Client, 1_000);
    assert_eq!(pair.client.end(), None);
    assert!(
        pair.sent
            .iter()
            .all(|sent| { sent.datagram.sender == Server || sent.datagram.to == server_address() })
    );
}
