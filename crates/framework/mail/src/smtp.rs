//! The connection to a mail server (RFC 5321), by its address.

use std::net::IpAddr;
use std::time::Duration;

use lettre::{AsyncSmtpTransport, Tokio1Executor};
use url::{Host, Url};

use crate::MailError;

/// The time limit of a step of a delivery.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The transport of an address, and the address without user and password.
pub(crate) fn transport(
    address: &str,
) -> Result<(AsyncSmtpTransport<Tokio1Executor>, String), MailError> {
    // The messages of the parser do not contain the address, which may have a password.
    let mut url = Url::parse(address).map_err(MailError::server)?;
    let shown = match (url.host_str(), url.port()) {
        (None | Some(""), _) => return Err(MailError::server("it has no host")),
        (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
        (Some(host), None) => format!("{}://{host}", url.scheme()),
    };
    let port = url.port();
    let is_smtps = match url.scheme() {
        "smtp" => false,
        "smtps" => true,
        scheme => {
            let problem = format!("{scheme}: is not a protocol of mail servers");
            return Err(MailError::server(problem));
        }
    };
    let tls = parameter(&url)?;
    let has_password = url.password().is_some();
    let encryption = match tls.as_deref() {
        _ if is_smtps => None,
        Some("none") => None,
        Some(tls) => Some(tls.to_owned()),
        // A password is never sent in clear text over a network, as it would be if an attacker removes
        // STARTTLS from what the server offers (RFC 3207 section 6).
        None if is_loopback(&url) => None,
        None if has_password => Some("required".to_owned()),
        None => Some("opportunistic".to_owned()),
    };
    url.set_query(encryption.map(|tls| format!("tls={tls}")).as_deref());
    let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.as_str());
    let builder = builder.map_err(|error| MailError::server(causes(&error)))?;
    let port = port.unwrap_or(match (is_smtps, has_password) {
        (true, _) => 465,
        (false, true) => 587,
        (false, false) => 25,
    });
    Ok((builder.port(port).timeout(Some(TIMEOUT)).build(), shown))
}

/// The value of the parameter `tls`.
fn parameter(url: &Url) -> Result<Option<String>, MailError> {
    let mut tls = None;
    for (name, value) in url.query_pairs() {
        match (&*name, &*value) {
            ("tls", "none" | "opportunistic" | "required") => tls = Some(value.into_owned()),
            _ => {
                return Err(MailError::server(format!(
                    "the parameter {name} is unknown or has an unknown value; expected \
                     tls=required, tls=opportunistic or tls=none"
                )));
            }
        }
    }
    Ok(tls)
}

/// Whether the server is on this machine. `smtp` is no scheme whose hosts the parser takes for addresses.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let address = name.parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The messages of an error and its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut deeper = error.source();
    while let Some(cause) = deeper {
        text = format!("{text}: {cause}");
        deeper = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_not_one_is_told_without_its_password() {
        for address in [
            "mail.example.com",
            "http://user:hunter2@mail.example.com",
            "smtp://",
            "smtp://user:hunter2@mail.example.com?tls=maybe",
            "smtp://user:hunter2@mail.example.com?ssl=1",
            "smtp://user:hunter2@mail.example.com:99999",
        ] {
            let error = transport(address).unwrap_err().to_string();
            assert!(error.contains("the address of the mail server"), "{error}");
            assert!(error.contains("smtps://user:password@host"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_of_an_address_has_no_password() {
        let (transport, shown) = transport("smtp://user:hunter2@mail.example.com:2525").unwrap();
        assert_eq!(shown, "smtp://mail.example.com:2525");
        assert!(!format!("{transport:?}").contains("hunter2"));
    }
}
