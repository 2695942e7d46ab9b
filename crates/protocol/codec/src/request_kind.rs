//! What the status of a response means for its request: whether it begins a tunnel (RFC 9110 sections 7.8 and 9.3.6), and
//! whether it is final (section 15.2).

use http::{Method, StatusCode};

/// The kind of request, which the response depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// Any other method.
    #[default]
    Other,
    /// HEAD, whose response has no body.
    Head,
    /// CONNECT, whose response begins a tunnel.
    Connect,
    /// An extended CONNECT (RFC 8441, RFC 9220).
    ExtendedConnect,
}

impl RequestKind {
    /// The kind of a request with this method, which is not an extended CONNECT.
    #[inline]
    pub fn of(method: &Method) -> Self {
        match *method {
            Method::HEAD => Self::Head,
            Method::CONNECT => Self::Connect,
            _ => Self::Other,
        }
    }

    /// Whether the response may begin a tunnel.
    pub fn is_connect(self) -> bool {
        matches!(self, Self::Connect | Self::ExtendedConnect)
    }

    /// Whether a response of a service with this status begins a tunnel. To services, an extended CONNECT is the upgrade of
    /// HTTP/1.1, which a 101 accepts. The upgrade itself is not known by its method: of two ends of HTTP/1.1, each knows
    /// whether it was offered.
    #[inline]
    pub fn begins_tunnel(self, status: StatusCode) -> bool {
        match self {
            Self::Other | Self::Head => false,
            Self::Connect => status.is_success(),
            Self::ExtendedConnect => status == StatusCode::SWITCHING_PROTOCOLS,
        }
    }

    /// Whether a response with this status begins a tunnel over HTTP/2 and HTTP/3, which have no 101: any 2xx accepts an
    /// extended CONNECT, too (RFC 8441 section 4, RFC 9220 section 3).
    #[inline]
    pub fn begins_tunnel_over_stream(self, status: StatusCode) -> bool {
        self.is_connect() && status.is_success()
    }
}

/// The status of the final response where a service gave this one: 500 in place of a 1xx, since the client would wait for
/// another response. A 101 is final if the client `is_switching` protocols with it (RFC 9110 section 15.2.2).
#[inline]
pub(crate) fn final_status(status: StatusCode, is_switching: bool) -> StatusCode {
    if status.is_informational() && !is_switching {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_begins_with_the_status_of_its_kind_of_request() {
        let statuses = [101, 200, 204, 299, 100, 103, 300, 404, 500]
            .map(|status| StatusCode::from_u16(status).unwrap());
        let begins = |begins: &dyn Fn(StatusCode) -> bool| {
            let found = statuses.iter().filter(|status| begins(**status));
            found.map(StatusCode::as_u16).collect::<Vec<_>>()
        };
        for kind in [RequestKind::Other, RequestKind::Head] {
            assert!(begins(&|status| kind.begins_tunnel(status)).is_empty());
            assert!(begins(&|status| kind.begins_tunnel_over_stream(status)).is_empty());
        }
        let success = [200, 204, 299];
        let (connect, extended) = (RequestKind::Connect, RequestKind::ExtendedConnect);
        assert_eq!(begins(&|status| connect.begins_tunnel(status)), success);
        assert_eq!(begins(&|status| extended.begins_tunnel(status)), [101]);
        for kind in [connect, extended] {
            let over_stream = begins(&|status| kind.begins_tunnel_over_stream(status));
            assert_eq!(over_stream, success);
        }
    }

    #[test]
    fn only_a_switch_of_protocols_makes_a_1xx_final() {
        let of = |status, is_switching| {
            final_status(StatusCode::from_u16(status).unwrap(), is_switching).as_u16()
        };
        for (status, sent) in [
            (100, 500),
            (101, 500),
            (103, 500),
            (199, 500),
            (200, 200),
            (599, 599),
        ] {
            assert_eq!(of(status, false), sent, "{status}");
        }
        assert_eq!(of(101, true), 101);
    }
}
