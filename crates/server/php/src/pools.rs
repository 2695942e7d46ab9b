//! All pools of a server, across reloads of its configuration.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::PoolStartError;
use crate::launcher::Launcher;
use crate::plan::WorkerPoolPlan;
use crate::pool::WorkerPool;
use crate::status::PoolStatus;

/// All pools of a server. Clones share the pools.
///
/// For a new configuration, [`WorkerPools::prepare`] starts additional pools, and later
/// [`WorkerPools::retain`] stops those that are no longer needed.
#[derive(Clone, Debug, Default)]
pub struct WorkerPools {
    pools: Arc<Mutex<HashMap<Arc<str>, Vec<WorkerPool>>>>,
    launcher: Option<Arc<dyn Launcher>>,
}

impl WorkerPools {
    /// No pools.
    pub fn new() -> Self {
        Self::default()
    }

    /// No pools; `launcher` will start PHP that runs as other users.
    pub fn with_launcher(launcher: Arc<dyn Launcher>) -> Self {
        Self {
            launcher: Some(launcher),
            ..Self::default()
        }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<WorkerPool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pool with this plan, unless there is one.
    ///
    /// # Errors
    /// The pool cannot be started.
    pub fn prepare(&self, plan: &WorkerPoolPlan) -> Result<(), PoolStartError> {
        let mut pools = self.pools();
        let same_name = pools.entry(Arc::clone(&plan.name)).or_default();
        if !same_name.iter().any(|pool| pool.plan() == plan) {
            same_name.push(WorkerPool::start_with(plan.clone(), self.launcher.clone())?);
        }
        Ok(())
    }

    /// The pool with this plan.
    pub fn get(&self, plan: &WorkerPoolPlan) -> Option<WorkerPool> {
        let pools = self.pools();
        let same_name = pools.get(&plan.name)?;
        same_name.iter().find(|pool| pool.plan() == plan).cloned()
    }

    /// Stops all pools without a plan in `plans`, after their requests.
    pub async fn retain(&self, plans: &[WorkerPoolPlan]) {
        let mut removed = Vec::new();
        self.pools().retain(|_, same_name| {
            same_name.retain(|pool| {
                let stays = plans.contains(pool.plan());
                if !stays {
                    removed.push(pool.clone());
                }
                stays
            });
            !same_name.is_empty()
        });
        // All stop at the same time.
        for pool in &removed {
            pool.begin_stop();
        }
        for pool in removed {
            pool.stop().await;
        }
    }

    /// Closes event streams and WebSockets, which would otherwise stay open for as long as their clients like.
    /// Other requests continue.
    pub fn end_streams(&self) {
        for pool in self.all() {
            pool.end_streams();
        }
    }

    /// The pools, sorted by name.
    pub fn all(&self) -> Vec<WorkerPool> {
        let mut pools: Vec<_> = self.pools().values().flatten().cloned().collect();
        pools.sort_by(|one, other| one.plan().name.cmp(&other.plan().name));
        pools
    }

    /// The status of all pools.
    pub fn status(&self) -> Vec<PoolStatus> {
        self.all().iter().map(WorkerPool::status).collect()
    }
}
