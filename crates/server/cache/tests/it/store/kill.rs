//! A process that is killed while it fills: every byte that is sent afterwards was stored there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use apus_cache::store::{NewObject, PurgeRequest, PurgeSelector};
use tempfile::TempDir;

use super::disk::{find, open};
use super::{drain, key, pattern, response, start};

const OBJECTS: u64 = 40;

/// The bytes differ for each object and each version.
fn stored(number: u64, version: u64) -> u64 {
    number * 10_000_000 + version * 1000
}

fn length(number: u64) -> u64 {
    1000 + (number * number * 6151) % 1_500_000
}

fn is_resumable(number: u64) -> bool {
    number.is_multiple_of(2)
}

#[tokio::test]
async fn every_byte_sent_after_a_kill_was_stored() {
    let dir = TempDir::new().expect("dir");
    let exe = std::env::current_exe().expect("exe");
    let mut found = 0;
    for round in 0..12 {
        let mut child = Command::new(&exe)
            .args([
                "--exact",
                "store::kill::fill_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .env("APUS_TEST_DIRECTORY", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut purged = Vec::new();
        for (line, text) in lines.enumerate() {
            // At another point of its work each time.
            if line == 10 + round * 7 {
                child.kill().expect("killed");
            }
            let text = text.expect("text");
            let number = |word| text.strip_prefix(word).map(|number| number.parse::<u64>());
            if let Some(number) = number("purged: ") {
                purged.push(number.expect("number"));
            } else if let Some(number) = number("filling: ") {
                let number = number.expect("number");
                purged.retain(|held| *held != number);
            }
        }
        child.wait().expect("ended");

        let store = open(dir.path());
        for number in 0..OBJECTS {
            let Some(object) = find(&store, &format!("/{number}")).await else {
                continue;
            };
            assert!(!purged.contains(&number), "{number} was purged");
            assert!(object.is_complete() || is_resumable(number));
            assert_eq!(object.length(), Some(length(number)));
            let version: u64 = std::str::from_utf8(&object.metadata().policy)
                .expect("text")
                .parse()
                .expect("number");
            for range in object.stored().iter() {
                let (bytes, error) = drain(object.read(Some(range.clone()))).await;
                assert_eq!(error, None);
                let from = stored(number, version);
                assert!(
                    bytes == pattern(from + range.start..from + range.end),
                    "{number}"
                );
                found += 1;
            }
        }
        if round.is_multiple_of(2) {
            store.close().expect("closes");
        } else {
            store.flush();
        }
    }
    assert!(found > 50, "{found}");
}

#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn fill_until_killed() {
    let path = std::env::var_os("APUS_TEST_DIRECTORY").expect("directory");
    let store = open(Path::new(&path));
    let mut seed = u64::from(std::process::id());
    for version in 0.. {
        for step in 0..OBJECTS {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (step + seed % 7) % OBJECTS;
            let mut new = NewObject {
                resumable: is_resumable(number),
                fill_without_readers: true,
                ..response(Some(length(number)))
            };
            new.metadata.policy = version.to_string().into();
            println!("filling: {number}");
            let mut filler = start(&store, &key(&format!("/{number}")), new);
            let from = stored(number, version);
            let mut breaks_off = seed.is_multiple_of(5);
            for at in (0..length(number)).step_by(50_000) {
                let end = (at + 50_000).min(length(number));
                filler
                    .append(pattern(from + at..from + end).into())
                    .await
                    .expect("wanted");
                if breaks_off && at > length(number) / 2 {
                    break;
                }
                breaks_off &= end < length(number);
            }
            if breaks_off {
                drop(filler);
            } else {
                filler.finish();
            }
            if seed.is_multiple_of(11) {
                let purge = PurgeRequest {
                    site: None,
                    selector: PurgeSelector::Key(format!("/{number}").into_bytes().into()),
                    soft: false,
                };
                store.purge(&purge).durable().await.expect("written down");
                println!("purged: {number}");
            }
        }
    }
}
