//! The keys of resident PHP workers: `[sites.fastcgi.workers]`.

use super::YEAR;
use crate::keys::{choices, keys};
use crate::size::Megabytes;
use crate::string_type::php::{ScriptPath, VariableName};
use crate::value::{FilePath, Int, Map, OneOrMore, Seconds, Text, Time};

keys! {
    /// Resident workers: each has the application in memory and handles one request after another.
    /// They run in processes of the FastCGI server, each of which they occupy, or in processes of a
    /// `php-cgi` that `php_fastcgi` names.
    pub(crate) struct Workers {
        /// The way in which the application handles requests.
        mode: WorkerMode = WorkerMode::Classic,
        /// The application's script, by its path below the root. By default the `front_controller`, else
        /// `/index.php`.
        script: ScriptPath,
        /// The least number of workers.
        min: Int<0, 10_000> = Int(2),
        /// The most workers. PHP-FPM's `pm.max_children` has to be at least as large, and larger if
        /// it handles other requests too.
        max: Int<1, 10_000> = Int(16),
        /// The approximate number of requests after which a worker is replaced. 0: never.
        max_requests: Int<0, 1_000_000_000> = Int(0),
        /// The memory above which a worker is replaced, in MB. 0: never.
        max_memory: Megabytes<0, 1_000_000> = Megabytes::new(0),
        /// The age after which a worker is replaced, in seconds. 0: never.
        max_age: Seconds<0, YEAR> = Seconds::new(0),
        /// How long PHP may take for one request before its process is killed, in seconds. 0: no
        /// limit.
        execution_timeout: Seconds<0, YEAR> = Seconds::new(60),
        /// How long the application may take to boot, in seconds.
        boot_timeout: Time<YEAR> = Time::new(60),
        /// How long a worker beyond `min` may be idle, in seconds.
        idle_timeout: Time<YEAR> = Time::new(60),
        /// How long a worker may take to stop, in seconds.
        stop_timeout: Time<YEAR> = Time::new(30),
        /// Requests that may wait for a worker. Further ones get 503.
        queue: Int<0, 1_000_000> = Int(1000),
        /// How long a request may wait for a worker, in seconds.
        queue_timeout: Time<YEAR> = Time::new(30),
        /// Tasks that may wait for a worker.
        tasks: Int<0, 10_000_000> = Int(10_000),
        /// Whether the application is under development: a change of its files reloads it, and its
        /// errors are shown to clients.
        development: bool = false,
        /// The reaction to state that a request leaks in PHP, such as an open transaction.
        leaks: LeakAction = LeakAction::Warn,
        /// Arguments of the program that `php_fastcgi` names, as `["-d", "memory_limit=512M"]`.
        arguments: OneOrMore<Text> = OneOrMore::default(),
        /// The environment of that program. It inherits nothing from the server.
        environment: Map<VariableName, Text> = Map::default(),
        /// The user of that program: a name or a number. By default the user of the server. Another
        /// one requires a server that was started as root.
        user: Text,
        /// The group in place of that user's own groups.
        group: Text,
        /// The folder for sockets, which is created if necessary. PHP's user needs access. By
        /// default one in `/run`, or in the folder for temporary files.
        folder: FilePath,
    }
}

choices! {
    /// The way in which an application handles requests.
    pub(crate) WorkerMode: "how the application takes requests" {
        /// Its script, or any other, is included for each request: works with any application.
        Classic = "classic",
        /// Its script calls `frankenphp_handle_request()` in a loop.
        Worker = "worker",
        /// Its script is written with the API of Apus.
        Native = "native",
    }
}

choices! {
    /// The reaction to a leak.
    pub(crate) LeakAction: "what is done about a leak" {
        /// The leak is undone and logged.
        Warn = "warn",
        /// The worker is stopped too.
        Refuse = "refuse",
        /// No reaction.
        Ignore = "ignore",
    }
}
