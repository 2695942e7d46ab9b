//! What the server says of itself at one time.

use apus_server::control::{ControlRequest, ControlResponse, MAX_TRAFFIC_SECONDS};
use serde_json::Value;

use crate::arguments::RunningServer;
use crate::{CommandError, send};

/// The status, what was counted of requests, the bans, and the last lines of the log.
#[derive(Clone, Debug)]
pub(super) struct TopReading {
    pub(super) status: Value,
    pub(super) traffic: Value,
    pub(super) bans: Value,
    pub(super) errors: Value,
}

impl TopReading {
    /// Asks the server, which counts requests for a minute more.
    pub(super) fn take(running: &RunningServer) -> Result<Self, CommandError> {
        let ask = |request: &ControlRequest| match send(running, request)? {
            ControlResponse::Done(value) => Ok(value),
            ControlResponse::Failed { message, .. } => Err(CommandError::Failed(message)),
        };
        Ok(Self {
            status: ask(&ControlRequest::Status)?,
            traffic: ask(&ControlRequest::Traffic {
                seconds: MAX_TRAFFIC_SECONDS,
                anew: false,
            })?,
            // An application has none.
            bans: ask(&ControlRequest::BanList).unwrap_or_default(),
            errors: ask(&ControlRequest::Errors { sites: None }).unwrap_or_default(),
        })
    }

    /// The seconds for which requests have been counted.
    pub(super) fn seconds(&self) -> f64 {
        number(&self.traffic, "seconds")
    }
}

pub(super) fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let items = value.get(name).and_then(Value::as_array);
    items.into_iter().flatten()
}

pub(super) fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
