//! All pools of a server, while configurations come and go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StartError;
use crate::launcher::Launcher;
use crate::plan::PoolPlan;
use crate::pool::Pool;
use crate::status::PoolStatus;

/// All pools of a server. Clones are the same.
///
/// A new configuration is [prepared](Pools::prepare), which starts what it needs more, and then takes over
/// with [`Pools::retain`], which ends what it needs no longer.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    pools: Arc<Mutex<HashMap<Arc<str>, Vec<Pool>>>>,
    launcher: Option<Arc<dyn Launcher>>,
}

impl Pools {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None; `launcher` starts PHP that runs as other users.
    pub fn with_launcher(launcher: Arc<dyn Launcher>) -> Self {
        Self {
            launcher: Some(launcher),
            ..Self::default()
        }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the pool of this plan, if none runs with it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn prepare(&self, plan: &PoolPlan) -> Result<(), StartError> {
        let mut pools = self.pools();
        let same_name = pools.entry(Arc::clone(&plan.name)).or_default();
        if !same_name.iter().any(|pool| pool.plan() == plan) {
            same_name.push(Pool::start_with(plan.clone(), self.launcher.clone())?);
        }
        Ok(())
    }

    /// The pool that runs with this plan.
    pub fn get(&self, plan: &PoolPlan) -> Option<Pool> {
        let pools = self.pools();
        let same_name = pools.get(&plan.name)?;
        same_name.iter().find(|pool| pool.plan() == plan).cloned()
    }

    /// Ends all but those that run with one of these plans, when they have done what they were asked.
    pub async fn retain(&self, plans: &[PoolPlan]) {
        let mut gone = Vec::new();
        self.pools().retain(|_, same_name| {
            same_name.retain(|pool| {
                let stays = plans.contains(pool.plan());
                if !stays {
                    gone.push(pool.clone());
                }
                stays
            });
            !same_name.is_empty()
        });
        // All end at the same time.
        for pool in &gone {
            pool.begin_stop();
        }
        for pool in gone {
            pool.stop().await;
        }
    }

    /// Ends event streams and WebSockets, which would go on for as long as their clients like. Their
    /// clients are told; requests go on.
    pub fn end_streams(&self) {
        for pool in self.all() {
            pool.end_streams();
        }
    }

    /// The pools, in the order of their names.
    pub fn all(&self) -> Vec<Pool> {
        let mut pools: Vec<_> = self.pools().values().flatten().cloned().collect();
        pools.sort_by(|one, other| one.plan().name.cmp(&other.plan().name));
        pools
    }

    /// What they do.
    pub fn status(&self) -> Vec<PoolStatus> {
        self.all().iter().map(Pool::status).collect()
    }
}
