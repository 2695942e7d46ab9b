//! `apus jobs`: runs the commands of the project's own program on its jobs.

use crate::CommandError;
use crate::arguments::{JobsCommand, ProjectQueue, SelectedJobs};
use crate::project_program;

/// Runs a command of `apus jobs`.
pub(crate) fn run(command: JobsCommand) -> Result<(), CommandError> {
    let json = |json: bool| json.then(|| "--json".to_owned());
    let (name, queue, arguments) = match command {
        JobsCommand::Status {
            queue,
            json: is_json,
        } => ("status", queue, vec![json(is_json)]),
        JobsCommand::List {
            queue,
            limit,
            json: is_json,
        } => (
            "list",
            queue,
            vec![Some(format!("--limit={limit}")), json(is_json)],
        ),
        JobsCommand::Retry { queue, jobs } => ("retry", queue, selected(jobs)),
        JobsCommand::Forget { queue, jobs } => ("forget", queue, selected(jobs)),
    };
    let ProjectQueue { program, queue } = queue;
    let queue = queue.map(|name| format!("--queue={name}"));
    let arguments = [Some(name.to_owned()), queue].into_iter().chain(arguments);
    project_program::run(&program, "jobs", arguments.flatten())
}

fn selected(jobs: SelectedJobs) -> Vec<Option<String>> {
    let all = jobs.all.then(|| "--all".to_owned());
    std::iter::once(all)
        .chain(jobs.ids.into_iter().map(Some))
        .collect()
}
