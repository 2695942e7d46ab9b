//! The keys of resident PHP workers.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use apus_php::plan::{ApplicationMode, Launch, Leaks, PhpCgiPlan, Recycle, WorkerPoolPlan};
use apus_upstream::plan;
use rustix::process::geteuid;

use super::PhpResolver;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::raw::php as keys;
use crate::raw::workers::{LeakAction, WorkerMode, Workers};
use crate::resolve::account;
use crate::source::Setting;
use crate::string_type::php::PhpServer;
use crate::value::{Switch, Text};

impl PhpResolver<'_> {
    /// The pool of workers, if there is one; the outer `None` is for errors. `root` is the folder
    /// of the scripts, `front` the front controller.
    pub(super) fn workers(
        &self,
        keys: &keys::Fastcgi,
        root: Option<&Path>,
        front: Option<&str>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Option<WorkerPoolPlan>> {
        let program = self
            .servers
            .0
            .iter()
            .find_map(|server| match &server.value.0 {
                PhpServer::Program(program) => Some(program),
                _ => None,
            });
        let workers = match (&keys.workers.value, program) {
            // Without workers, a program has no use.
            (Switch::Off, Some(_)) if !keys.workers.given => {
                Workers::absent(&self.servers.span, reader)?
            }
            _ => match keys.workers.table(&keys.workers.span, reader) {
                Some(workers) => workers,
                None if program.is_some() => {
                    reader.report(Finding::error(
                        &keys.workers.span,
                        "PHP is a program that is started for workers alone",
                        "expected a table, or the address of a FastCGI server in `php_fastcgi`",
                    ));
                    return None;
                }
                None => return Some(None),
            },
        };
        let span = &keys.workers.span;
        let Some(root) = root else {
            reader.report(Finding::error(
                span,
                "workers without the folder of the application",
                "expected `root`",
            ));
            return None;
        };
        if workers.min.0 > workers.max.0 {
            reader.report(
                Finding::error(
                    &workers.min.span,
                    format!("{} workers at least, and fewer at most", workers.min.0),
                    "expected no more than `max`",
                )
                .related(&workers.max.span, "at most these"),
            );
            return None;
        }
        let launch = match program {
            Some(program) => Launch::PhpCgi(own(program, &workers, reader)),
            None => Launch::FastCgiServer(self.only_server(span, reader)?),
        };
        let at = |key: &Option<Setting<Text>>| {
            key.as_ref()
                .map_or_else(|| span.clone(), |key| key.span.clone())
        };
        for (name, given, at) in [
            (
                "arguments",
                workers.arguments.given,
                workers.arguments.span.clone(),
            ),
            (
                "environment",
                workers.environment.given,
                workers.environment.span.clone(),
            ),
            ("user", workers.user.is_some(), at(&workers.user)),
            ("group", workers.group.is_some(), at(&workers.group)),
        ] {
            if given && program.is_none() {
                reader.report(Finding::error(
                    &at,
                    format!("`{name}` has no effect"),
                    "PHP is not started here, but runs already",
                ));
                return None;
            }
        }
        let script = workers.script.as_ref().map(|path| path.0.as_str());
        let script = script.or(front).unwrap_or("/index.php");
        let suffix = self.pattern.map(|pattern| format!(" {}", pattern.value.0));
        Some(Some(WorkerPoolPlan {
            name: [self.groups.site_name(), &suffix.unwrap_or_default()]
                .concat()
                .into(),
            launch,
            mode: match *workers.mode {
                WorkerMode::Classic => ApplicationMode::Classic,
                WorkerMode::Worker => ApplicationMode::Worker,
                WorkerMode::Native => ApplicationMode::Native,
            },
            script: root.join(script.trim_start_matches('/')),
            root: root.to_owned(),
            min: workers.min.size(),
            max: workers.max.size(),
            recycle: Recycle {
                requests: workers.max_requests.0,
                memory: workers.max_memory.0,
                age: workers.max_age.0,
            },
            execution_limit: workers.execution_timeout.0,
            boot_limit: workers.boot_timeout.0,
            idle_limit: workers.idle_timeout.0,
            stop_limit: workers.stop_timeout.0,
            queue: workers.queue.size(),
            queue_limit: workers.queue_timeout.0,
            tasks: workers.tasks.size(),
            development: *workers.development,
            leaks: match *workers.leaks {
                LeakAction::Warn => Leaks::Warn,
                LeakAction::Refuse => Leaks::Refuse,
                LeakAction::Ignore => Leaks::Ignore,
            },
            folder: match &workers.folder {
                Some(folder) => folder.value.0.clone(),
                None => default_folder(),
            },
        }))
    }

    /// The FastCGI server whose processes become workers.
    fn only_server(
        &self,
        span: &crate::source::SourceSpan,
        reader: &mut ConfigReader<'_>,
    ) -> Option<apus_client::Address> {
        if let [Setting { value, .. }] = self.servers.0.as_slice()
            && let PhpServer::Node(address) = &value.0
            && let plan::NodeTarget::Address(address) = &address.target
        {
            return Some(address.clone());
        }
        reader.report(
            Finding::error(
                span,
                "workers in more than one FastCGI server",
                "expected one address in `php_fastcgi`",
            )
            .related(&self.servers.span, "PHP is here"),
        );
        None
    }
}

fn own(program: &Path, workers: &Workers, reader: &mut ConfigReader<'_>) -> PhpCgiPlan {
    PhpCgiPlan {
        account: account(workers.user.as_ref(), workers.group.as_ref(), reader),
        program: program.to_owned(),
        arguments: workers
            .arguments
            .0
            .iter()
            .map(|argument| argument.0.clone())
            .collect(),
        environment: workers
            .environment
            .0
            .iter()
            .map(|(name, value)| (name.0.clone(), value.0.clone()))
            .collect(),
    }
}

/// The default folder. It is not the folder of the control socket, which other users cannot enter,
/// because PHP may run as another user.
fn default_folder() -> PathBuf {
    let user = geteuid();
    let folder = default_pool_folder(user.as_raw());
    let is_ours = |found: Metadata| found.uid() == user.as_raw();
    if user.is_root() || fs::metadata(&folder).is_ok_and(is_ours) {
        folder
    } else {
        std::env::temp_dir().join(format!("apus-php-{}", user.as_raw()))
    }
}

/// The folder for sockets of a server that runs as this user, if root created it.
pub fn default_pool_folder(user: u32) -> PathBuf {
    match user {
        0 => "/run/apus-php".into(),
        user => format!("/run/apus-php-{user}").into(),
    }
}
