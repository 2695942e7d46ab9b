//! The hosts at which development pages respond (RFC 9110 section 7.2).

use std::net::IpAddr;
use std::sync::Arc;

use crate::Request;

/// The hosts at which pages of development respond: names of this machine, and those that are configured.
///
/// A page of another site can make a browser connect to this machine under a name of that site (DNS rebinding), and could then read
/// sources, mails and what else is shown to developers: the browser takes it for one origin. Such a request names the other site's host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevelopmentHosts {
    configured: Arc<[Box<str>]>,
    /// Whether the server listens at all addresses of the machine, which are then known only to the clients.
    has_all_addresses: bool,
}

impl DevelopmentHosts {
    /// The variable by which `apus dev` passes the configured hosts to the application.
    pub const VARIABLE: &'static str = "APUS_DEV_HOSTS";

    /// `localhost` with all names below it, loopback addresses, and these names and addresses, without ports. The address `0.0.0.0` or
    /// `::` stands for all addresses, but for no names.
    pub fn new(configured: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut hosts = Self::default();
        let mut names = Vec::new();
        for name in configured {
            let name = normalised(name.as_ref().trim());
            match address(name) {
                Some(address) if address.is_unspecified() => hosts.has_all_addresses = true,
                _ if name.is_empty() => {}
                _ => names.push(name.to_ascii_lowercase().into()),
            }
        }
        hosts.configured = names.into();
        hosts
    }

    /// Those that `apus dev` has passed, or that the variable has.
    pub fn of_process() -> Self {
        let configured = std::env::var(Self::VARIABLE).unwrap_or_default();
        Self::new(configured.split(','))
    }

    /// The value of the variable.
    pub fn to_variable(&self) -> String {
        let all = self.has_all_addresses.then_some("0.0.0.0");
        let names = self.configured.iter().map(|name| &**name);
        names.chain(all).collect::<Vec<_>>().join(",")
    }

    /// Whether a request is for one of them.
    pub fn contain(&self, request: &Request) -> bool {
        request.host().is_some_and(|host| self.contain_host(host))
    }

    fn contain_host(&self, host: &str) -> bool {
        let host = normalised(host);
        match address(host) {
            Some(given) if self.has_all_addresses || given.to_canonical().is_loopback() => true,
            Some(given) => self
                .configured
                .iter()
                .any(|name| address(name) == Some(given)),
            None => {
                let is_local = host
                    .strip_suffix("localhost")
                    .is_some_and(|before| before.is_empty() || before.ends_with('.'));
                is_local || self.configured.iter().any(|name| **name == *host)
            }
        }
    }
}

/// A host without the brackets of an address and without the dot of the root.
fn normalised(host: &str) -> &str {
    let host = host.strip_suffix('.').unwrap_or(host);
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn address(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;

    fn allow(hosts: &DevelopmentHosts, field: &str) -> bool {
        let authority = Authority::normalise(field.as_bytes(), false).unwrap_or_default();
        hosts.contain_host(authority.host())
    }

    #[test]
    fn names_of_this_machine_are_allowed_and_those_of_other_sites_are_not() {
        let hosts = DevelopmentHosts::default();
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "app.localhost:3000",
            "127.0.0.1",
            "127.8.9.1:8080",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(allow(&hosts, host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "127.0.0.1.nip.io",
            "192.168.1.7:8080",
            "[2001:db8::1]",
            "0.0.0.0:8080",
        ] {
            assert!(!allow(&hosts, host), "{host}");
        }
    }

    #[test]
    fn configured_hosts_are_allowed() {
        let hosts = DevelopmentHosts::new(["Shop.test", "192.168.1.7", "[2001:db8::1]", ""]);
        for host in ["shop.test:8080", "192.168.1.7", "[2001:db8:0::1]:80"] {
            assert!(allow(&hosts, host), "{host}");
        }
        for host in ["a.shop.test", "192.168.1.8", "shop.test.evil.example"] {
            assert!(!allow(&hosts, host), "{host}");
        }
        let all = DevelopmentHosts::new(["0.0.0.0", "shop.test"]);
        assert!(allow(&all, "192.168.1.8:8080"));
        assert!(!allow(&all, "evil.example"));
        for hosts in [hosts, all] {
            let passed = DevelopmentHosts::new(hosts.to_variable().split(','));
            assert_eq!(passed, hosts);
        }
    }
}
