//! A cache of rewritten statements, one for each worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

thread_local! {
    static STATEMENTS: RefCell<HashMap<&'static str, Arc<str>>> = RefCell::default();
}

/// The rewritten statement, which `write` makes the first time.
pub(crate) fn rewritten(text: &'static str, write: impl FnOnce() -> String) -> Arc<str> {
    STATEMENTS.with_borrow_mut(|statements| {
        statements
            .entry(text)
            .or_insert_with(|| write().into())
            .clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_rewritten_once() {
        let mut count = 0;
        for _ in 0..3 {
            let text = rewritten("a = ?", || {
                count += 1;
                "a = $1".to_owned()
            });
            assert_eq!(&*text, "a = $1");
        }
        assert_eq!(count, 1);
    }
}
