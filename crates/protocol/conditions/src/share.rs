//! The share in which a value falls: always the same for the same value, on each machine and after each restart.

use std::net::IpAddr;

use crate::fact::{Fact, FactKind};
use crate::facts::Facts;

/// The name that stands for the request itself.
pub(crate) const REQUEST: &str = "request";

/// Hundredths of a percent from 0 to 9999, by the value of the fact of this name. A request without the value has no share.
pub(crate) fn of(name: &str, facts: &dyn Facts) -> Option<u64> {
    if name == REQUEST {
        return Some(share(facts.request_id().as_bytes()));
    }
    let fact = Fact::parse(name)?;
    if fact.kind() == FactKind::Client {
        return Some(match facts.address()?.to_canonical() {
            IpAddr::V4(ip) => share(&ip.octets()),
            IpAddr::V6(ip) => share(&ip.octets()),
        });
    }
    let mut found = None;
    facts.any_text(&fact, &mut |value| {
        found = Some(share(&value));
        true
    });
    found
}

/// FNV-1a with the last steps of MurmurHash3, by which each bit of the text changes all bits of the result.
fn share(text: &[u8]) -> u64 {
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53]
        .iter()
        .fold(hash, |hash, factor| {
            (hash ^ (hash >> 33)).wrapping_mul(*factor)
        });
    (mixed ^ (mixed >> 33)) % 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_little_fall_into_all_shares_evenly() {
        let mut tenths = [0_u32; 10];
        for number in 0..10_000_u32 {
            tenths[share(format!("user-{number}").as_bytes()) as usize / 1000] += 1;
        }
        assert!(
            tenths.iter().all(|count| (900..1100).contains(count)),
            "{tenths:?}"
        );
    }
}
