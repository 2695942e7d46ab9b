//! Workers in the processes of an unmodified PHP-FPM.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_net::client::Address;
use apus_php::plan::{Launch, Mode, PoolPlan};
use apus_php::{Failure, Pool, PoolStatus};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;

use crate::harness::{Application, get, run, until};

/// A PHP-FPM of its own with so many processes.
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
        // The system's user for web servers, where we may choose.
        let user = match geteuid().is_root() {
            true => "user = www-data\ngroup = www-data\n",
            false => "",
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

    fn plan(&self, application: &Application) -> PoolPlan {
        PoolPlan {
            launch: Launch::Server(Address::Unix(Arc::from(self.socket.as_path()))),
            ..application.plan()
        }
    }
}

impl Fpm {
    /// How many times it began: its processes are there before it handles signals.
    fn starts(&self) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.matches("ready to handle connections").count()
    }

    /// As `systemctl reload` has it.
    fn begin_anew(&self) {
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
    let pool = Pool::start(PoolPlan {
        min: 2,
        ..fpm.plan(&application)
    })
    .unwrap();
    run(async {
        // It may take a moment until PHP-FPM listens.
        until(&pool, |status| status.workers.len() == 2).await;
        for number in 0..20 {
            let answer = get(&pool, &format!("/?n={number}")).await.unwrap();
            assert!(answer.text.starts_with("fpm-fcgi "), "{}", answer.text);
            assert_eq!(
                answer.response.headers.get_str("set-cookie"),
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
fn exit_and_fatal_errors_are_answered_and_the_process_comes_back() {
    let application = Application::new(
        r#"echo 'before '; if (isset($_GET['exit'])) { exit('end'); }
        if (isset($_GET['fatal'])) { nothing_like_it(); } echo 'after';"#,
    );
    let fpm = Fpm::start(&application, 2);
    let pool = Pool::start(fpm.plan(&application)).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        for _ in 0..10 {
            let answer = get(&pool, "/?exit=1").await.unwrap();
            assert_eq!(answer.text, "before end");
            let answer = get(&pool, "/?fatal=1").await.unwrap();
            assert_eq!(answer.response.status.as_u16(), 500);
            assert_eq!(get(&pool, "/").await.unwrap().text, "before after");
        }
        assert_eq!(pool.status().totals.crashes, 0);
        pool.stop().await;
    });
}

#[test]
fn a_reload_finds_room_where_every_process_is_a_worker() {
    let application = Application::new("");
    let version = |number: u32| {
        format!("while (frankenphp_handle_request(function () {{ echo {number}; }})) {{}}")
    };
    application.write("index.php", &version(1));
    let fpm = Fpm::start(&application, 2);
    let pool = Pool::start(PoolPlan {
        mode: Mode::Worker,
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
fn processes_that_are_killed_are_replaced() {
    let application = Application::new("usleep(1000); echo $_SERVER['REQUEST_URI'];");
    let fpm = Fpm::start(&application, 3);
    let pool = Pool::start(PoolPlan {
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
fn a_fastcgi_server_that_is_not_there_is_told_and_found_later() {
    let application = Application::new("echo 'here';");
    let plan = PoolPlan {
        launch: Launch::Server(Address::Unix(Arc::from(
            application.path("fpm.sock").as_path(),
        ))),
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let failure = get(&pool, "/").await.unwrap_err();
        let Failure::Boot { message, .. } = &failure else {
            panic!("{failure}");
        };
        assert!(message.contains("fpm.sock"), "{message}");
        let _fpm = Fpm::start(&application, 2);
        while get(&pool, "/").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        pool.stop().await;
    });
}

/// Resets connections to a FastCGI server so many times, and is then the way to one that is there.
async fn resetting(socket: PathBuf, times: usize, then: Option<PathBuf>) {
    let listener = UnixListener::bind(&socket).unwrap();
    for _ in 0..times {
        // Closed with bytes that nobody read, it is reset.
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
    }
    let Some(then) = then else { return };
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let then = then.clone();
        spawn_local(async move {
            let mut far = UnixStream::connect(then).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[test]
fn a_boot_that_is_reset_is_tried_again_and_who_waits_goes_on_waiting() {
    let application = Application::new("echo 'here';");
    let fpm = Fpm::start(&application, 3);
    let socket = application.path("way.sock");
    run(async {
        let way = spawn_local(resetting(socket.clone(), 4, Some(fpm.socket.clone())));
        tokio::task::yield_now().await;
        let pool = Pool::start(PoolPlan {
            launch: Launch::Server(Address::Unix(Arc::from(socket.as_path()))),
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
        way.abort();
    });
}

#[test]
fn boots_that_are_reset_for_long_are_a_failure() {
    let application = Application::new("echo 'here';");
    let socket = application.path("way.sock");
    run(async {
        let way = spawn_local(resetting(socket.clone(), usize::MAX, None));
        tokio::task::yield_now().await;
        let pool = Pool::start(PoolPlan {
            launch: Launch::Server(Address::Unix(Arc::from(socket.as_path()))),
            boot_limit: Duration::from_millis(500),
            ..application.plan()
        })
        .unwrap();
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::Boot { .. }), "{failure}");
        assert!(pool.status().totals.boots >= 3);
        pool.stop().await;
        way.abort();
    });
}

#[test]
fn no_request_is_refused_while_php_fpm_begins_anew() {
    let application = Application::new("usleep(1000); echo $_SERVER['REQUEST_URI'];");
    let fpm = Fpm::start(&application, 4);
    let pool = Pool::start(PoolPlan {
        min: 2,
        max: 2,
        ..fpm.plan(&application)
    })
    .unwrap();
    run(async {
        // It may take a moment until PHP-FPM listens.
        let failures = |status: &PoolStatus| status.totals.boot_failures;
        let at_start = failures(&until(&pool, |status| status.workers.len() == 2).await);
        let over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (pool, over) = (pool.clone(), Rc::clone(&over));
                spawn_local(async move {
                    for number in 0.. {
                        if over.get() {
                            return;
                        }
                        let target = format!("/{client}/{number}");
                        match get(&pool, &target).await {
                            Ok(answer) => assert_eq!(answer.text, target),
                            // Three processes may end under one request, which is not asked again.
                            Err(Failure::Crashed) => {}
                            Err(failure) => panic!("{failure}"),
                        }
                    }
                })
            })
            .collect();
        for turn in 0..8 {
            let status = until(&pool, |status| {
                status.workers.len() == 2 && fpm.starts() == turn + 1
            })
            .await;
            let before: Vec<_> = status.workers.iter().map(|worker| worker.pid).collect();
            fpm.begin_anew();
            until(&pool, |status| {
                let is_new = |pid: i32| !before.contains(&pid);
                status.workers.len() == 2 && status.workers.iter().all(|one| is_new(one.pid))
            })
            .await;
        }
        over.set(true);
        for client in clients {
            client.await.unwrap();
        }
        let status = pool.status();
        assert_eq!(failures(&status), at_start, "{status:?}");
        pool.stop().await;
    });
}
