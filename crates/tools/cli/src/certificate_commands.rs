//! `apus cert`: its commands, and what they print.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use apus_patterns::canonical_host_name;
use apus_server::acme::{CertificateDetails, ImportResult, RevocationReason};
use apus_server::{
    CertificateAdmin, CertificateAdminError, ConfigSource, control, import_certificates,
};
use serde_json::{Value, json};

use crate::arguments::{CertCommand, CertificateFolder, RevocationArgument, RunningServer};
use crate::output::{self, names, print, print_error, print_json};
use crate::{CommandError, find, run_ask, send};

/// The interval in which the state of an order is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long an order may take to begin: another process may order the same certificate.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(command: CertCommand) -> Result<(), CommandError> {
    match command {
        CertCommand::List { running, config } => list(&RunningServer {
            source: running.source.or(config),
            ..running
        }),
        CertCommand::Show { name, folder } => {
            let admin = open(&folder)?;
            // What this machine has is shown all the same.
            if let Some(fault) = admin.sharing_fault() {
                print_error(&fault);
            }
            let found = admin.show(name.as_deref())?;
            show(&found, &folder, "");
            Ok(())
        }
        CertCommand::Renew {
            name,
            no_wait,
            folder,
        } => renew(name, no_wait, folder),
        CertCommand::Revoke {
            name,
            reason,
            folder,
        } => {
            let found = open(&folder)?.revoke(&name, reason.into())?;
            show(&found, &folder, "revoked\n");
            Ok(())
        }
        CertCommand::Forget { name, folder } => {
            let found = open(&folder)?.forget(&name)?;
            show(&found, &folder, "removed\n");
            Ok(())
        }
        CertCommand::Import { from, folder } => {
            let source = source(&folder)?;
            let report = import_certificates(source, &from)?;
            for fault in &report.faults {
                print_error(fault);
            }
            if folder.json {
                let unused = report.unused.iter();
                print_json(&json!({
                    "certificates": report.certificates,
                    "unused": unused
                        .map(|(file, names)| json!({ "file": file, "names": names }))
                        .collect::<Vec<_>>(),
                    "faults": report.faults,
                }));
                return Ok(());
            }
            let mut out = String::new();
            for one in &report.certificates {
                let names = one.names.join(" ");
                let from = one.from.as_deref().unwrap_or(&from).display();
                let _ = match one.result {
                    ImportResult::Imported => writeln!(out, "{names}: imported from {from}"),
                    ImportResult::Kept => {
                        writeln!(out, "{names}: the own certificate is not older than {from}")
                    }
                    ImportResult::NotFound => writeln!(
                        out,
                        "{names}: no valid certificate for exactly these names in {from}; it will be ordered"
                    ),
                };
            }
            for (file, names) in &report.unused {
                let _ = writeln!(
                    out,
                    "{}: no site orders a certificate for {names}",
                    file.display()
                );
            }
            print(out.as_bytes());
            Ok(())
        }
    }
}

impl From<CertificateAdminError> for CommandError {
    fn from(error: CertificateAdminError) -> Self {
        Self::Failed(match &error {
            CertificateAdminError::Load(error) => error.render(output::has_colours(io::stderr())),
            error => error.to_string(),
        })
    }
}

impl From<RevocationArgument> for RevocationReason {
    fn from(argument: RevocationArgument) -> Self {
        match argument {
            RevocationArgument::Unspecified => Self::Unspecified,
            RevocationArgument::KeyCompromise => Self::KeyCompromise,
            RevocationArgument::AffiliationChanged => Self::AffiliationChanged,
            RevocationArgument::Superseded => Self::Superseded,
            RevocationArgument::CessationOfOperation => Self::CessationOfOperation,
        }
    }
}

fn source(folder: &CertificateFolder) -> Result<ConfigSource, CommandError> {
    find(folder.config.as_deref())
}

fn open(folder: &CertificateFolder) -> Result<CertificateAdmin, CommandError> {
    Ok(CertificateAdmin::open(source(folder)?)?)
}

fn list(running: &RunningServer) -> Result<(), CommandError> {
    let status = status(running)?;
    let certificates = status.get("certificates").cloned().unwrap_or_default();
    if running.json {
        print_json(&certificates);
    } else if certificates.as_array().is_none_or(Vec::is_empty) {
        print(b"no certificate is ordered by ACME\n");
    } else {
        print(output::certificates(&status).as_bytes());
    }
    Ok(())
}

fn status(running: &RunningServer) -> Result<Value, CommandError> {
    match send(running, &control::ControlRequest::Status)? {
        control::ControlResponse::Done(status) => Ok(status),
        control::ControlResponse::Failed { message, .. } => Err(CommandError::Failed(message)),
    }
}

fn show(found: &[CertificateDetails], folder: &CertificateFolder, heading: &str) {
    if folder.json {
        print_json(&json!(found));
        return;
    }
    if found.is_empty() {
        print(b"there is no certificate\n");
        return;
    }
    let mut out = heading.to_owned();
    for (at, one) in found.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "{name:<14}{value}");
        };
        let text = |time: Option<time::OffsetDateTime>| {
            let format = &time::format_description::well_known::Rfc3339;
            time.and_then(|time| time.format(format).ok())
        };
        line("names", &one.names.join(" "));
        line("issuer", &one.issuer);
        line("serial", &one.serial);
        line("key", &one.key);
        line("fingerprint", &one.fingerprint);
        let optional = [
            ("valid from", text(one.not_before)),
            ("expires", text(one.not_after)),
            ("renewed at", text(one.renew_at)),
            ("issued by", one.issued_by.clone()),
            ("last error", one.last_error.clone()),
            ("revoked", one.revoked.then(|| "yes".to_owned())),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                line(name, &value);
            }
        }
        line("file", &one.file.display().to_string());
    }
    print(out.as_bytes());
}

/// The parts of the status of a certificate that an order changes.
struct OrderState {
    attempts: u64,
    step: Option<String>,
    last_error: Option<String>,
}

/// The states of the certificates of a status that have this name.
fn order_states(status: &Value, name: &str) -> Vec<OrderState> {
    let list = status.get("certificates").and_then(Value::as_array);
    let has_name = |one: &&Value| names(one).split(' ').any(|has| has == name);
    let text = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
    list.into_iter()
        .flatten()
        .filter(has_name)
        .map(|one| OrderState {
            attempts: one.get("attempts").and_then(Value::as_u64).unwrap_or(0),
            step: text(one, "step"),
            last_error: text(one, "last_error"),
        })
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command has nothing else to do"
)]
fn renew(name: String, no_wait: bool, folder: CertificateFolder) -> Result<(), CommandError> {
    let name = canonical_host_name(&name).map_or_else(|| name.clone(), Into::into);
    let running = RunningServer {
        source: folder.config,
        socket: None,
        json: folder.json,
    };
    let request = control::ControlRequest::RenewCertificate { name: name.clone() };
    if no_wait {
        return run_ask(&running, &request);
    }
    let before = order_states(&status(&running)?, &name);
    if let control::ControlResponse::Failed { message, .. } = send(&running, &request)? {
        return Err(CommandError::Failed(message));
    }
    let has_terminal = io::stderr().is_terminal();
    let begun = Instant::now();
    let mut has_begun = false;
    let mut shown = None;
    let states = loop {
        let states = order_states(&status(&running)?, &name);
        let step = states.iter().find_map(|state| state.step.clone());
        has_begun |= step.is_some();
        if has_terminal && step != shown {
            let text = step.as_deref().unwrap_or("waiting");
            let _ = write!(io::stderr(), "\r\x1b[K{name}: {text}");
        }
        shown = step;
        let has_ended = states
            .iter()
            .zip(&before)
            .all(|(now, before)| now.attempts > before.attempts);
        // A reload may have removed it.
        if has_ended || states.len() != before.len() {
            break states;
        }
        if !has_begun && begun.elapsed() > BEGIN_PATIENCE {
            return Err(CommandError::Failed(format!(
                "the order of {name} has not begun: another server with this folder may order it; see `apus cert list`"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    };
    if has_terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let failure = states.iter().find_map(|state| state.last_error.clone());
    if folder.json {
        print_json(&json!({ "name": name, "error": failure }));
    }
    match failure {
        None => {
            if !folder.json {
                print(b"renewed\n");
            }
            Ok(())
        }
        Some(_) if folder.json => Err(CommandError::Reported),
        Some(error) => Err(CommandError::Failed(format!("{name}: {error}"))),
    }
}
