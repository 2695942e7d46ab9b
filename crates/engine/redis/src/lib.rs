//! Redis or Valkey by its address, with a connection for each worker.
//!
//! The crate redis is exported as [`redis`](mod@redis).
//!
//! # Decisions
//!
//! - **A worker has one connection** for all that it does with one server of Redis: sessions, rooms, jobs and cached
//!   values share it. It is opened anew when it broke.
//! - **What is stored stays with its crate.** Sessions compare versions and remove visitors first, cached values have two lifetimes
//!   and are removed by a prefix, jobs are claimed and settled, certificates need locks. A type with all of these operations
//!   would be implemented once for each of them, so that the stores share this connection, its repetitions and how a script is called.
//!
//! # Tests
//!
//! In the crates that use it: `crates/server/websocket`, `crates/framework/jobs`, `crates/framework/value-cache`.
//! apus-testkit starts Redis for them.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{Client, ConnectionAddr, FromRedisValue, Pipeline, Script};
use apus_transport::per_worker;

pub use ::redis;
pub use ::redis::RedisError;

/// A server of Redis 6.2 or later, or of Valkey. It is cheap to clone, and connects when it is needed first.
///
/// Each worker has one connection, which is reopened if it breaks.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<RedisServer>,
}

struct RedisServer {
    client: Client,
}

impl Redis {
    /// The server at an address, as `redis://127.0.0.1/`, `rediss://user:password@host:6380/1` (TLS) or
    /// `redis+unix:///run/redis.sock`.
    ///
    /// # Errors
    /// The address is not valid.
    pub fn open(address: &str) -> Result<Self, RedisError> {
        Ok(Self {
            shared: Arc::new(RedisServer {
                client: Client::open(address)?,
            }),
        })
    }

    /// The client of the crate redis, for connections of one's own, as for a subscription.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// This worker's connection.
    ///
    /// # Errors
    /// Its settings are not valid.
    pub fn connection(&self) -> Result<ConnectionManager, RedisError> {
        per_worker::get_or_insert(&self.shared, || {
            // Fails early, since a client waits for the response.
            let config = ConnectionManagerConfig::new()
                .set_number_of_retries(1)
                .set_max_delay(Duration::from_millis(100));
            self.shared.client.get_connection_manager_lazy(config)
        })
    }

    /// Sends commands that may be repeated: if the connection broke, they are sent once more.
    ///
    /// # Errors
    /// The server cannot be reached, or rejects a command.
    pub async fn query<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, RedisError> {
        let mut connection = self.connection()?;
        match pipeline.query_async(&mut connection).await {
            Err(error) if is_broken(&error) => pipeline.query_async(&mut connection).await,
            result => result,
        }
    }

    /// Runs a script with its keys and arguments. It may be repeated, as [`query`](Self::query).
    ///
    /// # Errors
    /// The server cannot be reached, or the script fails.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<T, RedisError> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for argument in arguments {
            call.arg(*argument);
        }
        let mut connection = self.connection()?;
        match call.invoke_async(&mut connection).await {
            Err(error) if is_broken(&error) => call.invoke_async(&mut connection).await,
            result => result,
        }
    }

    /// Checks that the server responds, for a check of the readiness.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), RedisError> {
        let mut pipeline = ::redis::pipe();
        pipeline.cmd("PING").ignore();
        self.query(&pipeline).await
    }
}

fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address without the password.
        let shown: &ConnectionAddr = self.shared.client.get_connection_info().addr();
        f.debug_tuple("Redis").field(&shown.to_string()).finish()
    }
}
