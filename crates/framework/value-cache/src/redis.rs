//! `RedisValues`: values in Redis, which several processes share.

use apus_redis::redis::{self, AsyncCommands};
use apus_redis::{Redis, RedisError};
use bytes::Bytes;

use crate::stored_value::{StoredValue, milliseconds};

/// The keys that Redis looks at in one step of a search.
const SCANNED: usize = 500;

/// Values in Redis.
///
/// A stored value has the times until which it is fresh and until which it may be used, in milliseconds
/// since 1970, a line feed, and the JSON.
pub(crate) struct RedisValues(pub(crate) Redis);

impl RedisValues {
    /// The time of these values.
    pub(crate) fn now() -> u64 {
        milliseconds(apus_clock::unix_time())
    }

    pub(crate) async fn load(&self, key: &str) -> Result<Option<StoredValue>, RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.get(key);
        let (found,): (Option<Vec<u8>>,) = self.0.query(&pipeline).await?;
        let found = found.and_then(|stored| read(&stored.into()));
        Ok(found.filter(|value| value.is_usable(Self::now())))
    }

    pub(crate) async fn save(&self, key: &str, value: &StoredValue) -> Result<(), RedisError> {
        let left = value.expires.saturating_sub(Self::now());
        let mut text = format!("{} {}\n", value.fresh_until, value.expires).into_bytes();
        text.extend_from_slice(&value.json);
        let mut pipeline = redis::pipe();
        // A time beyond the range of Redis is rejected.
        let left = left.clamp(1, 1 << 50);
        pipeline.pset_ex(key, text, left).ignore();
        self.0.query(&pipeline).await
    }

    pub(crate) async fn remove(&self, key: &str) -> Result<(), RedisError> {
        let mut pipeline = redis::pipe();
        pipeline.unlink(key).ignore();
        self.0.query(&pipeline).await
    }

    pub(crate) async fn remove_prefix(&self, prefix: &str) -> Result<(), RedisError> {
        let mut connection = self.0.connection()?;
        let options = redis::ScanOptions::default()
            .with_pattern(pattern(prefix))
            .with_count(SCANNED);
        let mut found: Vec<String> = Vec::new();
        {
            let mut keys = connection.scan_options::<String>(options).await?;
            while let Some(key) = keys.next_item().await {
                found.push(key?);
            }
        }
        for keys in found.chunks(SCANNED) {
            let mut pipeline = redis::pipe();
            pipeline.unlink(keys).ignore();
            self.0.query::<()>(&pipeline).await?;
        }
        Ok(())
    }
}

fn read(stored: &Bytes) -> Option<StoredValue> {
    let end = stored.iter().position(|byte| *byte == b'\n')?;
    let times = str::from_utf8(stored.get(..end)?).ok()?;
    let (fresh_until, expires) = times.split_once(' ')?;
    Some(StoredValue {
        fresh_until: fresh_until.parse().ok()?,
        expires: expires.parse().ok()?,
        json: stored.slice(end.saturating_add(1)..),
    })
}

/// A pattern of Redis for all keys with a prefix.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len().saturating_add(1));
    for character in prefix.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_literally() {
        assert_eq!(pattern("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\*");
    }

    #[test]
    fn other_values_of_redis_are_no_values() {
        for stored in ["", "1", "1 2", "a 2\n{}", "12\n{}"] {
            assert_eq!(
                read(&Bytes::from_static(stored.as_bytes())),
                None,
                "{stored}"
            );
        }
        let read = read(&Bytes::from_static(b"1 2\n{}\n")).unwrap();
        assert_eq!(
            (read.fresh_until, read.expires, &*read.json),
            (1, 2, &b"{}\n"[..])
        );
    }
}
