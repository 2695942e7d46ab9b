//! What was fetched of sets of keys and bots, which the next configuration begins with.

use apus_layers::Bots;
use apus_layers::auth::RemoteKeySet;

/// The sets of keys of the configuration in force, with their URLs, and its bots with the names of their addresses.
#[derive(Debug, Default)]
pub struct FetchedKeySets {
    sets: Vec<(String, RemoteKeySet)>,
    bots: Bots,
}

impl FetchedKeySets {
    /// Gives sets the keys that were fetched before from the same URLs, and takes their place.
    pub(crate) fn continue_with(&mut self, sets: Vec<(String, RemoteKeySet)>) {
        for (url, keys) in &sets {
            if let Some((_, before)) = self.sets.iter().find(|(known, _)| known == url) {
                keys.continue_from(before);
            }
        }
        self.sets = sets;
    }

    /// Gives bots the names of addresses that were found before, and takes their place.
    pub(crate) fn continue_bots(&mut self, bots: &Bots) {
        bots.continue_from(&self.bots);
        self.bots = bots.clone();
    }
}
