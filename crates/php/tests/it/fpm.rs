//! Workers in the processes of an unmodified PHP-FPM.

use std::fs;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use apus_net::client::Address;
use apus_php::plan::{Launch, Mode, PoolPlan};
use apus_php::{Failure, Pool};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::task::spawn_local;

use crate::harness::{Application, get, run, until};

/// A PHP-FPM of its own with so many processes.
struct Fpm {
    master: Child,
    socket: std::path::PathBuf,
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
        Self { master, socket }
    }

    fn plan(&self, application: &Application) -> PoolPlan {
        PoolPlan {
            launch: Launch::Server(Address::Unix(Arc::from(self.socket.as_path()))),
            ..application.plan()
        }
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
