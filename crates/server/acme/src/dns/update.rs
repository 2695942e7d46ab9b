//! Dynamic updates of DNS (RFC 2136), signed by TSIG (RFC 8945).

use std::time::{SystemTime, UNIX_EPOCH};

use hickory_proto::op::update_message::{append, delete_by_rdata};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, Record, RecordSet, TSigner};

use super::lookup::{exchange, parse_name};
use crate::dns_publisher::{DnsKeyAlgorithm, DnsUpdateKey, DnsUpdateServer};
use crate::issue_error::IssueError;

/// How far the clocks of both ends may differ, in seconds (RFC 8945 section 10).
const FUDGE: u16 = 300;

/// Adds a record to its zone, or removes it. The response has to be signed as the update is.
pub(super) async fn change(
    server: &DnsUpdateServer,
    zone: &Name,
    is_added: bool,
    record: Record,
) -> Result<(), IssueError> {
    let failed = |why: String| {
        let address = server.address;
        IssueError::new(format!("the update at the name server {address}: {why}"))
    };
    if !zone.zone_of(&record.name) {
        return Err(failed(format!("{} is not in {zone}", record.name)));
    }
    let records = RecordSet::from(record);
    let mut message = if is_added {
        append(records, zone.clone(), false, false)
    } else {
        delete_by_rdata(records, zone.clone(), false)
    };
    let mut verifier = None;
    if let Some(key) = &server.key {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        verifier = message
            .finalize(&signer(key)?, now)
            .map_err(|error| failed(error.to_string()))?;
    }
    let bytes = message
        .to_vec()
        .map_err(|error| failed(error.to_string()))?;
    let received = exchange(server.address, &bytes).await?;
    let response = Message::from_vec(&received).map_err(|error| failed(error.to_string()))?;
    match response.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NotAuth => {
            return Err(failed(
                "the name or the secret of the key is wrong, or the clocks differ (NOTAUTH)"
                    .to_owned(),
            ));
        }
        ResponseCode::Refused => {
            return Err(failed(
                "the key may not change this zone (REFUSED)".to_owned(),
            ));
        }
        code => return Err(failed(code.to_string())),
    }
    match verifier {
        Some(mut verifier) => verifier
            .verify(&received)
            .map(|_| ())
            .map_err(|error| failed(format!("the response is not signed as expected: {error}"))),
        None => Ok(()),
    }
}

fn signer(key: &DnsUpdateKey) -> Result<TSigner, IssueError> {
    let algorithm = match key.algorithm {
        DnsKeyAlgorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
        DnsKeyAlgorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
        DnsKeyAlgorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
    };
    TSigner::new(key.secret.clone(), algorithm, parse_name(&key.name)?, FUDGE)
        .map_err(|error| IssueError::new(format!("the key of DNS updates: {error}")))
}
