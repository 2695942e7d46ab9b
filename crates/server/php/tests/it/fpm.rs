//! Workers as processes of an unmodified PHP-FPM.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_client::Address;
use apus_php::plan::{ApplicationMode, Launch, WorkerPoolPlan};
use apus_php::{WorkerError, WorkerPool};
use apus_testkit::{eventually, eventually_async};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;

use crate::harness::{Application, get, run, until};

/// A PHP-FPM for one test.
struct Fpm {
    master: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Fpm {
    fn start(application: &Application, processes: usize) -> Self {
        let socket = application.path("fpm.sock");
        let folder = application.path("");
        let folder = folder.display();
        // Root has to name a user.
        let user = if geteuid().is_root() {
            "user = www-data\ngroup = www-data\n"
        } else {
            ""
        };
        let config = format!(
            "[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n[www]\n{user}\
             listen = {folder}/fpm.sock\npm = static\npm.max_children = {processes}\n\
             catch_workers_output = yes\n"
        );
        fs::write(application.path("fpm.conf"), config).unwrap();
        let master = Command::new("/usr/sbin/php-fpm8.2")
            .arg("--nodaemonize")
            .arg("--fpm-config")
            .arg(application.path("fpm.conf"))
            .spawn()
            .unwrap();
        Self {
            master,
            socket,
            log: application.path("fpm.log"),
        }
    }

    /// Waits until PHP-FPM listens.
    async fn ready(&self) {
        eventually("PHP-FPM listens", || self.starts() > 0).await;
    }

    fn plan(&self, application: &Application) -> WorkerPoolPlan {
        WorkerPoolPlan {
            launch: Launch::FastCgiServer(Address::Unix(Arc::from(self.socket.as_path()))),
            ..application.plan()
        }
    }
}

impl Fpm {
    /// The number of starts in the log. PHP-FPM writes it after its processes are started and before it handles
    /// signals.
    fn starts(&self) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.matches("ready to handle connections").count()
    }

    /// Reloads PHP-FPM as `systemctl reload` does.
    fn reload(&self) {
        let pid = i32::try_from(self.master.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::USR2).unwrap();
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.master.id()) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM);
        }
        let _ = self.master.wait();
    }
}

#[test]
fn workers_live_in_processes_of_php_fpm() {
    let application = Application::new(
        r#"setcookie('seen', 'yes'); session_id('s' . $_GET['n']); echo PHP_SAPI, ' ', posix_getpwuid(posix_geteuid())['name'];"#,
    );
    let fpm = Fpm::start(&application, 3);
    let pool = WorkerPool::start(WorkerPoolPlan {
        min: 2,
        ..fpm.plan(&application)
    })
    .unwrap();
    run(async {
        // PHP-FPM may not listen yet when the first boot is tried.
        until(&pool, |status| status.workers.len() == 2).await;
        for number in 0..20 {
            let response = get(&pool, &format!("/?n={number}")).await.unwrap();
            assert!(response.text.starts_with("fpm-fcgi "), "{}", response.text);
            assert_eq!(
                response.response.headers.get_str("set-cookie"),
                Some("seen=yes")
            );
        }
        let status = pool.status();
        assert!(status.workers.iter().all(|one| one.sapi == "fpm-fcgi"));
        assert_eq!(status.totals.crashes, 0);
        pool.stop().await;
    });
}

#[test]
fn exit_and_fatal_errors_have_a_response_and_the_process_is_reused() {
    let application = Application::new(
        r#"echo 'before '; if (isset($_GET['exit'])) { exit('end'); }
        if (isset($_GET['fatal'])) { nothing_like_it(); } echo 'after';"#,
    );
    let fpm = Fpm::start(&application, 2);
    let pool = WorkerPool::start(fpm.plan(&application)).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        for _ in 0..10 {
            let response = get(&pool, "/?exit=1").await.unwrap();
            assert_eq!(response.text, "before end");
            let response = get(&pool, "/?fatal=1").await.unwrap();
            assert_eq!(response.response.status.as_u16(), 500);
            assert_eq!(get(&pool, "/").await.unwrap().text, "before after");
        }
        assert_eq!(pool.status().totals.crashes, 0);
        pool.stop().await;
    });
}

#[test]
fn a_reload_completes_when_every_process_is_a_worker() {
    let application = Application::new("");
    let version = |number: u32| {
        format!("while (frankenphp_handle_request(function () {{ echo {number}; }})) {{}}")
    };
    application.write("index.php", &version(1));
    let fpm = Fpm::start(&application, 2);
    let pool = WorkerPool::start(WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        min: 2,
        max: 2,
        ..fpm.plan(&application)
    })
    .unwrap();
    run(async {
        until(&pool, |status| status.workers.len() == 2).await;
        assert_eq!(get(&pool, "/").await.unwrap().text, "1");
        application.write("index.php", &version(2));
        pool.reload().await.unwrap();
        assert_eq!(get(&pool, "/").await.unwrap().text, "2");
        until(&pool, |status| status.workers.len() == 2).await;
        pool.stop().await;
    });
}

#[test]
fn killed_processes_are_replaced() {
    let application = Application::new("usleep(1000); echo $_SERVER['REQUEST_URI'];");
    let fpm = Fpm::start(&application, 3);
    let pool = WorkerPool::start(WorkerPoolPlan {
        min: 2,
        max: 2,
        ..fpm.plan(&application)
    })
    .unwrap();
    run(async {
        let client = {
            let pool = pool.clone();
            until(&pool, |status| status.workers.len() == 2).await;
            spawn_local(async move {
                for number in 0..300 {
                    let target = format!("/{number}");
                    assert_eq!(get(&pool, &target).await.unwrap().text, target);
                }
            })
        };
        for _ in 0..3 {
            let status = until(&pool, |status| status.workers.len() == 2).await;
            let pid = status.workers[0].pid;
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            until(&pool, |status| {
                status.workers.iter().all(|one| one.pid != pid)
            })
            .await;
        }
        client.await.unwrap();
        pool.stop().await;
    });
}

#[test]
fn an_unreachable_fastcgi_server_is_reported_and_retried() {
    let application = Application::new("echo 'here';");
    let plan = WorkerPoolPlan {
        launch: Launch::FastCgiServer(Address::Unix(Arc::from(
            application.path("fpm.sock").as_path(),
        ))),
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let error = get(&pool, "/").await.unwrap_err();
        let WorkerError::Boot { message, .. } = &error else {
            panic!("{error}");
        };
        assert!(message.contains("fpm.sock"), "{message}");
        let _fpm = Fpm::start(&application, 2);
        eventually_async("it boots", async || get(&pool, "/").await.is_ok()).await;
        pool.stop().await;
    });
}

/// Resets `count` connections, and forwards later ones to the FastCGI server at `target`.
async fn resetting_proxy(socket: PathBuf, count: usize, target: Option<PathBuf>) {
    let listener = UnixListener::bind(&socket).unwrap();
    for _ in 0..count {
        // A connection that is closed with unread bytes is reset.
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
    }
    let Some(target) = target else { return };
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let target = target.clone();
        spawn_local(async move {
            let mut far = UnixStream::connect(target).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[test]
fn a_boot_that_is_reset_is_retried_while_requests_wait() {
    let application = Application::new("echo 'here';");
    let fpm = Fpm::start(&application, 3);
    let socket = application.path("proxy.sock");
    run(async {
        let proxy = spawn_local(resetting_proxy(socket.clone(), 4, Some(fpm.socket.clone())));
        tokio::task::yield_now().await;
        let pool = WorkerPool::start(WorkerPoolPlan {
            launch: Launch::FastCgiServer(Address::Unix(Arc::from(socket.as_path()))),
            ..application.plan()
        })
        .unwrap();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let pool = pool.clone();
                spawn_local(async move { get(&pool, "/").await.unwrap().text })
            })
            .collect();
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), "here");
        }
        let totals = pool.status().totals;
        assert_eq!((totals.boot_failures, totals.crashes), (0, 0));
        assert!(totals.boots >= 5, "{totals:?}");
        pool.stop().await;
        proxy.abort();
    });
}

#[test]
fn boots_that_are_reset_for_too_long_fail() {
    let application = Application::new("echo 'here';");
    let socket = application.path("proxy.sock");
    run(async {
        let proxy = spawn_local(resetting_proxy(socket.clone(), usize::MAX, None));
        tokio::task::yield_now().await;
        let pool = WorkerPool::start(WorkerPoolPlan {
            launch: Launch::FastCgiServer(Address::Unix(Arc::from(socket.as_path()))),
            boot_limit: Duration::from_millis(500),
            ..application.plan()
        })
        .unwrap();
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::Boot { .. }), "{error}");
        assert!(pool.status().totals.boots >= 3);
        pool.stop().await;
        proxy.abort();
    });
}

#[test]
fn no_request_is_refused_while_php_fpm_reloads() {
    let application = Application::new("usleep(1000); echo $_SERVER['REQUEST_URI'];");
    let fpm = Fpm::start(&application, 4);
    run(async {
        // A boot before PHP-FPM listens would count as a failure of the application.
        fpm.ready().await;
        let pool = WorkerPool::start(WorkerPoolPlan {
            min: 2,
            max: 2,
            ..fpm.plan(&application)
        })
        .unwrap();
        let is_over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (pool, is_over) = (pool.clone(), Rc::clone(&is_over));
                spawn_local(async move {
                    for number in 0.. {
                        if is_over.get() {
                            return;
                        }
                        let target = format!("/{client}/{number}");
                        match get(&pool, &target).await {
                            Ok(response) => assert_eq!(response.text, target),
                            // A request that hits three ending processes is not retried.
                            Err(WorkerError::Crashed) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for round in 0..8 {
            let status = until(&pool, |status| {
                status.workers.len() == 2 && fpm.starts() == round + 1
            })
            .await;
            let before: Vec<_> = status.workers.iter().map(|worker| worker.pid).collect();
            fpm.reload();
            until(&pool, |status| {
                let is_new = |pid: i32| !before.contains(&pid);
                status.workers.len() == 2 && status.workers.iter().all(|one| is_new(one.pid))
            })
            .await;
        }
        is_over.set(true);
        for client in clients {
            client.await.unwrap();
        }
        let status = pool.status();
        assert_eq!(status.totals.boot_failures, 0, "{status:?}");
        pool.stop().await;
    });
}
