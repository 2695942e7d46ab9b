//! Access logs: their places and formats.

use apus_access_log::{
    AccessLogSettings, HiddenParameters, LogFormat, LogReceiver, LogSampling, SyslogFormat,
    SyslogLabel,
};
use apus_conditions::FactStage;

use super::conditions::Conditions;
use super::templates;
use crate::diagnostics::Finding;
use crate::files::is_no_folder;
use crate::keys::{ConfigReader, shown};
use crate::plan::AccessLogPlan;
use crate::raw::access_log::{AccessLog, AccessLogChoice, Hide, Journald, SyslogForm};
use crate::source::{Setting, SourceSpan};
use crate::value::FilePath;

/// The access log of the server or of a site; `None` if there is none, or after an error was reported.
pub(super) fn resolve(
    raw: &Setting<AccessLogChoice>,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<AccessLogPlan> {
    let table = match &raw.value {
        AccessLogChoice::Off => return None,
        AccessLogChoice::Path(path) => {
            check_folder(path, &raw.span, reader)?;
            return Some(AccessLogPlan {
                settings: AccessLogSettings::file(&path.0, LogFormat::combined()),
                when: None,
            });
        }
        AccessLogChoice::Table(table) => table,
    };
    let format = match table.format.0.as_str() {
        "combined" => LogFormat::combined(),
        "json" => LogFormat::json(),
        text => template(text, &table.format.span, reader)?,
    };
    let receivers = receivers(table, reader)?;
    check_destinations(table, (&receivers, &raw.span), reader)?;
    if let Some(path) = &table.path {
        check_folder(path, &path.span, reader)?;
    }
    let when = match &table.when {
        Some(condition) => Some(conditions.compile(condition, FactStage::Response, reader)?),
        None => None,
    };
    let label = SyslogLabel {
        facility: table.facility.value.number(),
        app_name: table.app_name.value.0.as_str().into(),
        format: table.syslog_format.as_ref().map(|form| match form.value {
            SyslogForm::Rfc5424 => SyslogFormat::Rfc5424,
            SyslogForm::Rfc3164 => SyslogFormat::Rfc3164,
        }),
    };
    Some(AccessLogPlan {
        settings: AccessLogSettings {
            file: table.path.as_ref().map(|path| path.value.0.clone()),
            receivers,
            label,
            format,
            sampling: sampling(table, reader)?,
            hidden: hidden(table),
        },
        when,
    })
}

fn receivers(table: &AccessLog, reader: &mut ConfigReader<'_>) -> Option<Vec<LogReceiver>> {
    let mut receivers = Vec::new();
    for address in &table.syslog.value.0 {
        let receiver = LogReceiver::Syslog(address.value.0.clone());
        if receivers.contains(&receiver) {
            reader.report(Finding::error(
                &address.span,
                format!("{receiver} stands here twice: it would get each line twice"),
                "expected each receiver once",
            ));
            return None;
        }
        receivers.push(receiver);
    }
    match table.journald.as_ref().map(|journald| &journald.value) {
        None | Some(Journald::Off) => {}
        Some(Journald::On) => receivers.push(LogReceiver::journal()),
        Some(Journald::Socket(path)) => receivers.push(LogReceiver::Journal(path.0.clone())),
    }
    Some(receivers)
}

fn sampling(table: &AccessLog, reader: &mut ConfigReader<'_>) -> Option<Option<LogSampling>> {
    let rate = table.sample.value.0;
    let slow = table.sample_slow.as_ref();
    if rate < 1.0 {
        let slow = slow.map(|slow| slow.value.0);
        return Some(Some(LogSampling { rate, slow }));
    }
    if let Some(slow) = slow {
        reader.report(Finding::error(
            &slow.span,
            "`sample_slow` has no effect on a log that has all requests",
            "expected `sample` below 1 beside it",
        ));
        return None;
    }
    Some(None)
}

fn hidden(table: &AccessLog) -> HiddenParameters {
    match table.hide.as_ref().map(|hide| &hide.value) {
        None => HiddenParameters::default(),
        Some(Hide::Off) => HiddenParameters::none(),
        Some(Hide::Names(names)) => {
            let names = names.0.iter().map(|name| name.value.0.as_str());
            names.fold(HiddenParameters::default(), HiddenParameters::and)
        }
    }
}

/// A log has a place, and no key without an effect.
fn check_destinations(
    table: &AccessLog,
    (receivers, span): (&[LogReceiver], &SourceSpan),
    reader: &mut ConfigReader<'_>,
) -> Option<()> {
    if table.path.is_none() && receivers.is_empty() {
        if reader.has_wrong(span, &["path", "syslog", "journald"]) {
            return None;
        }
        reader.report(Finding::error(
            span,
            "the access log goes nowhere",
            "expected at least one of `path`, `syslog` and `journald`",
        ));
        return None;
    }
    let has_syslog = !table.syslog.value.0.is_empty();
    let form = table.syslog_format.as_ref().map(|form| &form.span);
    let facility = table.facility.given.then_some(&table.facility.span);
    let app_name = table.app_name.given.then_some(&table.app_name.span);
    for (key, span, has_effect, needs) in [
        ("syslog_format", form, has_syslog, "`syslog`"),
        (
            "facility",
            facility,
            !receivers.is_empty(),
            "`syslog` or `journald`",
        ),
        (
            "app_name",
            app_name,
            !receivers.is_empty(),
            "`syslog` or `journald`",
        ),
    ] {
        if let Some(span) = span.filter(|_| !has_effect) {
            reader.report(Finding::error(
                span,
                format!("`{key}` has no effect on a log without {needs}"),
                format!("expected {needs} beside it"),
            ));
            return None;
        }
    }
    Some(())
}

fn check_folder(path: &FilePath, span: &SourceSpan, reader: &mut ConfigReader<'_>) -> Option<()> {
    let Some(folder) = path.0.parent().filter(|folder| is_no_folder(folder)) else {
        return Some(());
    };
    let finding = Finding::error(
        span,
        format!("there is no folder {} for the access log", folder.display()),
        "expected a path in a folder that exists",
    );
    reader.report(finding.help("make the folder; the file in it is made when it is needed"));
    None
}

fn template(text: &str, span: &SourceSpan, reader: &mut ConfigReader<'_>) -> Option<LogFormat> {
    if !text.contains('$') {
        reader.report(Finding::error(
            span,
            format!("`{}` is not a format of access logs", shown(text)),
            "expected `combined`, `json`, or a line with variables as $remote_addr",
        ));
        return None;
    }
    match LogFormat::template(text) {
        Ok(format) => {
            templates::check_maps(format.maps(), span, reader);
            templates::check_variables(format.variables_of_rules(), span, reader);
            Some(format)
        }
        Err(error) => {
            reader.report(Finding::error(span, error.to_string(), "in this format"));
            None
        }
    }
}
