//! The contract of stores of tokens.

use std::time::Duration;

use apus_account::{AccountTokenStore, AccountTokens, MemoryTokens, SqlTokens, StoredToken};
use apus_database::Db;
use apus_testkit::{EmptyDatabase, block_on};

/// A store in a database.
fn in_database(database: &EmptyDatabase) -> SqlTokens {
    SqlTokens::new(Db::open(&database.address).unwrap())
}

fn token(digit: char, account: i64, issued: u64, expires: u64) -> StoredToken {
    StoredToken {
        digest: digit.to_string().repeat(64),
        purpose: "reset".to_owned(),
        account,
        note: "Grüße".to_owned(),
        issued,
        expires,
    }
}

fn keeps_the_contract(store: &dyn AccountTokenStore) {
    block_on(async {
        let [one, two] = [token('a', 7, 100, 200), token('b', 7, 150, 300)];
        let others = [
            token('c', 8, 100, 300),
            StoredToken {
                purpose: "confirm".to_owned(),
                ..token('d', 7, 100, 300)
            },
        ];
        for token in [&one, &two, &others[0], &others[1]] {
            store.insert(token).await.unwrap();
        }
        let find = async |token: &StoredToken, now| store.find(&token.digest, now).await.unwrap();
        assert_eq!(find(&one, 199).await.as_ref(), Some(&one));
        assert_eq!(find(&one, 200).await, None, "it has expired");
        assert_eq!(store.find(&"e".repeat(64), 0).await.unwrap(), None);
        let of = async |now| store.of("reset", 7, now).await.unwrap();
        assert_eq!(of(0).await, [two.clone(), one.clone()], "the newest first");
        assert_eq!(of(200).await, std::slice::from_ref(&two));
        assert!(store.remove(&one.digest).await.unwrap());
        assert!(!store.remove(&one.digest).await.unwrap());
        store.insert(&one).await.unwrap();
        store.remove_of("reset", 7).await.unwrap();
        assert!(of(0).await.is_empty());
        for token in &others {
            assert_eq!(find(token, 0).await.as_ref(), Some(token));
        }
        store.insert(&one).await.unwrap();
        store.sweep(200).await.unwrap();
        assert_eq!(find(&one, 0).await, None);
        assert!(find(&others[0], 0).await.is_some());
    });
}

#[test]
fn memory_keeps_the_contract_of_tokens() {
    keeps_the_contract(&MemoryTokens::new());
}

#[test]
fn databases_keep_the_contract_of_tokens() {
    for fresh in EmptyDatabase::of_each() {
        keeps_the_contract(&in_database(&fresh));
    }
}

#[test]
fn of_requests_at_the_same_time_one_redeems_a_token() {
    for fresh in EmptyDatabase::of_each() {
        let tokens = AccountTokens::new(in_database(&fresh));
        let text = block_on(tokens.issue("reset", 7, "", Duration::from_secs(60))).unwrap();
        let redeemed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let redeem = || block_on(tokens.redeem("reset", &text)).unwrap();
                    scope.spawn(move || usize::from(redeem().is_some()))
                })
                .collect();
            let threads = threads.into_iter();
            threads.map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(redeemed, 1);
    }
}
