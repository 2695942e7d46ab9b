//! `Related`: the rows that belong to the rows of a list, by one statement.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::hash::Hash;

use sqlx::Error;

use super::Model;
use super::condition::Column;
use super::value::ForeignKey;
use crate::execute::DbExecutor;

/// The most keys of one statement; a longer list takes several.
const MAX_KEYS: usize = 1000;

/// Loads the rows that belong to the rows of a list, by one statement, in place of one for each row (n+1).
pub trait Related<M: Model> {
    /// For each row, the rows whose column refers to it, in the order of their keys:
    /// `users.has_many(&db, Post::USER_ID)`.
    fn has_many<'e, C, F>(
        &self,
        db: impl DbExecutor<'e>,
        column: Column<C, F>,
    ) -> impl Future<Output = Result<Vec<Vec<C>>, Error>> + Send
    where
        C: Model + Clone,
        F: ForeignKey<M::Key> + From<M::Key>;

    /// For each row, the row that its column refers to, if there is one:
    /// `let users: Vec<Option<User>> = posts.belongs_to(&db, Post::USER_ID).await?`.
    fn belongs_to<'e, P, F>(
        &self,
        db: impl DbExecutor<'e>,
        column: Column<M, F>,
    ) -> impl Future<Output = Result<Vec<Option<P>>, Error>> + Send
    where
        P: Model + Clone,
        F: ForeignKey<P::Key>;
}

impl<M: Model> Related<M> for [M] {
    #[expect(
        clippy::manual_async_fn,
        reason = "the future is `Send` whatever the executor is"
    )]
    fn has_many<'e, C, F>(
        &self,
        db: impl DbExecutor<'e>,
        column: Column<C, F>,
    ) -> impl Future<Output = Result<Vec<Vec<C>>, Error>> + Send
    where
        C: Model + Clone,
        F: ForeignKey<M::Key> + From<M::Key>,
    {
        async move {
            let mut children: HashMap<M::Key, Vec<C>> = HashMap::new();
            for keys in distinct(self.iter().map(Model::key)).chunks(MAX_KEYS) {
                let those = column.one_of(keys.iter().cloned());
                for child in C::query().filter(those).all(db).await? {
                    if let Some(key) = column.value_of(&child).target().cloned() {
                        children.entry(key).or_default().push(child);
                    }
                }
            }
            let of = |row: &M| children.get(row.key()).cloned().unwrap_or_default();
            Ok(self.iter().map(of).collect())
        }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "the future is `Send` whatever the executor is"
    )]
    fn belongs_to<'e, P, F>(
        &self,
        db: impl DbExecutor<'e>,
        column: Column<M, F>,
    ) -> impl Future<Output = Result<Vec<Option<P>>, Error>> + Send
    where
        P: Model + Clone,
        F: ForeignKey<P::Key>,
    {
        async move {
            let mut parents: HashMap<P::Key, P> = HashMap::new();
            for keys in distinct(self.iter().filter_map(|row| column.value_of(row).target()))
                .chunks(MAX_KEYS)
            {
                for parent in P::query().filter(key_is_one_of::<P>(keys)).all(db).await? {
                    parents.insert(parent.key().clone(), parent);
                }
            }
            let targets = self.iter().map(|row| column.value_of(row).target());
            Ok(targets
                .map(|key| key.and_then(|key| parents.get(key)).cloned())
                .collect())
        }
    }
}

fn key_is_one_of<P: Model>(keys: &[P::Key]) -> super::RowCondition<P> {
    let column: Column<P, P::Key> = Column::new(P::KEY, P::key);
    column.one_of(keys.iter().cloned())
}

/// Each key once, in the order of the list.
fn distinct<'k, K: Clone + Eq + Hash + 'k>(keys: impl Iterator<Item = &'k K>) -> Vec<K> {
    let mut seen = HashSet::new();
    keys.filter(|key| seen.insert(*key)).cloned().collect()
}
