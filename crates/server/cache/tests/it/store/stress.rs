//! All operations at once, on several threads, in a store that is too small for them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use apus_cache::store::{
    CacheLookup, DiskSettings, NewObject, Object, PurgeRequest, PurgeSelector, ReadError, Store,
    StoreSettings,
};
use bytes::Bytes;

use tempfile::TempDir;

use super::{bytes_of, key, no_vary, pattern, response, runtime};

const KEYS: u64 = 60;

fn length(number: u64) -> u64 {
    (number * number * 40_009) % 700_000
}

struct Client {
    store: Store,
    seed: u64,
}

impl Client {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % below
    }

    async fn request(&mut self) {
        // The first keys are requested most.
        let number = self.random(KEYS).min(self.random(KEYS));
        let key = key(&format!("/{number}"));
        match self.random(40) {
            0 => {
                let purge = PurgeRequest {
                    site: Some("site".into()),
                    selector: PurgeSelector::Key(key.bytes().into()),
                    soft: self.random(2) == 0,
                };
                self.store.purge(&purge);
            }
            1 => {
                let purge = PurgeRequest {
                    site: None,
                    selector: PurgeSelector::Tag(number.to_string().into_bytes().into()),
                    soft: false,
                };
                self.store
                    .purge(&purge)
                    .durable()
                    .await
                    .expect("written down");
            }
            _ => {}
        }
        loop {
            match self.store.lookup_or_fill(&key, &mut no_vary) {
                CacheLookup::Hit(object) if object.is_purged_softly() => {
                    if let CacheLookup::Lead(ticket) = self.store.lead(&key, &mut no_vary) {
                        ticket.freshen(&object, (*object.metadata()).clone());
                    }
                    return self.read(&object, number).await;
                }
                CacheLookup::Hit(object) | CacheLookup::Filling(object) => {
                    return self.read(&object, number).await;
                }
                CacheLookup::Wait(wait) => {
                    wait.outcome().await;
                }
                CacheLookup::Lead(ticket) => {
                    let length = length(number);
                    let new = NewObject {
                        tags: vec![number.to_string().into_bytes().into()],
                        resumable: number.is_multiple_of(3),
                        fill_without_readers: true,
                        ..response((!number.is_multiple_of(4)).then_some(length))
                    };
                    let mut filler = ticket.start(new);
                    let step = 1 + self.random(100_000);
                    let stops = (self.random(10) == 0).then(|| self.random(length + 1));
                    for at in (0..length).step_by(usize::try_from(step).expect("fits")) {
                        if stops.is_some_and(|stops| stops <= at) {
                            return;
                        }
                        let piece = pattern(at..(at + step).min(length));
                        if filler.append(Bytes::from(piece)).await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                    filler.finish();
                    return;
                }
                CacheLookup::Pass => return,
            }
        }
    }

    async fn read(&mut self, object: &Arc<Object>, number: u64) {
        let length = length(number);
        let from = self.random(length + 1);
        let to = from + self.random(length + 1 - from);
        let mut reader = object.read(Some(from..to));
        let mut at = from;
        while let Some(piece) = reader.piece().await {
            match piece {
                Ok(piece) => {
                    let bytes = bytes_of(piece);
                    let end = at + bytes.len() as u64;
                    assert!(bytes == pattern(at..end), "{number} {at}");
                    at = end;
                }
                Err(ReadError::Gap(gap)) => {
                    assert!(object.is_resumable() && gap.start == at);
                    for mut filler in object.fill(&self.store, gap) {
                        let bytes = pattern(filler.range());
                        if filler.append(bytes.into()).await.is_ok() {
                            filler.finish();
                        }
                    }
                    tokio::task::yield_now().await;
                }
                // The fill broke off.
                Err(_) => return,
            }
        }
        assert_eq!(at, to);
    }
}

#[test]
fn every_byte_is_right_and_no_client_waits_forever() {
    let dir = TempDir::new().expect("dir");
    let settings = StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 512 << 10,
        unwritten_bytes: 100_000,
        window_bytes: 100_000,
        open_files: 8,
        lag: Duration::from_millis(1),
        ..StoreSettings::default()
    };
    let store = Store::open(settings, DiskSettings::new(dir.path(), 12 << 20)).expect("opens");
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let store = store.clone();
            thread::spawn(move || {
                runtime().block_on(async {
                    let clients = (0..4).map(|client| {
                        let mut client = Client {
                            store: store.clone(),
                            seed: seed * 100 + client,
                        };
                        async move {
                            for _ in 0..60 {
                                client.request().await;
                            }
                        }
                    });
                    let local = tokio::task::LocalSet::new();
                    let clients: Vec<_> = clients.map(|client| local.spawn_local(client)).collect();
                    local.await;
                    for client in clients {
                        client.await.expect("right");
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("right");
    }
    store.flush();
    let figures = store.statistics();
    assert_eq!(figures.disk_errors, 0, "{figures:?}");
    assert_eq!(figures.disk_damaged, 0, "{figures:?}");
    assert!(figures.disk_bytes <= 12 << 20, "{figures:?}");
    assert!(figures.hits > 0 && figures.disk_hits > 0 && figures.disk_evictions > 0);
    // No temporary files are left.
    let temporary = std::fs::read_dir(dir.path().join("tmp"))
        .expect("dir")
        .count();
    assert_eq!(temporary, 0);
}
