//! TXT records of challenges (`dns-01`, RFC 8555 section 8.4): where they belong, who publishes them, and when they are
//! visible.

mod http;
mod lookup;
mod update;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::dns_publisher::DnsPublisher;
use crate::issue_error::IssueError;

pub(crate) use self::lookup::DnsLookup;

/// How long a DNS hook may take, with the time until the record is published.
const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// A TXT record of a challenge.
#[derive(Clone, Debug)]
pub(crate) struct TxtRecord {
    /// Where it is: the name of the challenge, or the one that a CNAME record delegates it to.
    name: String,
    value: String,
}

/// The publication of the records of an order.
#[derive(Debug)]
pub(crate) struct DnsPublication<'a> {
    publisher: &'a DnsPublisher,
    lookup: DnsLookup,
}

impl<'a> DnsPublication<'a> {
    /// `resolver` is the name server that is asked where names belong; `None`: the name server of the system.
    pub(crate) fn new(publisher: &'a DnsPublisher, resolver: Option<SocketAddr>) -> Self {
        Self {
            publisher,
            lookup: DnsLookup::new(resolver),
        }
    }

    /// Publishes the value of a challenge at its name. Returns the record, to be removed later.
    pub(crate) async fn publish(&self, name: &str, value: &str) -> Result<TxtRecord, IssueError> {
        let mut record = TxtRecord {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        if !matches!(self.publisher, DnsPublisher::Hook(_)) {
            record.name = self.lookup.delegated(name).await;
        }
        self.change("present", &record).await?;
        Ok(record)
    }

    /// Waits until the authoritative name servers have the record; programs do that themselves.
    pub(crate) async fn wait_until_visible(&self, record: &TxtRecord) -> Result<(), IssueError> {
        if matches!(self.publisher, DnsPublisher::Hook(_)) {
            return Ok(());
        }
        let TxtRecord { name, value } = record;
        self.lookup.wait_until_visible(name, value).await
    }

    /// Removes a record; what is left over does no harm.
    pub(crate) async fn withdraw(&self, record: &TxtRecord) {
        if let Err(error) = self.change("cleanup", record).await {
            let name = &record.name;
            tracing::warn!(%name, %error, "a TXT record of a challenge stays");
        }
    }

    async fn change(&self, action: &str, record: &TxtRecord) -> Result<(), IssueError> {
        let TxtRecord { name, value } = record;
        match self.publisher {
            DnsPublisher::Hook(hook) => call_hook(hook, action, name, value).await,
            DnsPublisher::Update(server) => {
                let zone = self.lookup.zone_at(server.address, name).await?;
                update::change(server, &zone, action == "present", record_of(name, value)?).await
            }
            // Its records expire by themselves: an account has the last two values.
            DnsPublisher::AcmeDns(_) if action == "cleanup" => Ok(()),
            DnsPublisher::AcmeDns(account) => http::update_acme_dns(account, value).await,
            DnsPublisher::Webhook { url, token } => {
                http::call_webhook(url, token.as_deref(), action, name, value).await
            }
        }
    }
}

fn record_of(name: &str, value: &str) -> Result<hickory_proto::rr::Record, IssueError> {
    use hickory_proto::rr::rdata::TXT;
    use hickory_proto::rr::{RData, Record};
    let name = lookup::parse_name(name)?;
    let data = RData::TXT(TXT::new(vec![value.to_owned()]));
    Ok(Record::from_rdata(name, 60, data))
}

/// Calls a program: `present` or `cleanup`, the name of the record, its value.
async fn call_hook(hook: &Path, action: &str, name: &str, value: &str) -> Result<(), IssueError> {
    let output = Command::new(hook)
        .args([action, name, value])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let failed =
        |why: String| IssueError::new(format!("the DNS hook {} {action}: {why}", hook.display()));
    let output = tokio::time::timeout(HOOK_PATIENCE, output)
        .await
        .map_err(|_| failed("it did not end in ten minutes".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.trim().lines().last().unwrap_or_default();
    Err(failed(format!("{}: {last}", output.status)))
}
