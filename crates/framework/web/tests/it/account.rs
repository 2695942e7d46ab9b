//! The contract of stores of tokens, and remembered log-ins.

use std::time::Duration;

use apus::account::{
    AccountTokenStore, AccountTokens, MemoryTokens, RememberMe, SqlTokens, StoredToken,
};
use apus::extract::Cookies;
use apus::layers::ClientInfo;
use apus::testing::TestClient;
use apus::{App, Result, State};

use crate::sql::Fresh;
use apus_testkit::block_on;

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
    for fresh in Fresh::of_each() {
        keeps_the_contract(&SqlTokens::new(fresh.db()));
    }
}

#[test]
fn of_requests_at_the_same_time_one_redeems_a_token() {
    for fresh in Fresh::of_each() {
        let tokens = AccountTokens::new(SqlTokens::new(fresh.db()));
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

#[test]
fn a_log_in_is_remembered_until_it_is_forgotten() {
    let remember = RememberMe::new(AccountTokens::new(MemoryTokens::new()));
    type Arguments = (State<RememberMe>, Cookies, ClientInfo);
    let app = App::new()
        .state(remember.clone())
        .post(
            "/log-in",
            async |(State(remember), mut cookies, client): Arguments| -> Result<(Cookies, &str)> {
                remember
                    .remember(&mut cookies, client, 7, "a browser")
                    .await?;
                Ok((cookies, ""))
            },
        )
        .post(
            "/log-out",
            async |(State(remember), mut cookies, client): Arguments| -> Result<(Cookies, &str)> {
                remember.forget(&mut cookies, client).await?;
                Ok((cookies, ""))
            },
        )
        .get(
            "/",
            async |(State(remember), cookies, client): Arguments| -> Result<String> {
                let found = remember.find(&cookies, client).await?;
                Ok(found.map_or("nobody".to_owned(), |found| found.account.to_string()))
            },
        );
    let client = TestClient::new(app);
    client.get("/").send().assert_text("nobody");
    let mut reply = client.post("/log-in").send();
    reply.assert_ok();
    let field = reply.header("set-cookie").unwrap();
    for part in [
        "remember=",
        "HttpOnly",
        "SameSite=Lax",
        "Max-Age=2592000",
        "Path=/",
    ] {
        assert!(field.contains(part), "{field}");
    }
    client.get("/").send().assert_text("7");
    let stolen = client.cookie("remember").unwrap();
    client.post("/log-out").send().assert_ok();
    assert_eq!(client.cookie("remember"), None);
    client.set_cookie("remember", &stolen);
    client.get("/").send().assert_text("nobody");
    client.post("/log-in").send();
    client.run(remember.forget_all(7)).unwrap();
    client.get("/").send().assert_text("nobody");
}
