//! The question whether a name may have a certificate, to a web server of the operator.

use std::time::Duration;

use crate::issue_error::IssueError;
use crate::operator_request::{HttpExchange, fetch};

/// How long the web server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests the URL with `?domain=` and the name: status 200 permits, and 400 to 499 does not.
pub(crate) async fn may_have_certificate(url: &str, name: &str) -> Result<bool, IssueError> {
    let separator = if url.contains('?') { '&' } else { '?' };
    // A server name has no characters that would have to be escaped.
    let url = format!("{url}{separator}domain={name}");
    let response = fetch(HttpExchange {
        url: &url,
        fields: &[],
        json: None,
        patience: PATIENCE,
    })
    .await?;
    match response.status {
        200 => Ok(true),
        400..500 => Ok(false),
        status => Err(IssueError::new(format!("{url}: status {status}"))),
    }
}
