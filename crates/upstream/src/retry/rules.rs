//! When a request that went wrong may be tried with another node (RFC 9110 section 9.2.2).

use apus_http::{Method, StatusCode};

use crate::plan::{RetryOn, RetryPlan};

/// What went wrong with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The connection failed, or the node spoke no HTTP.
    Error {
        /// Whether the node may have seen any of the request.
        sent: bool,
    },
    /// The node was too slow.
    TimedOut {
        /// Whether the node may have seen any of the request.
        sent: bool,
    },
    /// The node answered with this status, and none of its content was passed on.
    Status(StatusCode),
}

/// Whether the request may be tried with another node; budget, tries and time are asked elsewhere.
/// What the node may have seen is sent again only where that does the same as once, or where the
/// configuration says so.
pub(crate) fn may_retry(plan: &RetryPlan, idempotent: bool, trouble: Trouble) -> bool {
    let RetryOn {
        error,
        timeout,
        statuses,
    } = &plan.on;
    let (chosen, sent) = match trouble {
        Trouble::Error { sent } => (*error, sent),
        Trouble::TimedOut { sent } => (*timeout, sent),
        Trouble::Status(status) => (statuses.contains(&status), true),
    };
    chosen && (!sent || idempotent || plan.non_idempotent)
}

/// Whether asking twice does the same as asking once (RFC 9110 section 9.2.2).
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> RetryPlan {
        RetryPlan {
            on: RetryOn {
                error: true,
                timeout: true,
                statuses: vec![StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE],
            },
            ..RetryPlan::default()
        }
    }

    #[test]
    fn repeats_only_what_was_not_sent_or_is_idempotent() {
        let statuses = [
            Trouble::Status(StatusCode::BAD_GATEWAY),
            Trouble::Status(StatusCode::SERVICE_UNAVAILABLE),
        ];
        let mut plan = plan();
        for sent in [true, false] {
            for trouble in [Trouble::Error { sent }, Trouble::TimedOut { sent }] {
                assert!(may_retry(&plan, true, trouble));
                assert_eq!(may_retry(&plan, false, trouble), !sent);
            }
        }
        for trouble in statuses {
            assert!(may_retry(&plan, true, trouble));
            assert!(!may_retry(&plan, false, trouble));
        }
        plan.non_idempotent = true;
        for trouble in statuses {
            assert!(may_retry(&plan, false, trouble));
        }
        assert!(may_retry(&plan, false, Trouble::Error { sent: true }));
    }

    #[test]
    fn repeats_only_on_what_was_chosen() {
        let mut plan = plan();
        assert!(!may_retry(
            &plan,
            true,
            Trouble::Status(StatusCode::NOT_FOUND)
        ));
        assert!(!may_retry(
            &plan,
            true,
            Trouble::Status(StatusCode::GATEWAY_TIMEOUT)
        ));
        plan.on.error = false;
        assert!(!may_retry(&plan, true, Trouble::Error { sent: false }));
        plan.on.timeout = false;
        assert!(!may_retry(&plan, true, Trouble::TimedOut { sent: false }));
    }

    #[test]
    fn knows_the_idempotent_methods() {
        for (method, expected) in [
            ("GET", true),
            ("HEAD", true),
            ("OPTIONS", true),
            ("TRACE", true),
            ("PUT", true),
            ("DELETE", true),
            ("POST", false),
            ("PATCH", false),
            ("CONNECT", false),
            ("LOCK", false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(is_idempotent(&method), expected, "{method}");
        }
    }
}
