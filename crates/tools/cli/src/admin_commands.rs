//! `apus admin`: who may use the API at `admin_listen`, and who changed what.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use apus_layers::auth::password;
use apus_net::tls::ClientAuth;
use apus_server::control::{ControlRequest, OperatorAccounts, TokenDigest};
use apus_tokens::{Hexadecimal, random_bytes};
use serde_json::Value;

use crate::CommandError;
use crate::arguments::{AccountArguments, AdminCommand};
use crate::ban_commands::ask;
use crate::output::{duration, print, without_controls};

pub(crate) fn run(command: AdminCommand) -> Result<(), CommandError> {
    match command {
        AdminCommand::Login { server } => ask(&server.into(), &ControlRequest::AdminLogin, links),
        AdminCommand::Audit { server } => ask(&server.into(), &ControlRequest::Audit, entries),
        AdminCommand::Account(arguments) => account(&arguments),
    }
}

/// The addresses of a log-in, a line each.
fn links(value: &Value) -> String {
    let urls = value.get("urls").and_then(Value::as_array);
    let urls = urls.into_iter().flatten().filter_map(Value::as_str);
    let code = value.get("code").and_then(Value::as_str);
    let mut text = "Within five minutes, once:\n".to_owned();
    for url in urls {
        let _ = writeln!(text, "{url}#code={}", code.unwrap_or_default());
    }
    text
}

/// The changes, a line each, the last one first.
fn entries(value: &Value) -> String {
    let entries = value.get("entries").and_then(Value::as_array);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let mut out = String::new();
    for entry in entries.into_iter().flatten() {
        let text = |name: &str| {
            let text = entry.get(name).and_then(Value::as_str);
            without_controls(text.unwrap_or_default())
        };
        let time = entry.get("time").and_then(Value::as_u64).unwrap_or(0);
        let ago = duration(now.saturating_sub(time));
        // Mistakes of a configuration have many lines, and the first one says what it is about.
        let error = entry.get("error").and_then(Value::as_str);
        let error = without_controls(
            error
                .and_then(|text| text.lines().next())
                .unwrap_or_default(),
        );
        let outcome = if error.is_empty() {
            String::new()
        } else {
            format!("  failed: {error}")
        };
        let _ = writeln!(
            out,
            "{ago} ago  {}  {} {}{outcome}",
            text("by"),
            text("command"),
            text("arguments"),
        );
    }
    if out.is_empty() {
        out.push_str("Nothing has been changed.\n");
    }
    out
}

/// Prints the lines of an account for the file, and its new secret on standard error.
fn account(arguments: &AccountArguments) -> Result<(), CommandError> {
    let mut lines = format!(
        "[[accounts]]\nname = {}\nrole = \"{}\"\n",
        quoted(&arguments.name),
        arguments.role.name()
    );
    if !arguments.site.is_empty() {
        let sites: Vec<_> = arguments.site.iter().map(|site| quoted(site)).collect();
        let _ = writeln!(lines, "sites = [{}]", sites.join(", "));
    }
    let made = if let Some(file) = &arguments.certificate {
        let digest = certificate_digest(file)?;
        let _ = writeln!(lines, "certificates = [\"{digest}\"]");
        None
    } else if arguments.token {
        let token = format!("apus_{}", Hexadecimal(&random::<32>()?));
        let _ = writeln!(lines, "tokens = [\"{}\"]", TokenDigest::of(&token));
        Some(format!("the token, which is shown only now: {token}"))
    } else {
        let (password, made) = if arguments.password_stdin {
            (entered_password()?, None)
        } else {
            let password = Hexadecimal(&random::<12>()?).to_string();
            let made = format!("the password, which is shown only now: {password}");
            (password, Some(made))
        };
        let _ = writeln!(lines, "password = \"{}\"", hash(password)?);
        made
    };
    OperatorAccounts::parse(&lines)
        .map_err(|mistakes| CommandError::Failed(mistakes.join("\n")))?;
    // Standard output is the file.
    if let Some(made) = made {
        let _ = writeln!(std::io::stderr().lock(), "{made}");
    }
    print(lines.as_bytes());
    Ok(())
}

/// The fingerprint of the first certificate of a file.
fn certificate_digest(file: &Path) -> Result<TokenDigest, CommandError> {
    let failed = |why: String| CommandError::Failed(format!("{}: {why}", file.display()));
    let pem = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    let certificates = ClientAuth::authorities_from_pem(&pem);
    let certificates = certificates.map_err(|fault| failed(fault.to_string()))?;
    let first = certificates.first();
    let first = first.ok_or_else(|| failed("it has no certificate".to_owned()))?;
    Ok(TokenDigest::of_certificate(first))
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], CommandError> {
    random_bytes().map_err(|error| CommandError::Failed(error.to_string()))
}

/// The password on standard input.
fn entered_password() -> Result<String, CommandError> {
    let mut text = String::new();
    let read = std::io::stdin().take(4096).read_to_string(&mut text);
    read.map_err(|error| CommandError::Failed(error.to_string()))?;
    let password = text.trim_end_matches(['\r', '\n']).to_owned();
    if password.chars().count() < 8 {
        let message = "a password needs at least eight characters";
        return Err(CommandError::Failed(message.to_owned()));
    }
    Ok(password)
}

fn hash(password: String) -> Result<String, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
    let hash = runtime.block_on(password::hash(None, password));
    hash.map_err(|error| CommandError::Failed(format!("the password cannot be hashed: {error:?}")))
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
