//! A check that the host of a request is the server name of its TLS handshake, for client
//! certificates.
//!
//! A client selects the site of the handshake by SNI (RFC 6066 section 3), and the site of a
//! request by `Host`. If the two could differ, a handshake with a site without client certificates
//! would give access to a site that requires them.

use std::rc::Rc;

use apus_handler::error_page;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Request, ResponseFuture, Service, ServiceFactory, StatusCode};

/// Responds with 421 to requests for another host than in the handshake (RFC 9110 section 15.5.20).
pub(super) struct SniCheck<F>(pub(super) F);

impl<F: ServiceFactory> ServiceFactory for SniCheck<F> {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(SniCheckService(self.0.service()))
    }
}

struct SniCheckService(Rc<dyn Service>);

impl Service for SniCheckService {
    fn call(&self, request: Request) -> ResponseFuture {
        let server_name = request
            .connection()
            .tls
            .as_ref()
            .and_then(|tls| tls.server_name.as_deref());
        match (server_name, request.host()) {
            (Some(name), Some(host)) if is_same(name, host) => self.0.call(request),
            _ => {
                trace::note(&request, || {
                    let why = "the server name of the handshake is another one, and a site of this listener \
                               requires client certificates";
                    Step::new(StepKind::Site, "none", why)
                });
                error_page(&request, StatusCode::MISDIRECTED_REQUEST).into()
            }
        }
    }
}

/// Whether `host`, which may have a port, is `name`.
fn is_same(name: &str, host: &str) -> bool {
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    plain(host) == plain(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_the_case_and_a_final_dot_do_not_count() {
        for host in ["a.example", "A.Example:443", "a.example.", "a.example.:443"] {
            assert!(is_same("a.example", host), "{host}");
        }
        for host in ["", "b.example", "xa.example", "a.example.b", "[::1]:443"] {
            assert!(!is_same("a.example", host), "{host}");
        }
    }
}
