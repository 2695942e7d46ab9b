//! Bans of clients: their settings, and the files of networks, whose mistakes are warnings.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use apus_access::NetworkList;
use apus_http::Network;

use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::plan::BanPlan;
use crate::raw;
use crate::source::{Setting, SourceSpan};
use crate::value::FilePath;

/// The plan of bans; `None` after errors were reported.
pub(super) fn plan(
    global: &raw::Global,
    sites: &[Setting<raw::Site>],
    top: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<BanPlan> {
    let keys = match &global.bans {
        Some(bans) => bans.value.clone(),
        None => raw::Bans::absent(top, reader)?,
    };
    for file in &keys.files.0 {
        check(file, reader);
    }
    let proxies = sites.iter().flat_map(|site| &site.proxy_protocol_from.0);
    let own = keys.never.0.iter().chain(&global.trusted_proxies.0);
    let named = own.chain(proxies).map(|network| network.value.0);
    let loopback = [
        network(Ipv4Addr::new(127, 0, 0, 0), 8),
        network(Ipv6Addr::LOCALHOST, 128),
    ];
    let loopback = loopback.into_iter().filter(|_| !keys.never.given);
    Some(BanPlan {
        files: keys
            .files
            .0
            .iter()
            .map(|file| file.value.0.clone())
            .collect(),
        never: loopback.chain(named).collect(),
        longest: keys.longest.0,
        forget_after: keys.forget_after.0,
        most: keys.max.size(),
    })
}

fn network(address: impl Into<IpAddr>, bits: u8) -> Network {
    Network::Ip {
        address: address.into(),
        bits,
    }
}

/// Reports what is wrong with a list. It is no error: a list that others write must not keep the server from starting.
fn check(file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let path = file.value.0.display();
    let (message, expected) = match fs::read(&file.value.0) {
        Ok(text) => {
            let list = NetworkList::parse(&text);
            let Some(first) = list.mistakes.first() else {
                return;
            };
            let others = match list.invalid_lines.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and {others} more lines that are not valid"),
            };
            let message = format!("{path}, {first}{others}");
            (
                message,
                "a running server keeps the networks that it read before",
            )
        }
        Err(error) => {
            let message = format!("cannot read {path}: {error}");
            (
                message,
                "expected a file that the user of the server can read",
            )
        }
    };
    reader.report(Finding::warning(&file.span, message, expected));
}
