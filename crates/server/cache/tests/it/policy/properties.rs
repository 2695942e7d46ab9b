//! Properties that hold for any request and response.

use apus_cache::policy::{
    CacheRules, CachingContext, ClientDirectiveRule, ReuseDecision, StoredResponse, decide_reuse,
    may_serve_on_error,
};
use proptest::prelude::*;

use super::{TestRequest, TestResponse, at, date, try_store};

fn cache_control() -> impl Strategy<Value = String> {
    let seconds = prop_oneof![0_u64..200, Just(u64::MAX)];
    let directive = prop_oneof![
        Just("no-cache".to_owned()),
        Just("must-revalidate".to_owned()),
        Just("public".to_owned()),
        Just("immutable".to_owned()),
        (
            prop_oneof![
                Just("max-age"),
                Just("s-maxage"),
                Just("stale-while-revalidate"),
                Just("stale-if-error"),
                Just("max-stale"),
                Just("min-fresh"),
            ],
            seconds
        )
            .prop_map(|(name, seconds)| format!("{name}={seconds}")),
        "[a-z=\",0-9-]{0,12}",
    ];
    prop::collection::vec(directive, 0..4).prop_map(|directives| directives.join(", "))
}

prop_compose! {
    fn stored()(
        cache_control in cache_control(),
        age in prop_oneof![Just(String::new()), "[0-9]{1,3}", "[0-9x,-]{0,6}"],
        dated in -300_i64..300,
        modified in -10_000_i64..300,
        delay in 0_i64..100,
    ) -> Option<StoredResponse> {
        let (dated, modified) = (date(dated), date(modified));
        let reply = TestResponse {
            requested: at(-delay),
            ..TestResponse::with(200, &[
                ("cache-control", &cache_control),
                ("age", &age),
                ("date", &dated),
                ("last-modified", &modified),
                ("etag", "\"x\""),
            ])
        };
        try_store(&TestRequest::with(&[]), &reply, &CacheRules::default()).ok().map(|storable| storable.stored)
    }
}

proptest! {
    #[test]
    fn expired_responses_are_never_fresh_and_continue_to_age(
        stored in stored(),
        directives in cache_control(),
        seconds in -100_i64..5_000,
        heeds in any::<bool>(),
    ) {
        let Some(stored) = stored else { return Ok(()) };
        let rules = CacheRules {
            client_directives: if heeds {
ClientDirectiveRule::Honour
} else {
ClientDirectiveRule::Ignore
},
            ..CacheRules::default()
        };
        let request = TestRequest::with(&[("cache-control", &directives)]);
        let now = at(seconds);
        let conditions = CachingContext::default();
        let is_expired = now >= stored.fresh_until();
        match decide_reuse(&request.presented(), &stored, &rules, &conditions, now) {
            ReuseDecision::Fresh { age } => {
                prop_assert!(!is_expired);
                prop_assert_eq!(age, stored.age(now));
            }
            ReuseDecision::Stale { .. } => prop_assert!(is_expired && !stored.is_fresh(now)),
            ReuseDecision::Validate(_) | ReuseDecision::GatewayTimeout => {}
            ReuseDecision::Forward(reason) => prop_assert!(false, "{reason:?}"),
        }
        if may_serve_on_error(&request.presented(), &stored, &rules, &conditions, now).is_some() && !heeds {
            prop_assert!(now < stored.useful_until());
        }
        // The age is never less than the time since the receipt.
        prop_assert!(i64::from(stored.age(now)) >= seconds);
        prop_assert!(stored.age(at(seconds + 1)) >= stored.age(now));
        prop_assert_eq!(stored.ttl(now) <= 0, is_expired || stored.fresh_until() < at(seconds + 1));
    }

    #[test]
    fn decodes_what_it_encoded(stored in stored(), cut in any::<prop::sample::Index>()) {
        let Some(stored) = stored else { return Ok(()) };
        let mut bytes = Vec::new();
        stored.encode(&mut bytes);
        let decoded = StoredResponse::decode(&bytes);
        prop_assert_eq!(decoded.as_ref(), Ok(&stored));
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(StoredResponse::decode(&bytes).is_err());
    }

    #[test]
    fn decoding_anything_changes_nothing_when_encoded_again(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(stored) = StoredResponse::decode(&bytes) {
            let mut again = Vec::new();
            stored.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
