//! The keys of PHP that stays in memory: `[sites.fastcgi.workers]`.

use super::YEAR;
use crate::keys::{choices, keys};
use crate::string_type::php::{ScriptPath, VariableName};
use crate::value::{FilePath, Int, Map, Megabytes, OneOrMore, Seconds, Text, Time};

keys! {
    /// Workers that have the application in memory and answer request after request. They run in
    /// processes of the FastCGI server, each of which they occupy, or in those of a `php-cgi` that
    /// `php_fastcgi` names.
    pub(crate) struct Workers {
        /// How the application takes requests.
        mode: WorkerMode = WorkerMode::Classic,
        /// The application's script, by its path below the root. By default the `front_controller`, else
        /// `/index.php`.
        script: ScriptPath,
        /// Workers that are there even if nobody asks.
        min: Int<0, 10_000> = Int(2),
        /// Workers at most. PHP-FPM's `pm.max_children` has to be as large, and larger if it answers other
        /// requests, too.
        max: Int<1, 10_000> = Int(16),
        /// After about how many requests a worker makes room for a new one. 0: never.
        max_requests: Int<0, 1_000_000_000> = Int(0),
        /// When a worker makes room that holds more memory, in MB. 0: never.
        max_memory: Megabytes<0, 1_000_000> = Megabytes::new(0),
        /// When a worker makes room that is older, in seconds. 0: never.
        max_age: Seconds<0, YEAR> = Seconds::new(0),
        /// How long PHP may work for one request before its process is killed, in seconds. 0: for ever.
        execution_timeout: Seconds<0, YEAR> = Seconds::new(60),
        /// How long the application may take to boot, in seconds.
        boot_timeout: Time<YEAR> = Time::new(60),
        /// How long a worker more than `min` may be without work, in seconds.
        idle_timeout: Time<YEAR> = Time::new(60),
        /// How long a worker may take to end when it is told to, in seconds.
        stop_timeout: Time<YEAR> = Time::new(30),
        /// Requests that may wait for a worker. Others are answered with 503.
        queue: Int<0, 1_000_000> = Int(1000),
        /// How long a request may wait for a worker, in seconds.
        queue_timeout: Time<YEAR> = Time::new(30),
        /// Tasks that may wait for a worker.
        tasks: Int<0, 10_000_000> = Int(10_000),
        /// Whether people are at work on the application: a change of its files loads it anew, and its
        /// errors are shown to everybody.
        development: bool = false,
        /// What is done about what a request leaves behind in PHP, such as an open transaction.
        leaks: LeakAction = LeakAction::Warn,
        /// Arguments of the program that `php_fastcgi` names, as `["-d", "memory_limit=512M"]`.
        arguments: OneOrMore<Text> = OneOrMore::default(),
        /// The environment of that program. It gets nothing of the server's own.
        environment: Map<VariableName, Text> = Map::default(),
        /// The user that program runs as: a name or a number. By default the one that the server runs as.
        /// Another takes a server that was started as root.
        user: Text,
        /// The group in place of that user's own groups.
        group: Text,
        /// The folder for sockets, which is made if need be. PHP's user has to reach it. By default one in
        /// `/run`, or in the folder for temporary files.
        folder: FilePath,
    }
}

choices! {
    /// How an application takes requests.
    pub(crate) WorkerMode: "how the application takes requests" {
        /// Its script is included for each request, and so are other programs: any application.
        Classic = "classic",
        /// Its script calls `frankenphp_handle_request()` in a loop.
        Worker = "worker",
        /// Its script is written with the API of Apus.
        Native = "native",
    }
}

choices! {
    /// What is done about what a request leaves behind.
    pub(crate) LeakAction: "what is done about a leak" {
        /// It is undone and logged.
        Warn = "warn",
        /// The worker is ended, too.
        Refuse = "refuse",
        /// Nothing.
        Ignore = "ignore",
    }
}
