//! `RedisJobs`: jobs in Redis and Valkey.

use std::sync::LazyLock;

use apus_redis::Redis;
use apus_redis::redis::{FromRedisValue, Script};

use crate::error::JobError;
use crate::record::{ClaimedJob, DeadJob, JobCounts, JobId, JobRecord, to_system};
use crate::store::{JobClaim, JobFuture, JobStore, RunClaim, Settlement};

/// Jobs in Redis. Below the prefix of a queue, `job:ID` is a hash of each job; the sorted sets `due` and `dead`
/// have the identities by time, where the time of a job that runs is the one after which another runner takes it;
/// the set `taken` has those that run, and `unique:KEY` the identity of the job with that key.
pub(crate) struct RedisJobs(pub(crate) Redis);

static PUSH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p, id, unique = KEYS[1], ARGV[1], ARGV[2]
         if redis.call('EXISTS', p..':job:'..id) == 1 then return 1 end
         if unique ~= '' and not redis.call('SET', p..':unique:'..unique, id, 'NX') then return 0 end
         redis.call('HSET', p..':job:'..id, 'unique', unique, 'name', ARGV[3], 'payload', ARGV[4],
             'created', ARGV[5], 'attempts', 0, 'token', '', 'error', '')
         redis.call('ZADD', p..':due', ARGV[6], id)
         return 1",
    )
});

static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p = KEYS[1]
         local found = {}
         for _, id in ipairs(redis.call('ZRANGEBYSCORE', p..':due', '-inf', ARGV[1], 'LIMIT', 0, ARGV[4])) do
             local job = p..':job:'..id
             if redis.call('EXISTS', job) == 0 then
                 redis.call('ZREM', p..':due', id)
             else
                 redis.call('ZADD', p..':due', ARGV[2], id)
                 redis.call('SADD', p..':taken', id)
                 local attempts = redis.call('HINCRBY', job, 'attempts', 1)
                 redis.call('HSET', job, 'token', ARGV[3])
                 local values = redis.call('HMGET', job, 'name', 'payload')
                 for _, value in ipairs({id, values[1], values[2], tostring(attempts)}) do
                     found[#found + 1] = value
                 end
             end
         end
         return found",
    )
});

/// Ends an attempt, or extends it.
static SETTLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p, id, what = KEYS[1], ARGV[1], ARGV[3]
         local job = p..':job:'..id
         if redis.call('HGET', job, 'token') ~= ARGV[2] then return 0 end
         if what == 'extend' then
             redis.call('ZADD', p..':due', ARGV[4], id)
             return 1
         end
         redis.call('SREM', p..':taken', id)
         if what == 'again' then
             redis.call('ZADD', p..':due', ARGV[4], id)
             redis.call('HSET', job, 'token', '', 'error', ARGV[5], 'attempts', ARGV[6])
             return 1
         end
         local unique = redis.call('HGET', job, 'unique')
         if unique ~= '' then redis.call('DEL', p..':unique:'..unique) end
         redis.call('ZREM', p..':due', id)
         if what == 'dead' then
             redis.call('ZADD', p..':dead', ARGV[4], id)
             redis.call('HSET', job, 'token', '', 'error', ARGV[5], 'unique', '')
         else
             redis.call('DEL', job)
         end
         return 1",
    )
});

static LIST_DEAD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p = KEYS[1]
         local found = {}
         for _, id in ipairs(redis.call('ZREVRANGE', p..':dead', 0, ARGV[1] - 1)) do
             local values = redis.call('HMGET', p..':job:'..id, 'name', 'payload', 'attempts', 'error')
             local failed = redis.call('ZSCORE', p..':dead', id)
             for _, value in ipairs({id, values[1], values[2], values[3], values[4], failed}) do
                 found[#found + 1] = value
             end
         end
         return found",
    )
});

static REQUEUE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p, id = KEYS[1], ARGV[1]
         if redis.call('ZREM', p..':dead', id) == 0 then return 0 end
         redis.call('HSET', p..':job:'..id, 'attempts', 0)
         redis.call('ZADD', p..':due', ARGV[2], id)
         return 1",
    )
});

static DISCARD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p, id = KEYS[1], ARGV[1]
         if redis.call('ZREM', p..':dead', id) == 0 then return 0 end
         redis.call('DEL', p..':job:'..id)
         return 1",
    )
});

static COUNTS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local p, now = KEYS[1], ARGV[1]
         local running = 0
         for _, id in ipairs(redis.call('SMEMBERS', p..':taken')) do
             local at = redis.call('ZSCORE', p..':due', id)
             if at and tonumber(at) > tonumber(now) then running = running + 1 end
         end
         local later = redis.call('ZCOUNT', p..':due', '('..now, '+inf')
         return {redis.call('ZCOUNT', p..':due', '-inf', now), later - running, running,
             redis.call('ZCARD', p..':dead')}",
    )
});

static LAST_RUN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "redis.call('HSETNX', KEYS[1], 'last', ARGV[1])
         return redis.call('HGET', KEYS[1], 'last')",
    )
});

static BEGIN_RUN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local values = redis.call('HMGET', KEYS[1], 'last', 'locked', 'token')
         if values[3] == ARGV[4] then return 1 end
         if values[1] and tonumber(values[1]) >= tonumber(ARGV[1]) then return 0 end
         if values[2] and tonumber(values[2]) > tonumber(ARGV[2]) then return 0 end
         redis.call('HSET', KEYS[1], 'last', ARGV[1], 'locked', ARGV[3], 'token', ARGV[4])
         return 1",
    )
});

static EXTEND_RUN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
         redis.call('HSET', KEYS[1], 'locked', ARGV[2])
         return 1",
    )
});

impl RedisJobs {
    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        key: String,
        arguments: &[&str],
    ) -> Result<T, JobError> {
        let done = self.0.run(script, &[&key], arguments).await;
        done.map_err(JobError::store)
    }
}

/// The prefix of the keys of a queue. The braces keep them on one server of a cluster.
fn queue_key(queue: &str) -> String {
    format!("{{jobs:{queue}}}")
}

fn schedule_key(schedule: &str) -> String {
    format!("{{jobs}}:schedule:{schedule}")
}

/// A number that a script returned as text.
fn number<T: std::str::FromStr + Default>(text: &str) -> T {
    text.parse().unwrap_or_default()
}

impl JobStore for RedisJobs {
    fn prepare(&self) -> JobFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn push<'a>(&'a self, queue: &'a str, record: &'a JobRecord) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let arguments = [
                &record.id.0,
                record.unique.as_deref().unwrap_or(""),
                record.name,
                &record.payload,
                &record.created.to_string(),
                &record.due.to_string(),
            ];
            self.run(&PUSH, queue_key(queue), &arguments).await
        })
    }

    fn claim<'a>(&'a self, claim: JobClaim<'a>) -> JobFuture<'a, Vec<ClaimedJob>> {
        Box::pin(async move {
            let arguments = [
                &claim.now.to_string(),
                &claim.until.to_string(),
                claim.token,
                &claim.most.to_string(),
            ];
            let key = queue_key(claim.queue);
            let found: Vec<String> = self.run(&CLAIM, key, &arguments).await?;
            let (jobs, _) = found.as_chunks();
            let claimed = jobs.iter().map(|[id, name, payload, attempts]| ClaimedJob {
                id: JobId(id.clone()),
                name: name.clone(),
                payload: payload.clone(),
                attempts: number(attempts),
                token: claim.token.to_owned(),
            });
            Ok(claimed.collect())
        })
    }

    fn extend<'a>(
        &'a self,
        queue: &'a str,
        job: &'a ClaimedJob,
        until: i64,
    ) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let arguments = [&job.id.0, &*job.token, "extend", &until.to_string()];
            self.run(&SETTLE, queue_key(queue), &arguments).await
        })
    }

    fn settle<'a>(
        &'a self,
        queue: &'a str,
        job: &'a ClaimedJob,
        settlement: &'a Settlement,
    ) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let (what, at, error, attempts) = match settlement {
                Settlement::Done => ("done", 0, "", 0),
                Settlement::Again {
                    due,
                    attempts,
                    error,
                } => ("again", *due, &**error, *attempts),
                Settlement::Dead { now, error } => ("dead", *now, &**error, 0),
            };
            let arguments = [
                &job.id.0,
                &*job.token,
                what,
                &at.to_string(),
                error,
                &attempts.to_string(),
            ];
            self.run(&SETTLE, queue_key(queue), &arguments).await
        })
    }

    fn dead<'a>(&'a self, queue: &'a str, most: u32) -> JobFuture<'a, Vec<DeadJob>> {
        Box::pin(async move {
            if most == 0 {
                return Ok(Vec::new());
            }
            let arguments = [&*most.to_string()];
            let found: Vec<String> = self.run(&LIST_DEAD, queue_key(queue), &arguments).await?;
            let (jobs, _) = found.as_chunks();
            let dead = jobs
                .iter()
                .map(|[id, name, payload, attempts, error, failed]| DeadJob {
                    id: JobId(id.clone()),
                    name: name.clone(),
                    payload: payload.clone(),
                    attempts: number(attempts),
                    error: error.clone(),
                    failed: to_system(number(failed)),
                });
            Ok(dead.collect())
        })
    }

    fn requeue<'a>(&'a self, queue: &'a str, id: &'a JobId, now: i64) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let arguments = [&*id.0, &now.to_string()];
            self.run(&REQUEUE, queue_key(queue), &arguments).await
        })
    }

    fn discard<'a>(&'a self, queue: &'a str, id: &'a JobId) -> JobFuture<'a, bool> {
        Box::pin(async move { self.run(&DISCARD, queue_key(queue), &[&id.0]).await })
    }

    fn counts<'a>(&'a self, queue: &'a str, now: i64) -> JobFuture<'a, JobCounts> {
        Box::pin(async move {
            let now = now.to_string();
            let (ready, delayed, running, dead) =
                self.run(&COUNTS, queue_key(queue), &[&now]).await?;
            Ok(JobCounts {
                ready,
                delayed,
                running,
                dead,
            })
        })
    }

    fn last_run<'a>(&'a self, schedule: &'a str, now: i64) -> JobFuture<'a, i64> {
        Box::pin(async move {
            let now = now.to_string();
            self.run(&LAST_RUN, schedule_key(schedule), &[&now]).await
        })
    }

    fn begin_run<'a>(&'a self, run: RunClaim<'a>) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let arguments = [
                &run.due.to_string(),
                &run.now.to_string(),
                &run.until.to_string(),
                run.token,
            ];
            let key = schedule_key(run.schedule);
            self.run(&BEGIN_RUN, key, &arguments).await
        })
    }

    fn extend_run<'a>(
        &'a self,
        schedule: &'a str,
        token: &'a str,
        until: i64,
    ) -> JobFuture<'a, bool> {
        Box::pin(async move {
            let arguments = [token, &until.to_string()];
            self.run(&EXTEND_RUN, schedule_key(schedule), &arguments)
                .await
        })
    }
}
