//! Conditions: their text, and what they find in a request.

use apus_conditions::{Definitions, FactStage, RequestFacts, names_in};
use apus_testkit::ask;

/// The first line is a condition, the rest is the value of two fields of a request. Mistakes are within the text, a condition and its
/// negation differ, and a condition that is said never to be true is not.
pub fn conditions(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let Some(Ok(text)) = lines.next().map(std::str::from_utf8) else {
        return;
    };
    let value = lines.next().unwrap_or_default();
    let mut request = ask("POST", "/api/v1?page=1&page=2").request();
    for name in ["user-agent", "cookie"] {
        let _ = request.headers_mut().try_insert(name, value);
    }
    let facts = RequestFacts::new(&request);
    names_in(text);
    let compile = |text: &str| Definitions::default().compile(text, FactStage::Request);
    match compile(text) {
        Ok(condition) => {
            let holds = condition.holds(&facts);
            assert_eq!(holds, condition.holds(&facts), "{text}");
            if !holds {
                condition.why_not(&facts);
            }
            if let Ok(negated) = compile(&format!("not ({text})")) {
                assert_ne!(negated.holds(&facts), holds, "{text}");
            }
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "{text}");
            for mistake in mistakes {
                assert!(
                    text.get(mistake.place.clone()).is_some(),
                    "{text}: {mistake:?}"
                );
            }
        }
    }
}
