//! Reading configurations of PHP that stays in memory.

use std::time::Duration;

use apus_client::Address;
use apus_php::plan::{ApplicationMode, Launch, Leaks, WorkerPoolPlan};

use crate::documents::{findings, folder, parse_in};

const SITE: &str = "[[sites]]\nname = \"app\"\nlisten = 80\nroot = \"public\"\n";

fn pools(text: &str) -> Vec<WorkerPoolPlan> {
    let folder = folder();
    std::fs::write(folder.path().join("public/index.php"), "<?php").unwrap();
    match parse_in(folder.path(), &format!("{SITE}{text}")) {
        Ok(plan) => plan.pools().cloned().collect(),
        Err(mistakes) => panic!("{}", mistakes.render(false)),
    }
}

#[test]
fn workers_are_on_if_configured_and_run_in_the_only_server() {
    assert!(pools("php_fastcgi = \"[::1]:9\"\n").is_empty());
    let [pool] = pools("php_fastcgi = \"[::1]:9\"\nfastcgi.workers = true\n")
        .try_into()
        .unwrap();
    assert_eq!(&*pool.name, "app");
    assert!(matches!(
        &pool.launch,
        Launch::FastCgiServer(Address::Ip(_))
    ));
    assert_eq!(
        (pool.mode, pool.leaks),
        (ApplicationMode::Classic, Leaks::Warn)
    );
    assert!(pool.script.ends_with("public/index.php"));
    assert_eq!((pool.min, pool.max, pool.development), (2, 16, false));
    assert_eq!(pool.execution_limit, Duration::from_secs(60));
}

#[test]
fn a_program_is_started_for_workers_without_further_keys() {
    let [pool] = pools("php_fastcgi = \"/usr/bin/php-cgi8.2\"\n")
        .try_into()
        .unwrap();
    let Launch::PhpCgi(own) = &pool.launch else {
        panic!("{pool:?}");
    };
    assert_eq!(own.program.to_str(), Some("/usr/bin/php-cgi8.2"));
    let [pool] = pools(
        "php_fastcgi = \"/usr/bin/php-cgi8.2\"\n[sites.fastcgi.workers]\nmode = \"worker\"\n\
         script = \"/worker.php\"\narguments = [\"-d\", \"x=1\"]\nenvironment = { A = \"b\" }\n",
    )
    .try_into()
    .unwrap();
    assert_eq!(pool.mode, ApplicationMode::Worker);
    assert!(pool.script.ends_with("public/worker.php"));
    let Launch::PhpCgi(own) = &pool.launch else {
        panic!("{pool:?}");
    };
    assert_eq!(own.arguments, ["-d", "x=1"]);
    assert_eq!(own.environment, [("A".to_owned(), "b".to_owned())]);
}

#[test]
fn reports_mistakes_about_workers_with_their_position() {
    for (text, expected) in [
        (
            "php_fastcgi = \"[::1]:9\"\nfastcgi.workers = { min = 9, max = 3 }\n",
            "6:27 9 workers at least, and fewer at most",
        ),
        (
            "php_fastcgi = [\"[::1]:9\", \"[::1]:8\"]\nfastcgi.workers = true\n",
            "6:19 workers in more than one FastCGI server",
        ),
        (
            "php_fastcgi = \"/usr/bin/php-cgi\"\nfastcgi.workers = false\n",
            "6:19 PHP is a program that is started for workers alone",
        ),
        (
            "php_fastcgi = \"/usr/bin/php-cgi\"\nfastcgi.pool_size = 9\n",
            "6:21 `pool_size` has no effect; PHP is a program here, whose workers run the scripts",
        ),
        (
            "php_fastcgi = \"/usr/bin/php-cgi\"\nfastcgi.queue.max = 9\n",
            "6:9 `queue` has no effect",
        ),
        (
            "php_fastcgi = \"/usr/bin/php-cgi\"\n[[sites.locations]]\npath = \"/api/\"\n\
             fastcgi.read_timeout = 9\nhandler = \"fastcgi\"\n",
            "8:24 `read_timeout` has no effect",
        ),
        (
            "php_fastcgi = [\"/usr/bin/php-cgi\", \"[::1]:9\"]\n",
            "5:16 a program, `/usr/bin/php-cgi`, among addresses",
        ),
        (
            "php_fastcgi = \"[::1]:9\"\nfastcgi.workers.arguments = [\"-n\"]\n",
            "6:29 `arguments` has no effect",
        ),
        (
            "php_fastcgi = \"[::1]:9\"\nfastcgi.workers.mode = \"fast\"\n",
            "6:24 `fast`",
        ),
    ] {
        let found = findings(&format!("{SITE}{text}"));
        assert!(
            matches!(found.as_slice(), [found] if found.starts_with(expected)),
            "{text}\n{expected}\n{found:#?}"
        );
    }
}

#[test]
fn keys_about_servers_apply_if_a_location_has_a_server_beside_the_program() {
    let text = "php_fastcgi = \"/usr/bin/php-cgi\"\nfastcgi.pool_size = 9\n\
                [[sites.locations]]\npath = \"/old/\"\nphp_fastcgi = \"[::1]:9\"\n";
    assert_eq!(pools(text).len(), 1);
}
