//! The messages of `grpc.health.v1.Health/Check` (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).

/// The request target.
pub(super) const TARGET: &str = "/grpc.health.v1.Health/Check";

/// Writes a `HealthCheckRequest` with the prefix of a gRPC message.
/// <https://protobuf.dev/programming-guides/encoding/> defines the encoding.
pub(super) fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(service.len() + 8);
    if !service.is_empty() {
        // Field 1, a string.
        message.push(0x0a);
        write_varint(service.len() as u64, &mut message);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed.extend_from_slice(&len.to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// Whether a `HealthCheckResponse` says `SERVING`; `None` if the body is no such message.
pub(super) fn is_serving(body: &[u8]) -> Option<bool> {
    // The first byte says that the message is not compressed; the request did not allow that it is.
    let (&[0, a, b, c, d], rest) = body.split_first_chunk::<5>()? else {
        return None;
    };
    let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    let mut message = rest.get(..len)?;
    let mut status = 0;
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = read_varint(&mut message)?,
            // Fields of later versions of the message.
            (_, 0) => drop(read_varint(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let len = usize::try_from(read_varint(&mut message)?).ok()?;
                message = message.get(len..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status == 1)
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_the_request_of_the_definition() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = request(&"x".repeat(200));
        assert_eq!(long[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 1]);
    }

    #[test]
    fn reads_the_status() {
        for (body, expected) in [
            (&[0, 0, 0, 0, 2, 8, 1][..], Some(true)),
            (&[0, 0, 0, 0, 2, 8, 2], Some(false)),
            // The default, UNKNOWN, is not written.
            (&[0, 0, 0, 0, 0], Some(false)),
            (&[0, 0, 0, 0, 6, 0x12, 2, 0, 0, 8, 1], Some(true)),
            (&[0, 0, 0, 0, 7, 0x15, 0, 0, 0, 0, 8, 1], Some(true)),
            (&[1, 0, 0, 0, 2, 8, 1], None),
            (&[0, 0, 0, 0, 9, 8, 1], None),
            (&[0, 0, 0], None),
            (&[0, 0, 0, 0, 1, 8], None),
        ] {
            assert_eq!(is_serving(body), expected, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_anything_without_panicking(body: Vec<u8>) {
            is_serving(&body);
        }

        #[test]
        fn reads_the_numbers_it_writes(number: u64) {
            let mut bytes = Vec::new();
            write_varint(number, &mut bytes);
            prop_assert_eq!(read_varint(&mut bytes.as_slice()), Some(number));
        }
    }
}
