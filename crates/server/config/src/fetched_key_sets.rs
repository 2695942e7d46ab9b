//! Sets of keys that were fetched, which the next configuration begins with.

use apus_layers::auth::RemoteKeySet;

/// The sets of keys of the configuration in force, with their URLs.
#[derive(Debug, Default)]
pub struct FetchedKeySets(Vec<(String, RemoteKeySet)>);

impl FetchedKeySets {
    /// Gives sets the keys that were fetched before from the same URLs, and takes their place.
    pub(crate) fn continue_with(&mut self, sets: Vec<(String, RemoteKeySet)>) {
        for (url, keys) in &sets {
            if let Some((_, before)) = self.0.iter().find(|(known, _)| known == url) {
                keys.continue_from(before);
            }
        }
        self.0 = sets;
    }
}
