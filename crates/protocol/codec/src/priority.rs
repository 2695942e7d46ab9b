//! Parses the priority signals of clients (RFC 9218 sections 4 and 5).

use apus_http::list;

/// The urgency of a response, and whether it can be processed incrementally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// The order among responses of equal urgency.
    pub order: SendOrder,
}

/// The order of sending among responses of equal urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// Frame by frame, for incremental responses and for clients that send no priority. The default of
    /// RFC 9218, one complete response after the other, would let a large download block all later
    /// requests of the client.
    Interleaved,
    /// One complete response after the other, in the order of requests, for responses that the client
    /// cannot process incrementally.
    Sequential,
}

impl Priority {
    /// The priority of a request without a signal.
    pub const DEFAULT: Self = Self {
        urgency: 3,
        order: SendOrder::Interleaved,
    };

    /// Parses a `priority` field value, or the value of PRIORITY_UPDATE: a dictionary of structured
    /// fields (RFC 9651) with the members `u` and `i`. Ignores malformed members.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self {
            // A client that sends the field knows its defaults (RFC 9218 section 4.2); one that does not is served by
            // turns.
            order: SendOrder::Sequential,
            ..Self::DEFAULT
        };
        for member in list::quoted_members(value) {
            // Parameters of a member are ignored.
            let (member, _) = list::parameters(member);
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => {
                    priority.urgency = digit.wrapping_sub(b'0');
                }
                b"i" | b"i=?1" => priority.order = SendOrder::Interleaved,
                b"i=?0" => priority.order = SendOrder::Sequential,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_known_members_and_ignores_the_rest() {
        use SendOrder::{Interleaved, Sequential};
        for (value, urgency, order) in [
            ("u=0, i", 0, Interleaved),
            ("i, u=7", 7, Interleaved),
            ("u=5", 5, Sequential),
            ("i=?1", 3, Interleaved),
            ("i, i=?0", 3, Sequential),
            ("u=1,u=2", 2, Sequential),
            ("u=1, x=\"a, u=2, i\"", 1, Sequential),
            ("u=8, x=1, i;a=b", 3, Interleaved),
            ("u=-1", 3, Sequential),
            ("u=1.5", 3, Sequential),
            ("", 3, Sequential),
        ] {
            assert_eq!(
                Priority::parse(value.as_bytes()),
                Priority { urgency, order },
                "{value}"
            );
        }
    }
}
