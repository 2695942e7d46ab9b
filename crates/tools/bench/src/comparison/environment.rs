//! The properties of the machine of a comparison that explain the figures.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonEnvironment {
    /// The version of `apus bench`.
    pub generator: &'static str,
    /// When the comparison began, in seconds since 1970.
    pub began: u64,
    /// The model of the processor.
    pub cpu: String,
    /// Processors that the generator may use.
    pub processors: usize,
    /// The version of the kernel.
    pub kernel: String,
    /// How the kernel chooses the frequency of the processor, if it does.
    pub governor: Option<String>,
    /// What the kernel does against weaknesses of the processor.
    pub mitigations: Vec<String>,
}

impl ComparisonEnvironment {
    pub(crate) fn read() -> Self {
        let text = |path: &str| {
            fs::read_to_string(path)
                .ok()
                .map(|text| text.trim().to_owned())
        };
        let cpus = text("/proc/cpuinfo").unwrap_or_default();
        let model = cpus
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == "model name")
            .map_or("unknown", |(_, model)| model.trim());
        Self {
            generator: env!("CARGO_PKG_VERSION"),
            began: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            cpu: model.to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
        }
    }
}

fn mitigations(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let state = fs::read_to_string(entry.path()).ok()?;
            let state = state.trim();
            let name = entry.file_name().into_string().ok()?;
            (state != "Not affected").then(|| format!("{name}: {state}"))
        })
        .collect();
    found.sort();
    found
}
