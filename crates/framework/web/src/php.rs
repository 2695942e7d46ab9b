//! A service whose responses come from PHP, over FastCGI or from resident workers.
//!
//! Resident workers keep an application in memory between requests. A plan says how PHP is started, and how many workers there are:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use apus::php::plan::{ApplicationMode, Launch, Leaks, Recycle, WorkerPoolPlan};
//! use apus::php::{Php, PoolStartError, WorkerPool};
//! use apus::upstream::Address;
//! use apus::{App, Files};
//!
//! fn app() -> Result<App, PoolStartError> {
//!     let php_fpm = "/run/php/php-fpm.sock";
//!     let workers = WorkerPool::start(WorkerPoolPlan {
//!         name: "shop".into(),
//!         launch: Launch::FastCgiServer(Address::Unix(std::path::Path::new(php_fpm).into())),
//!         mode: ApplicationMode::Classic,
//!         script: "/srv/shop/index.php".into(),
//!         root: "/srv/shop".into(),
//!         min: 2,
//!         max: 8,
//!         recycle: Recycle::default(),
//!         execution_limit: Duration::from_secs(30),
//!         boot_limit: Duration::from_secs(10),
//!         idle_limit: Duration::from_secs(60),
//!         stop_limit: Duration::from_secs(5),
//!         queue: 64,
//!         queue_limit: Duration::from_secs(10),
//!         tasks: 64,
//!         development: false,
//!         leaks: Leaks::Warn,
//!         folder: "/run/shop".into(),
//!     })?;
//!     let php = Php::fpm(php_fpm, "/srv/shop").with_workers(workers);
//!     let files = Files::new("/srv/shop").programs(std::sync::Arc::new(php));
//!     Ok(App::new().mount("/", files))
//! }
//! ```

pub use apus_php::handler::{Php, PhpSettings};
pub use apus_php::{PhpWorkerStatus, PoolStartError, PoolStatus, PoolTotals, WorkerPool, plan};
