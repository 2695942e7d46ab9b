//! `MemoryValues`: values in the memory of the process, bounded in bytes.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::stored_value::{StoredValue, milliseconds};

/// What an entry costs beside its key and value, in bytes.
const OVERHEAD: u64 = 96;

/// The bytes of an average entry, for the size of the table.
const AVERAGE: u64 = 1024;

/// Values in memory. All workers share them.
pub(crate) struct MemoryValues(Cache<String, StoredValue, ByValueLength>);

#[derive(Clone)]
struct ByValueLength;

impl Weighter<String, StoredValue> for ByValueLength {
    fn weight(&self, key: &String, value: &StoredValue) -> u64 {
        let length = key.len().saturating_add(value.json.len());
        OVERHEAD.saturating_add(length as u64)
    }
}

impl MemoryValues {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let expected = usize::try_from(max_bytes / AVERAGE).unwrap_or(usize::MAX);
        let expected = expected.clamp(16, 1 << 20);
        let options = OptionsBuilder::new()
            .shards(4)
            .estimated_items_capacity(expected)
            .weight_capacity(max_bytes)
            .build();
        Self(match options {
            Ok(options) => Cache::with_options(
                options,
                ByValueLength,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Both capacities are set, so this does not happen.
            Err(_) => Cache::with_weighter(expected, max_bytes, ByValueLength),
        })
    }

    /// The time of these values.
    pub(crate) fn now() -> u64 {
        milliseconds(apus_clock::monotonic())
    }

    pub(crate) fn load(&self, key: &str) -> Option<StoredValue> {
        let found = self.0.get(key)?;
        if found.is_usable(Self::now()) {
            return Some(found);
        }
        self.0.remove_if(key, |value| *value == found);
        None
    }

    pub(crate) fn save(&self, key: &str, value: StoredValue) {
        self.0.insert(key.to_owned(), value);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.remove(key);
    }

    pub(crate) fn remove_prefix(&self, prefix: &str) {
        self.0.retain(|key, _| !key.starts_with(prefix));
    }

    /// The bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }
}
