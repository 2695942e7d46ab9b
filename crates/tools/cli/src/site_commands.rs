//! `apus site`: its commands.

use std::time::UNIX_EPOCH;

use apus_server::control::{ControlRequest, MaintenanceChange};

use crate::arguments::{MaintenanceArgument, RunningServer, SiteCommand};
use crate::{CommandError, run_ask};

pub(crate) fn run(command: SiteCommand) -> Result<(), CommandError> {
    match command {
        SiteCommand::List { running, config } => {
            let running = RunningServer {
                source: running.source.or(config),
                ..running
            };
            run_ask(&running, &ControlRequest::Sites)
        }
        SiteCommand::Maintenance(arguments) => {
            let change = match (arguments.change, arguments.until) {
                (MaintenanceArgument::On, until) => MaintenanceChange::On {
                    until: until.map(|end| {
                        let end = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                        end.as_secs()
                    }),
                },
                (_, Some(_)) => {
                    let message = "--until is for maintenance that is turned on";
                    return Err(CommandError::Misused(message.to_owned()));
                }
                (MaintenanceArgument::Off, None) => MaintenanceChange::Off,
                (MaintenanceArgument::Config, None) => MaintenanceChange::Configured,
            };
            let running = RunningServer {
                source: arguments.config,
                socket: None,
                json: arguments.json,
            };
            let request = ControlRequest::Maintenance {
                site: arguments.name,
                change,
            };
            run_ask(&running, &request)
        }
    }
}
