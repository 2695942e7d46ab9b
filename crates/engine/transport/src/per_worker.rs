//! Values that each worker has for itself, for example a connection to a database.
//!
//! A connection belongs to the runtime of the worker that opened it. A task on another thread that
//! waited for it would be woken across threads for every reply.

use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use tokio::runtime::{Handle, Id};

thread_local! {
    static VALUES: RefCell<Vec<WorkerValue>> = const { RefCell::new(Vec::new()) };
}

struct WorkerValue {
    /// The shared object that the value belongs to. The value is dropped after it.
    owner: Weak<dyn Any + Send + Sync>,
    /// The runtime that the value belongs to; a thread can have several, one after another.
    runtime: Option<Id>,
    value: Box<dyn Any>,
}

/// The value of `owner` on this thread and runtime, which is made if there is none.
pub fn get_or_insert<O, V>(owner: &Arc<O>, make: impl FnOnce() -> V) -> V
where
    O: Any + Send + Sync,
    V: Clone + 'static,
{
    let runtime = Handle::try_current().ok().map(|handle| handle.id());
    // A list and no map: a worker has a handful of them.
    VALUES.with_borrow_mut(|owned| {
        let found = owned.iter().find_map(|entry| {
            // No later owner can have this address, because a `Weak` keeps the allocation.
            let is_it = entry.runtime == runtime
                && std::ptr::addr_eq(entry.owner.as_ptr(), Arc::as_ptr(owner));
            entry.value.downcast_ref::<V>().filter(|_| is_it)
        });
        if let Some(value) = found {
            return value.clone();
        }
        // Values whose runtime has ended would wait for a reactor that nobody polls.
        owned.retain(|entry| entry.owner.strong_count() > 0 && entry.runtime == runtime);
        let value = make();
        let owner: Arc<dyn Any + Send + Sync> = owner.clone();
        owned.push(WorkerValue {
            owner: Arc::downgrade(&owner),
            runtime,
            value: Box::new(value.clone()),
        });
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_one_on_each_thread_and_runtime() {
        let (one, other) = (Arc::new(1), Arc::new(2));
        let made = RefCell::new(0);
        let of = |owner: &Arc<i32>| {
            get_or_insert(owner, || {
                *made.borrow_mut() += 1;
                *made.borrow()
            })
        };
        assert_eq!((of(&one), of(&other), of(&one), of(&other)), (1, 2, 1, 2));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert_eq!(runtime.block_on(async { of(&one) }), 3);
        let elsewhere = one.clone();
        let there = std::thread::spawn(move || get_or_insert(&elsewhere, || 9));
        assert_eq!(there.join().unwrap(), 9);
        drop(one);
        runtime.block_on(async { of(&other) });
        assert_eq!(VALUES.with_borrow(Vec::len), 1);
    }
}
