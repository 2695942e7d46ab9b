//! TXT records by HTTP: the API of acme-dns, and webhooks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::dns_publisher::AcmeDnsAccount;
use crate::issue_error::IssueError;
use crate::operator_request::{HttpExchange, fetch};

/// How long a server may take. A webhook returns when the record is at the name servers, or before.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sets the value of the TXT record of an account.
pub(super) async fn update_acme_dns(
    account: &AcmeDnsAccount,
    value: &str,
) -> Result<(), IssueError> {
    let url = format!("{}/update", account.url.trim_end_matches('/'));
    let fields = [
        ("x-api-user", account.user.as_str()),
        ("x-api-key", account.password.as_str()),
    ];
    post(
        &url,
        &fields,
        &json!({ "subdomain": account.subdomain, "txt": value }),
    )
    .await
}

/// Calls a webhook: `present` or `cleanup`, the name of the record, its value.
pub(super) async fn call_webhook(
    url: &str,
    token: Option<&str>,
    action: &str,
    name: &str,
    value: &str,
) -> Result<(), IssueError> {
    let token = token.map(|token| format!("Bearer {token}"));
    let fields: Vec<_> = token
        .iter()
        .map(|token| ("authorization", token.as_str()))
        .collect();
    let body = json!({ "action": action, "name": name, "value": value });
    post(url, &fields, &body).await
}

/// Posts JSON; a status of 200 to 299 is a success.
async fn post(url: &str, fields: &[(&str, &str)], body: &Value) -> Result<(), IssueError> {
    let response = fetch(HttpExchange {
        url,
        fields,
        json: Some(body),
        patience: PATIENCE,
    })
    .await?;
    match response.status {
        200..300 => Ok(()),
        status => Err(IssueError::new(format!(
            "{url}: status {status}: {}",
            response.line
        ))),
    }
}
