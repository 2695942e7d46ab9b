//! `MemoryJobs`: jobs in the memory of the process, for tests and work that may be lost.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::JobError;
use crate::record::{ClaimedJob, DeadJob, JobCounts, JobId, JobRecord, to_system};
use crate::store::{JobClaim, JobFuture, JobStore, RunClaim, Settlement};

/// Jobs in memory.
#[derive(Default)]
pub(crate) struct MemoryJobs(Mutex<MemoryTables>);

#[derive(Default)]
struct MemoryTables {
    /// By queue and identity.
    jobs: BTreeMap<(String, JobId), MemoryJob>,
    schedules: HashMap<String, MemorySchedule>,
}

struct MemoryJob {
    name: String,
    payload: String,
    unique: Option<String>,
    attempts: u32,
    /// When it is due, or failed.
    at: i64,
    token: Option<String>,
    is_dead: bool,
    error: String,
}

#[derive(Default)]
struct MemorySchedule {
    last: i64,
    until: i64,
    token: String,
}

impl MemoryJobs {
    fn tables(&self) -> MutexGuard<'_, MemoryTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a job that a runner has.
    fn change(&self, queue: &str, job: &ClaimedJob, change: impl FnOnce(&mut MemoryJob)) -> bool {
        let mut tables = self.tables();
        let found = tables.jobs.get_mut(&(queue.to_owned(), job.id.clone()));
        match found.filter(|found| found.token.as_deref() == Some(&job.token)) {
            Some(found) => {
                change(found);
                true
            }
            None => false,
        }
    }
}

fn done<'a, T: 'a>(value: T) -> JobFuture<'a, T> {
    Box::pin(ready(Ok::<T, JobError>(value)))
}

impl JobStore for MemoryJobs {
    fn is_shared(&self) -> bool {
        false
    }

    fn prepare(&self) -> JobFuture<'_, ()> {
        done(())
    }

    fn push<'a>(&'a self, queue: &'a str, record: &'a JobRecord) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let is_taken = record.unique.is_some()
            && tables
                .jobs
                .iter()
                .any(|((of, _), job)| of == queue && job.unique == record.unique);
        if is_taken {
            return done(false);
        }
        let job = MemoryJob {
            name: record.name.to_owned(),
            payload: record.payload.clone(),
            unique: record.unique.clone(),
            attempts: 0,
            at: record.due,
            token: None,
            is_dead: false,
            error: String::new(),
        };
        tables
            .jobs
            .insert((queue.to_owned(), record.id.clone()), job);
        done(true)
    }

    fn claim<'a>(&'a self, claim: JobClaim<'a>) -> JobFuture<'a, Vec<ClaimedJob>> {
        let mut tables = self.tables();
        let mut due: Vec<_> = tables
            .jobs
            .iter_mut()
            .filter(|((queue, _), job)| queue == claim.queue && !job.is_dead && job.at <= claim.now)
            .collect();
        due.sort_by_key(|(_, job)| job.at);
        let claimed = due.into_iter().take(claim.most).map(|((_, id), job)| {
            job.attempts = job.attempts.saturating_add(1);
            job.at = claim.until;
            job.token = Some(claim.token.to_owned());
            ClaimedJob {
                id: id.clone(),
                name: job.name.clone(),
                payload: job.payload.clone(),
                attempts: job.attempts,
                token: claim.token.to_owned(),
            }
        });
        let claimed = claimed.collect();
        done(claimed)
    }

    fn extend<'a>(
        &'a self,
        queue: &'a str,
        job: &'a ClaimedJob,
        until: i64,
    ) -> JobFuture<'a, bool> {
        done(self.change(queue, job, |job| job.at = until))
    }

    fn settle<'a>(
        &'a self,
        queue: &'a str,
        job: &'a ClaimedJob,
        settlement: &'a Settlement,
    ) -> JobFuture<'a, bool> {
        let is_own = self.change(queue, job, |job| match settlement {
            Settlement::Done => {}
            Settlement::Again {
                due,
                attempts,
                error,
            } => {
                job.at = *due;
                job.attempts = *attempts;
                job.error.clone_from(error);
                job.token = None;
            }
            Settlement::Dead { now, error } => {
                job.at = *now;
                job.is_dead = true;
                job.unique = None;
                job.error.clone_from(error);
                job.token = None;
            }
        });
        if is_own && matches!(settlement, Settlement::Done) {
            let key = (queue.to_owned(), job.id.clone());
            self.tables().jobs.remove(&key);
        }
        done(is_own)
    }

    fn dead<'a>(&'a self, queue: &'a str, most: u32) -> JobFuture<'a, Vec<DeadJob>> {
        let tables = self.tables();
        let dead = tables
            .jobs
            .iter()
            .filter(|((of, _), job)| of == queue && job.is_dead);
        let mut dead: Vec<_> = dead.collect();
        dead.sort_by_key(|(_, job)| std::cmp::Reverse(job.at));
        dead.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let dead = dead.into_iter().map(|((_, id), job)| DeadJob {
            id: id.clone(),
            name: job.name.clone(),
            payload: job.payload.clone(),
            attempts: job.attempts,
            error: job.error.clone(),
            failed: to_system(job.at),
        });
        let dead = dead.collect();
        done(dead)
    }

    fn requeue<'a>(&'a self, queue: &'a str, id: &'a JobId, now: i64) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let found = tables.jobs.get_mut(&(queue.to_owned(), id.clone()));
        let found = found.filter(|job| job.is_dead).map(|job| {
            job.is_dead = false;
            job.attempts = 0;
            job.at = now;
        });
        done(found.is_some())
    }

    fn discard<'a>(&'a self, queue: &'a str, id: &'a JobId) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let key = (queue.to_owned(), id.clone());
        let is_dead = tables.jobs.get(&key).is_some_and(|job| job.is_dead);
        if is_dead {
            tables.jobs.remove(&key);
        }
        done(is_dead)
    }

    fn counts<'a>(&'a self, queue: &'a str, now: i64) -> JobFuture<'a, JobCounts> {
        let mut counts = JobCounts::default();
        for ((of, _), job) in &self.tables().jobs {
            let count = match job {
                _ if of != queue => continue,
                job if job.is_dead => &mut counts.dead,
                job if job.at <= now => &mut counts.ready,
                job if job.token.is_some() => &mut counts.running,
                _ => &mut counts.delayed,
            };
            *count = count.saturating_add(1);
        }
        done(counts)
    }

    fn last_run<'a>(&'a self, schedule: &'a str, now: i64) -> JobFuture<'a, i64> {
        let mut tables = self.tables();
        let found = tables.schedules.entry(schedule.to_owned());
        let last = found.or_insert_with(|| MemorySchedule {
            last: now,
            ..MemorySchedule::default()
        });
        done(last.last)
    }

    fn begin_run<'a>(&'a self, run: RunClaim<'a>) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let found = tables.schedules.entry(run.schedule.to_owned()).or_default();
        let begins = found.last < run.due && found.until <= run.now;
        if begins {
            *found = MemorySchedule {
                last: run.due,
                until: run.until,
                token: run.token.to_owned(),
            };
        }
        done(begins)
    }

    fn extend_run<'a>(
        &'a self,
        schedule: &'a str,
        token: &'a str,
        until: i64,
    ) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let found = tables.schedules.get_mut(schedule);
        let found = found.filter(|found| found.token == token);
        let found = found.map(|found| found.until = until);
        done(found.is_some())
    }
}
