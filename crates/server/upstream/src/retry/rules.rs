//! The rules by which a failed request may be retried (RFC 9110 section 9.2.2).

use apus_http::{Method, StatusCode};

use crate::plan::{RetryOn, RetryPlan};

/// Why an attempt failed, in the terms of the retry rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// The connection failed, or the node broke the protocol.
    Error {
        /// Whether the node may have seen any of the request.
        sent: bool,
    },
    /// The node was too slow.
    TimedOut {
        /// Whether the node may have seen any of the request.
        sent: bool,
    },
    /// The response has this status, and nothing of it was passed on.
    Status(StatusCode),
}

/// Whether the plan allows a retry for this reason; the caller checks the budget, the tries and the time. A
/// request that the node may have seen is retried only if it is idempotent or the plan allows any method.
pub(crate) fn is_retryable(plan: &RetryPlan, idempotent: bool, reason: RetryReason) -> bool {
    let RetryOn {
        error,
        timeout,
        statuses,
    } = &plan.on;
    let (is_in_plan, sent) = match reason {
        RetryReason::Error { sent } => (*error, sent),
        RetryReason::TimedOut { sent } => (*timeout, sent),
        RetryReason::Status(status) => (statuses.contains(&status), true),
    };
    // A POST that the node may have executed could be executed twice (RFC 9110 section 9.2.2). nginx has the same
    // rule since 1.9.13.
    is_in_plan && (!sent || idempotent || plan.non_idempotent)
}

/// Whether a method is idempotent (RFC 9110 section 9.2.2).
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
    fn retries_only_requests_that_were_not_sent_or_are_idempotent() {
        let statuses = [
            RetryReason::Status(StatusCode::BAD_GATEWAY),
            RetryReason::Status(StatusCode::SERVICE_UNAVAILABLE),
        ];
        let mut plan = plan();
        for sent in [true, false] {
            for reason in [RetryReason::Error { sent }, RetryReason::TimedOut { sent }] {
                assert!(is_retryable(&plan, true, reason));
                assert_eq!(is_retryable(&plan, false, reason), !sent);
            }
        }
        for reason in statuses {
            assert!(is_retryable(&plan, true, reason));
            assert!(!is_retryable(&plan, false, reason));
        }
        plan.non_idempotent = true;
        for reason in statuses {
            assert!(is_retryable(&plan, false, reason));
        }
        assert!(is_retryable(
            &plan,
            false,
            RetryReason::Error { sent: true }
        ));
    }

    #[test]
    fn retries_only_for_reasons_of_the_plan() {
        let mut plan = plan();
        assert!(!is_retryable(
            &plan,
            true,
            RetryReason::Status(StatusCode::NOT_FOUND)
        ));
        assert!(!is_retryable(
            &plan,
            true,
            RetryReason::Status(StatusCode::GATEWAY_TIMEOUT)
        ));
        plan.on.error = false;
        assert!(!is_retryable(
            &plan,
            true,
            RetryReason::Error { sent: false }
        ));
        plan.on.timeout = false;
        assert!(!is_retryable(
            &plan,
            true,
            RetryReason::TimedOut { sent: false }
        ));
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
