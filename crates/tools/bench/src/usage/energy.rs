//! The energy that the processors of this machine have used, where the kernel tells (powercap, RAPL).

use std::fs;
use std::path::{Path, PathBuf};

/// The counters of the packages of the processor, which begin anew at their ends.
#[derive(Clone, Debug)]
pub struct EnergyMeter {
    packages: Vec<Package>,
}

#[derive(Clone, Debug)]
struct Package {
    counter: PathBuf,
    /// Microjoules.
    range: u64,
    last: u64,
}

impl EnergyMeter {
    /// The counters of this machine. `None` if there are none, or they may not be read.
    pub fn new() -> Option<Self> {
        Self::in_folder(Path::new("/sys/class/powercap"))
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let packages: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                // `intel-rapl:0` is a package, and `intel-rapl:0:1` a part of it.
                let number = name.strip_prefix("intel-rapl:")?;
                (!number.contains(':')).then_some(())?;
                let counter = entry.path().join("energy_uj");
                Some(Package {
                    range: read(&entry.path().join("max_energy_range_uj"))?,
                    last: read(&counter)?,
                    counter,
                })
            })
            .collect();
        (!packages.is_empty()).then_some(Self { packages })
    }

    /// Microjoules since the last call, or since the begin.
    pub fn take(&mut self) -> u64 {
        let mut sum = 0;
        for package in &mut self.packages {
            if let Some(now) = read(&package.counter) {
                sum += match now.checked_sub(package.last) {
                    Some(used) => used,
                    None => (now + package.range).saturating_sub(package.last),
                };
                package.last = now;
            }
        }
        sum
    }
}

fn read(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_added_up_and_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let write = |package: &str, file: &str, value: &str| {
            let path = folder.path().join(package);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(file), value).unwrap();
        };
        assert!(EnergyMeter::in_folder(folder.path()).is_none());
        for package in ["intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"] {
            write(package, "energy_uj", "900\n");
            write(package, "max_energy_range_uj", "1000\n");
        }
        let mut meter = EnergyMeter::in_folder(folder.path()).unwrap();
        assert_eq!(meter.take(), 0);
        write("intel-rapl:0", "energy_uj", "950");
        write("intel-rapl:1", "energy_uj", "100");
        write("intel-rapl:0:0", "energy_uj", "999");
        assert_eq!(meter.take(), 50 + 200);
    }
}
