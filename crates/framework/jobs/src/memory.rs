//! `MemoryJobs`: jobs in the memory of the process, for tests and work that may be lost.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::JobError;
use crate::record::{ClaimedJob, DeadJob, JobCounts, JobId, JobRecord, to_system};
use crate::store::{JobClaim, JobFuture, JobStore, RunClaim, Settlement};

/// The most jobs that wait or run, by default.
pub(crate) const MAX_JOBS: usize = 100_000;

/// The most bytes of all jobs.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The most dead jobs of a queue: those that failed last.
const MAX_DEAD: usize = 1000;

/// How many jobs are counted before others may use the store.
const COUNTED_AT_ONCE: usize = 1000;

/// Jobs in memory. No operation looks at all of them while others wait.
pub(crate) struct MemoryJobs {
    max: usize,
    tables: Mutex<MemoryTables>,
}

#[derive(Default)]
struct MemoryTables {
    queues: HashMap<String, MemoryQueue>,
    schedules: HashMap<String, MemorySchedule>,
    /// The jobs of all queues that wait or run.
    live: usize,
    /// The bytes of all jobs, also of those that are dead.
    bytes: usize,
}

#[derive(Default)]
struct MemoryQueue {
    jobs: HashMap<JobId, MemoryJob>,
    /// Jobs that wait or run, by the time when they are due.
    live: BTreeSet<(i64, JobId)>,
    /// Dead jobs, by the time when they failed.
    dead: BTreeSet<(i64, JobId)>,
    /// The jobs with a key that wait or run.
    unique: HashMap<String, JobId>,
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

impl MemoryJob {
    /// The bytes of what a client may have sent.
    fn len(&self) -> usize {
        let unique = self.unique.as_ref().map_or(0, String::len);
        self.payload.len().saturating_add(unique)
    }
}

impl MemoryQueue {
    /// Takes a job out of the indexes.
    fn unlist(&mut self, id: &JobId) -> Option<MemoryJob> {
        let (id, job) = self.jobs.remove_entry(id)?;
        if let Some(unique) = &job.unique {
            self.unique.remove(unique);
        }
        let index = if job.is_dead {
            &mut self.dead
        } else {
            &mut self.live
        };
        index.remove(&(job.at, id));
        Some(job)
    }

    fn list(&mut self, id: &JobId, job: MemoryJob) {
        if let Some(unique) = &job.unique {
            self.unique.insert(unique.clone(), id.clone());
        }
        let index = if job.is_dead {
            &mut self.dead
        } else {
            &mut self.live
        };
        index.insert((job.at, id.clone()));
        self.jobs.insert(id.clone(), job);
    }
}

impl MemoryTables {
    /// Changes a job; `None` if there is none, or the function returns `None`.
    fn change<T>(
        &mut self,
        queue: &str,
        id: &JobId,
        change: impl FnOnce(&mut MemoryJob) -> Option<T>,
    ) -> Option<T> {
        let queue = self.queues.get_mut(queue)?;
        let mut job = queue.unlist(id)?;
        let (was_dead, before) = (job.is_dead, job.len());
        let changed = change(&mut job);
        let (is_dead, after) = (job.is_dead, job.len());
        queue.list(id, job);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        match (was_dead, is_dead) {
            (false, true) => self.live = self.live.saturating_sub(1),
            (true, false) => self.live = self.live.saturating_add(1),
            _ => {}
        }
        changed
    }

    fn remove(&mut self, queue: &str, id: &JobId) {
        let found = self.queues.get_mut(queue);
        if let Some(job) = found.and_then(|queue| queue.unlist(id)) {
            self.bytes = self.bytes.saturating_sub(job.len());
            if !job.is_dead {
                self.live = self.live.saturating_sub(1);
            }
        }
    }

    /// Removes the dead jobs that failed first, if there are too many.
    fn limit_dead(&mut self, queue: &str) {
        while let Some(found) = self.queues.get(queue)
            && found.dead.len() > MAX_DEAD
            && let Some((_, id)) = found.dead.first().cloned()
        {
            self.remove(queue, &id);
        }
    }
}

impl Default for MemoryJobs {
    fn default() -> Self {
        Self::new(MAX_JOBS)
    }
}

impl MemoryJobs {
    /// A store with room for `max` jobs that wait or run.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            tables: Mutex::default(),
        }
    }

    fn tables(&self) -> MutexGuard<'_, MemoryTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a job that a runner has.
    fn change(&self, queue: &str, job: &ClaimedJob, change: impl FnOnce(&mut MemoryJob)) -> bool {
        let changed = self.tables().change(queue, &job.id, |found| {
            (found.token.as_deref() == Some(&job.token)).then(|| change(found))
        });
        changed.is_some()
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
        let mut tables = self.tables();
        if let Some(found) = tables.queues.get(queue) {
            let is_taken = |unique| found.unique.contains_key(unique);
            if job.unique.as_ref().is_some_and(is_taken) {
                return done(false);
            }
            if found.jobs.contains_key(&record.id) {
                return done(true);
            }
        }
        let bytes = tables.bytes.saturating_add(job.len());
        if tables.live >= self.max || bytes > MAX_BYTES {
            return Box::pin(ready(Err(JobError::Full)));
        }
        tables.bytes = bytes;
        tables.live = tables.live.saturating_add(1);
        let found = tables.queues.entry(queue.to_owned()).or_default();
        found.list(&record.id, job);
        done(true)
    }

    fn claim<'a>(&'a self, claim: JobClaim<'a>) -> JobFuture<'a, Vec<ClaimedJob>> {
        let mut tables = self.tables();
        let due: Vec<JobId> = tables
            .queues
            .get(claim.queue)
            .map_or_else(Vec::new, |queue| {
                let due = queue.live.iter().take_while(|(at, _)| *at <= claim.now);
                due.take(claim.most).map(|(_, id)| id.clone()).collect()
            });
        let claimed = due.into_iter().filter_map(|id| {
            tables.change(claim.queue, &id, |job| {
                job.attempts = job.attempts.saturating_add(1);
                job.at = claim.until;
                job.token = Some(claim.token.to_owned());
                Some(ClaimedJob {
                    id: id.clone(),
                    name: job.name.clone(),
                    payload: job.payload.clone(),
                    attempts: job.attempts,
                    token: claim.token.to_owned(),
                })
            })
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
        if is_own {
            let mut tables = self.tables();
            match settlement {
                Settlement::Done => tables.remove(queue, &job.id),
                Settlement::Dead { .. } => tables.limit_dead(queue),
                Settlement::Again { .. } => {}
            }
        }
        done(is_own)
    }

    fn dead<'a>(&'a self, queue: &'a str, most: u32) -> JobFuture<'a, Vec<DeadJob>> {
        let tables = self.tables();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let dead = tables.queues.get(queue).map_or_else(Vec::new, |queue| {
            let dead = queue.dead.iter().rev().take(most);
            let dead = dead.filter_map(|(_, id)| Some((id, queue.jobs.get(id)?)));
            dead.map(|(id, job)| DeadJob {
                id: id.clone(),
                name: job.name.clone(),
                payload: job.payload.clone(),
                attempts: job.attempts,
                error: job.error.clone(),
                failed: to_system(job.at),
            })
            .collect()
        });
        done(dead)
    }

    fn requeue<'a>(&'a self, queue: &'a str, id: &'a JobId, now: i64) -> JobFuture<'a, bool> {
        let changed = self.tables().change(queue, id, |job| {
            job.is_dead.then(|| {
                job.is_dead = false;
                job.attempts = 0;
                job.at = now;
            })
        });
        done(changed.is_some())
    }

    fn discard<'a>(&'a self, queue: &'a str, id: &'a JobId) -> JobFuture<'a, bool> {
        let mut tables = self.tables();
        let found = tables.queues.get(queue);
        let found = found.and_then(|queue| queue.jobs.get(id));
        let is_dead = found.is_some_and(|job| job.is_dead);
        if is_dead {
            tables.remove(queue, id);
        }
        done(is_dead)
    }

    fn counts<'a>(&'a self, queue: &'a str, now: i64) -> JobFuture<'a, JobCounts> {
        let mut counts = JobCounts::default();
        let mut after = Bound::Unbounded;
        loop {
            let tables = self.tables();
            let Some(found) = tables.queues.get(queue) else {
                return done(counts);
            };
            counts.dead = found.dead.len() as u64;
            let mut counted = 0;
            for place in found
                .live
                .range((after.clone(), Bound::Unbounded))
                .take(COUNTED_AT_ONCE)
            {
                let is_claimed = found
                    .jobs
                    .get(&place.1)
                    .is_some_and(|job| job.token.is_some());
                let count = if place.0 <= now {
                    &mut counts.ready
                } else if is_claimed {
                    &mut counts.running
                } else {
                    &mut counts.delayed
                };
                *count = count.saturating_add(1);
                counted += 1;
                if counted == COUNTED_AT_ONCE {
                    after = Bound::Excluded(place.clone());
                }
            }
            drop(tables);
            if counted < COUNTED_AT_ONCE {
                return done(counts);
            }
        }
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

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const QUEUE: &str = "default";

    /// The result of an operation, none of which waits.
    fn now<T>(operation: impl Future<Output = Result<T, JobError>>) -> Result<T, JobError> {
        match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn record(number: usize, payload: &str) -> JobRecord {
        JobRecord {
            id: JobId(format!("{number:032}")),
            name: "work",
            payload: payload.to_owned(),
            unique: None,
            created: 0,
            due: number as i64,
        }
    }

    fn claim(jobs: &MemoryJobs, most: usize) -> Vec<ClaimedJob> {
        let claim = JobClaim {
            queue: QUEUE,
            now: 1_000_000,
            until: 2_000_000,
            token: "mine",
            most,
        };
        now(jobs.claim(claim)).unwrap()
    }

    #[test]
    fn requests_that_push_jobs_do_not_fill_the_memory() {
        let jobs = MemoryJobs::new(3);
        for number in 0..3 {
            assert!(now(jobs.push(QUEUE, &record(number, "{}"))).unwrap());
        }
        for queue in [QUEUE, "other"] {
            let full = now(jobs.push(queue, &record(3, "{}")));
            assert!(matches!(full, Err(JobError::Full)), "{full:?}");
        }
        // One that runs has its place until it is done.
        let claimed = claim(&jobs, 1);
        assert!(now(jobs.push(QUEUE, &record(4, "{}"))).is_err());
        assert!(now(jobs.settle(QUEUE, &claimed[0], &Settlement::Done)).unwrap());
        assert!(now(jobs.push(QUEUE, &record(5, "{}"))).unwrap());
        // The bytes of all jobs have a limit as well.
        let jobs = MemoryJobs::default();
        let half = "x".repeat(MAX_BYTES / 2);
        assert!(now(jobs.push(QUEUE, &record(0, &half))).unwrap());
        assert!(now(jobs.push(QUEUE, &record(1, &half))).unwrap());
        assert!(now(jobs.push(QUEUE, &record(2, "x"))).is_err());
        let claimed = claim(&jobs, 1);
        assert!(now(jobs.settle(QUEUE, &claimed[0], &Settlement::Done)).unwrap());
        assert!(now(jobs.push(QUEUE, &record(2, "x"))).unwrap());
    }

    #[test]
    fn jobs_with_a_key_are_found_without_a_look_at_all() {
        let jobs = MemoryJobs::default();
        let with_key = |number| JobRecord {
            unique: Some("key".to_owned()),
            ..record(number, "{}")
        };
        assert!(now(jobs.push(QUEUE, &with_key(1))).unwrap());
        assert!(!now(jobs.push(QUEUE, &with_key(2))).unwrap());
        assert!(now(jobs.push("other", &with_key(2))).unwrap());
        let claimed = claim(&jobs, 5);
        let dead = Settlement::Dead {
            now: 1,
            error: String::new(),
        };
        assert!(now(jobs.settle(QUEUE, &claimed[0], &dead)).unwrap());
        // Dead jobs hold no key.
        assert!(now(jobs.push(QUEUE, &with_key(3))).unwrap());
    }

    #[test]
    fn dead_jobs_are_the_last_thousand_and_leave_room_for_others() {
        let jobs = MemoryJobs::new(1);
        for number in 0..MAX_DEAD + 10 {
            now(jobs.push(QUEUE, &record(number, "{}"))).unwrap();
            let claimed = claim(&jobs, 1);
            let dead = Settlement::Dead {
                now: number as i64,
                error: "no".to_owned(),
            };
            assert!(now(jobs.settle(QUEUE, &claimed[0], &dead)).unwrap());
        }
        let dead = now(jobs.dead(QUEUE, u32::MAX)).unwrap();
        assert_eq!(dead.len(), MAX_DEAD);
        assert_eq!(dead[0].id, record(MAX_DEAD + 9, "").id);
        assert_eq!(dead[MAX_DEAD - 1].id, record(10, "").id);
        assert_eq!(now(jobs.counts(QUEUE, 0)).unwrap().dead, MAX_DEAD as u64);
    }

    #[test]
    fn all_jobs_are_counted_in_steps() {
        for count in [
            0,
            1,
            COUNTED_AT_ONCE - 1,
            COUNTED_AT_ONCE,
            COUNTED_AT_ONCE + 1,
            2500,
        ] {
            let jobs = MemoryJobs::default();
            for number in 0..count {
                now(jobs.push(QUEUE, &record(number, "{}"))).unwrap();
            }
            let counts = now(jobs.counts(QUEUE, 999)).unwrap();
            assert_eq!(counts.ready as usize, count.min(1000), "{count}");
            assert_eq!(
                counts.delayed as usize,
                count.saturating_sub(1000),
                "{count}"
            );
            let running = claim(&jobs, 700).len() as u64;
            assert_eq!(now(jobs.counts(QUEUE, 999)).unwrap().running, running);
        }
    }
}
