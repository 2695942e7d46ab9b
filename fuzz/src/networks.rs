//! Fuzz target of lists of networks, and of the file of bans.

use apus_access::{BanBook, BannedNetwork, Bans, NetworkList};
use apus_http::Network;

/// A list of networks: each line is a network, a mistake, or nothing, whatever the other lines are. The same bytes as a file of
/// bans are damaged, or are written again as bans that are read back unchanged.
pub fn network_list(data: &[u8]) {
    let list = NetworkList::parse(data);
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(list.networks.len() + list.invalid_lines <= lines);
    assert_eq!(list.mistakes.is_empty(), list.invalid_lines == 0);
    for mistake in &list.mistakes {
        assert!((1..=lines).contains(&mistake.line));
    }
    let written: Vec<String> = (list.networks.iter())
        .map(|network| match network {
            Network::Ip { address, bits } => format!("{address}/{bits} # again\r\n"),
            Network::Unix => panic!("a list bans Unix sockets"),
        })
        .collect();
    let again = NetworkList::parse(written.concat().as_bytes());
    assert_eq!(
        (again.networks, again.invalid_lines),
        (list.networks.clone(), 0)
    );
    for network in &list.networks {
        if let Network::Ip { address, bits } = network {
            let banned = BannedNetwork::new(*address, *bits);
            assert!(Network::from(banned).contains_ip(*address));
        }
    }
    let book = || BanBook::new(Bans::new().0);
    let mut first = book();
    if first.restore(data).is_ok() {
        let text = first.to_text();
        let mut second = book();
        assert_eq!(second.restore(text.as_bytes()), Ok(()));
        assert_eq!(second.to_text(), text);
    }
}
