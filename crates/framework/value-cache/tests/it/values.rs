//! `ValueCache`: values in memory and in Redis.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use apus_clock::TestClock;
use apus_redis::Redis;
use apus_testkit::{DatabaseKind, DatabaseServer, block_on, logged, may_start_servers};
use apus_value_cache::ValueCache;
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);

/// A cache in memory, and one in Redis that no other test uses.
fn of_each(name: &str) -> Vec<ValueCache> {
    let mut all = vec![ValueCache::in_memory(1 << 20)];
    if may_start_servers() {
        let redis = DatabaseServer::shared(DatabaseKind::Redis).address();
        let redis = Redis::open(&redis).unwrap();
        all.push(ValueCache::in_redis(&redis).within(&format!("{name}:")));
    }
    all
}

#[test]
fn values_are_kept_until_they_expire_or_are_forgotten() {
    for cache in of_each("contract") {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        block_on(async {
            assert_eq!(cache.get::<String>("name").await, None);
            cache.put("name", &"Ada", MINUTE).await;
            assert_eq!(cache.get("name").await, Some("Ada".to_owned()));
            assert_eq!(cache.get::<u32>("name").await, None, "another type");
            clock.advance(MINUTE - Duration::from_millis(1));
            assert_eq!(cache.get("name").await, Some("Ada".to_owned()));
            clock.advance(Duration::from_millis(1));
            assert_eq!(cache.get::<String>("name").await, None);

            cache.put("name", &"Grace", MINUTE).await;
            cache.forget("name").await.unwrap();
            assert_eq!(cache.get::<String>("name").await, None);

            let products = cache.within("products*:");
            products.put("1", &1, MINUTE).await;
            products.put("2", &2, MINUTE).await;
            cache.put("products", &3, MINUTE).await;
            assert_eq!(cache.get("products*:1").await, Some(1));
            products.forget_all().await.unwrap();
            assert_eq!(products.get::<u32>("1").await, None);
            assert_eq!(products.get::<u32>("2").await, None);
            assert_eq!(cache.get("products").await, Some(3));
            cache.ping().await.unwrap();
        });
    }
}

/// Lets other tasks run.
async fn others() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn requests_for_a_value_that_is_computed_wait_for_it() {
    for cache in of_each("collapse") {
        let computed = Rc::new(Cell::new(0));
        block_on(async {
            let mut requests = JoinSet::new();
            for _ in 0..20 {
                let (cache, computed) = (cache.clone(), computed.clone());
                requests.spawn_local(async move {
                    let compute = async || {
                        computed.set(computed.get() + 1);
                        others().await;
                        Ok::<_, String>(42)
                    };
                    cache.remember("answer", MINUTE, compute).await
                });
            }
            assert_eq!(requests.join_all().await, vec![Ok(42); 20]);
        });
        assert_eq!(computed.get(), 1);
    }
}

#[test]
fn workers_wait_for_one_another() {
    let cache = ValueCache::in_memory(1 << 20);
    let computed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let answer = || {
                    cache.remember("answer", MINUTE, async || {
                        computed.fetch_add(1, Ordering::Relaxed);
                        others().await;
                        Ok::<_, String>(42)
                    })
                };
                block_on(async {
                    let answers = tokio::join!(answer(), answer(), answer(), answer());
                    assert_eq!(answers, (Ok(42), Ok(42), Ok(42), Ok(42)));
                });
            });
        }
    });
    assert_eq!(computed.load(Ordering::Relaxed), 1);
}

#[test]
fn if_the_first_request_is_dropped_another_one_computes() {
    let cache = ValueCache::in_memory(1 << 20);
    block_on(async {
        let mut first = JoinSet::new();
        let slow = cache.clone();
        first.spawn_local(async move {
            let never = async || std::future::pending::<Result<u32, String>>().await;
            slow.remember("answer", MINUTE, never).await
        });
        others().await;
        let second = cache.remember("answer", MINUTE, async || Ok::<_, String>(2));
        tokio::pin!(second);
        let waits = tokio::time::timeout(Duration::from_millis(1), &mut second).await;
        assert!(waits.is_err());
        first.shutdown().await;
        assert_eq!(second.await, Ok(2));
    });
}

#[test]
fn an_error_is_not_stored_and_those_that_waited_compute_for_themselves() {
    let cache = ValueCache::in_memory(1 << 20);
    let computed = Rc::new(Cell::new(0));
    block_on(async {
        let mut requests = JoinSet::new();
        for _ in 0..3 {
            let (cache, computed) = (cache.clone(), computed.clone());
            requests.spawn_local(async move {
                let compute = async || {
                    let number = computed.get();
                    computed.set(number + 1);
                    others().await;
                    if number == 0 {
                        Err("the first fails")
                    } else {
                        Ok(number)
                    }
                };
                cache.remember("answer", MINUTE, compute).await
            });
        }
        let mut answers = requests.join_all().await;
        answers.sort();
        assert_eq!(answers, [Ok(1), Ok(2), Err("the first fails")]);
        assert_eq!(cache.get::<u32>("answer").await, None);
    });
}

#[test]
fn a_value_that_was_forgotten_while_it_was_computed_is_not_stored() {
    for cache in of_each("forgotten") {
        block_on(async {
            let answer = cache.remember("answer", MINUTE, async || {
                cache.forget("answer").await.unwrap();
                Ok::<_, String>(1)
            });
            assert_eq!(answer.await, Ok(1));
            assert_eq!(cache.get::<u32>("answer").await, None);
        });
    }
}

#[test]
fn a_stale_value_is_used_while_it_is_computed_again() {
    for cache in of_each("stale") {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let computed = Rc::new(Cell::new(0));
        let answer = async || {
            let computed = computed.clone();
            let compute = async move || {
                let number = computed.get();
                computed.set(number + 1);
                Ok::<_, String>(number)
            };
            cache
                .remember_stale("answer", MINUTE, MINUTE, compute)
                .await
        };
        block_on(async {
            assert_eq!(answer().await, Ok(0));
            clock.advance(MINUTE);
            assert_eq!(answer().await, Ok(0));
            // It is computed beside the request.
            while cache.get::<u32>("answer").await != Some(1) {
                tokio::task::yield_now().await;
            }
            assert_eq!(answer().await, Ok(1));
            clock.advance(MINUTE * 2);
            assert_eq!(answer().await, Ok(2));
        });
    }
}

#[test]
fn memory_is_bounded_in_bytes() {
    let cache = ValueCache::in_memory(64 * 1024);
    block_on(async {
        let value = "x".repeat(1000);
        for number in 0..1000 {
            cache.put(&number.to_string(), &value, MINUTE).await;
        }
        let bytes = cache.bytes().unwrap();
        assert!((16 * 1024..=64 * 1024).contains(&bytes), "{bytes}");
        cache.put("large", &"x".repeat(100_000), MINUTE).await;
        assert_eq!(cache.get::<String>("large").await, None);
    });
}

#[test]
fn without_redis_values_are_computed() {
    let server = DatabaseServer::start(DatabaseKind::Redis);
    let cache = ValueCache::in_redis(&Redis::open(&server.address()).unwrap());
    let log = logged(|| {
        block_on(async {
            let answer = async |number| {
                let compute = async || Ok::<_, String>(number);
                cache.remember("answer", MINUTE, compute).await
            };
            assert_eq!(answer(1).await, Ok(1));
            assert_eq!(answer(2).await, Ok(1));
            drop(server);
            for number in 3..10 {
                assert_eq!(answer(number).await, Ok(number));
            }
            assert!(cache.ping().await.is_err());
            assert!(cache.forget("answer").await.is_err());
        });
    });
    assert_eq!(log.matches("the cache fails").count(), 1, "{log}");
}
