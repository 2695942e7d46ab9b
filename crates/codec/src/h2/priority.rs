//! Priorities as clients signal them (RFC 9218 section 4 and 5).

use apus_http::list;

/// How urgent an answer is, and whether it is of use before it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub(super) urgency: u8,
    /// How it shares its turn with others that are as urgent.
    pub(super) sharing: Sharing,
}

/// How an answer shares its turn with others that are as urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Frame by frame. That is for incremental answers, and for those of clients that said nothing:
    /// the default of RFC 9218, one whole answer after the other, would let a large download hold
    /// up everything that a client asks for after it.
    Interleaved,
    /// One whole answer after the other, in the order of requests: the client said that it can
    /// use none of them in part.
    Sequential,
}

impl Priority {
    /// The priority of a request that says nothing.
    pub(super) const DEFAULT: Self = Self {
        urgency: 3,
        sharing: Sharing::Interleaved,
    };

    /// Reads a `priority` field value, or the value of PRIORITY_UPDATE: a dictionary of structured
    /// fields (RFC 9651) of which `u` and `i` count. What is malformed counts as absent.
    pub(super) fn parse(value: &[u8]) -> Self {
        let mut priority = Self {
            sharing: Sharing::Sequential,
            ..Self::DEFAULT
        };
        for member in list::quoted_members(value) {
            // Parameters of a member have no meaning here.
            let (member, _) = list::parameters(member);
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => {
                    priority.urgency = digit.wrapping_sub(b'0');
                }
                b"i" | b"i=?1" => priority.sharing = Sharing::Interleaved,
                b"i=?0" => priority.sharing = Sharing::Sequential,
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
    fn reads_what_counts_and_ignores_the_rest() {
        use Sharing::{Interleaved, Sequential};
        for (value, urgency, sharing) in [
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
                Priority { urgency, sharing },
                "{value}"
            );
        }
    }
}
