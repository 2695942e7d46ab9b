//! What is compared: servers, the load on each, and for how long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{BenchError, LoadLimit, LoadPlan};
use tempfile::TempDir;

use crate::comparison::error::UnrepeatableReport;
use crate::comparison::figures::{ComparisonGoal, PublishedFigures};
use crate::comparison::helper::ComparisonHelper;
use crate::comparison::server::ComparedServer;

/// A file of comparisons: one, or several cases with the same servers.
#[derive(Debug)]
pub struct ComparisonFile {
    pub(crate) title: String,
    pub(crate) note: Option<String>,
    /// The names of its values.
    pub(crate) value_names: Vec<String>,
    /// A folder of this comparison alone.
    pub(crate) work: TempDir,
    /// Texts that are written into it.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// What is run before anything is started.
    pub(crate) prepare: Vec<Vec<String>>,
    pub(crate) helpers: Vec<ComparisonHelper>,
    pub(crate) has_cases: bool,
    pub(crate) cases: Vec<ComparisonPlan>,
}

/// What is changed of a file.
#[derive(Clone, Debug, Default)]
pub struct ComparisonChanges {
    /// Values of its table `values`; names that it does not have are ignored.
    pub values: BTreeMap<String, String>,
    /// Only these of its cases, if there are any.
    pub cases: Vec<String>,
    /// Only these of its servers, if there are any.
    pub servers: Vec<String>,
    /// So many rounds of each case.
    pub rounds: Option<usize>,
    /// The time of load in a round, also in place of a number of requests.
    pub duration: Option<Duration>,
}

/// Servers, the load on each, and how long they are compared.
#[derive(Clone, Debug)]
pub(crate) struct ComparisonPlan {
    /// The file.
    pub(crate) text: Arc<str>,
    pub(crate) folder: PathBuf,
    /// Values of the file that were replaced.
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) title: String,
    pub(crate) case: Option<String>,
    pub(crate) note: Option<String>,
    /// The size of packets over the loopback interface, if it is changed.
    pub(crate) loopback_mtu: Option<u32>,
    pub(crate) servers: Vec<ComparedServer>,
    /// The load on each server.
    pub(crate) loads: Vec<LoadPlan>,
    /// The connections that are left alone after a response each, if that is the load.
    pub(crate) idle: Option<usize>,
    /// A scenario that each server has to pass before it is measured.
    pub(crate) check: Option<PathBuf>,
    /// The responses per second that the origin can do.
    pub(crate) limit: Option<f64>,
    /// The server that the others are compared to.
    pub(crate) reference: usize,
    /// The fewest and the most rounds.
    pub(crate) rounds: (usize, usize),
    /// No round begins that would end after this time.
    pub(crate) budget: Duration,
    /// The comparison ends when the bounds of each ratio are this close to it.
    pub(crate) precision: f64,
    /// Whether each round has new processes.
    pub(crate) restarts: bool,
    /// Whether all servers have to send the same response.
    pub(crate) expects_same_responses: bool,
    /// Of the order of the servers in each round.
    pub(crate) seed: u64,
    pub(crate) published: Vec<PublishedFigures>,
    /// Figures that tables show in any case.
    pub(crate) shown: Vec<&'static str>,
    pub(crate) goals: Vec<ComparisonGoal>,
    /// Why servers are missing.
    pub(crate) left_out: Vec<String>,
}

impl ComparisonFile {
    /// The files of a report, to repeat it.
    ///
    /// # Errors
    /// The text is no report of a comparison, or the files that it names have changed.
    pub fn of_report(json: &str) -> Result<Vec<Self>, BenchError> {
        let whole: serde_json::Value = serde_json::from_str(json)
            .map_err(|error| BenchError::plan(UnrepeatableReport::Json(error)))?;
        let one = std::slice::from_ref(&whole);
        let files = match whole.get("files").and_then(serde_json::Value::as_array) {
            Some(files) => files.iter().map(|file| {
                let reports = file.get("reports").and_then(serde_json::Value::as_array);
                reports.map_or(&[][..], Vec::as_slice)
            }),
            None => return Ok(vec![Self::repeated(one).map_err(BenchError::plan)?]),
        };
        let files = files.filter(|reports| !reports.is_empty());
        files
            .map(|reports| Self::repeated(reports).map_err(BenchError::plan))
            .collect()
    }

    /// The file with the cases of reports.
    fn repeated(reports: &[serde_json::Value]) -> Result<Self, UnrepeatableReport> {
        let Some(report) = reports.first() else {
            return Err(UnrepeatableReport::NoReports);
        };
        let text = |name: &'static str| {
            report
                .get(name)
                .and_then(serde_json::Value::as_str)
                .ok_or(UnrepeatableReport::Missing(name))
        };
        let values = report.get("values").cloned().unwrap_or_default();
        let cases = reports
            .iter()
            .filter_map(|report| report.get("case")?.as_str());
        let changes = ComparisonChanges {
            values: serde_json::from_value(values).unwrap_or_default(),
            cases: cases.map(str::to_owned).collect(),
            ..ComparisonChanges::default()
        };
        let folder = Path::new(text("folder")?);
        Ok(Self::parse(text("configuration")?, folder, &changes)?)
    }

    /// Allows loads on hosts that are not this machine.
    pub fn allow_others(&mut self) {
        for load in self.cases.iter_mut().flat_map(|case| &mut case.loads) {
            load.may_load_others = true;
        }
    }

    /// Whether the file has a value with this name.
    pub fn has_value(&self, name: &str) -> bool {
        self.value_names.iter().any(|known| known == name)
    }

    /// How many cases there are.
    pub fn case_count(&self) -> usize {
        self.cases.len()
    }

    /// Whether the file names its cases.
    pub fn has_cases(&self) -> bool {
        self.has_cases
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        let case = self.cases.first();
        case.map_or(Path::new("."), |case| case.folder.as_path())
    }
}

impl ComparisonPlan {
    pub(crate) fn seconds_of_load(&self) -> f64 {
        match self.loads.first().map(|load| load.limit) {
            Some(LoadLimit::Time(time)) => time.as_secs_f64(),
            _ => 0.0,
        }
    }

    /// Leaves a server out.
    pub(crate) fn leave_out(&mut self, index: usize, why: String) {
        let reference = self
            .servers
            .get(self.reference)
            .map(|server| server.name.clone());
        self.servers.remove(index);
        self.loads.remove(index);
        let reference = self
            .servers
            .iter()
            .position(|server| Some(&server.name) == reference.as_ref());
        self.reference = reference.unwrap_or(0);
        self.left_out.push(why);
    }
}
