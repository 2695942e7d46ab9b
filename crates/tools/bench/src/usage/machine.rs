//! What the whole machine did during a load: the time in which its processors had nothing to do, and the traffic of its disks.

use std::fs;

use serde::Serialize;

/// The bytes of a sector of `/proc/diskstats`, whatever the disk has.
const SECTOR: f64 = 512.0;

/// What the whole machine did during the measurement, the generator and the server together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MachineReport {
    /// The share of the time of all processors in which they had nothing to do.
    pub idle_share: f64,
    /// Bytes per second that were read from disks.
    pub disk_read_per_second: f64,
    /// Bytes per second that were written to disks.
    pub disk_written_per_second: f64,
}

/// What the kernel has counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineReading {
    /// Ticks of all processors.
    idle: f64,
    all: f64,
    sectors_read: f64,
    sectors_written: f64,
}

impl MachineReading {
    /// What it has counted until now; `None` where the kernel does not tell.
    pub fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        Self::parse(&stat, &disks)
    }

    fn parse(stat: &str, disks: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            // The time of guests is in that of the user already.
            .take(8)
            .filter_map(|number| number.parse().ok())
            .collect();
        let mut reading = Self {
            // Idle, and idle while a disk works.
            idle: ticks.get(3)? + ticks.get(4)?,
            all: ticks.iter().sum(),
            ..Self::default()
        };
        for line in disks.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| -> Option<f64> { fields.get(index)?.parse().ok() };
            let name = fields.get(2).copied().unwrap_or_default();
            if !is_part(name)
                && let (Some(read), Some(written)) = (number(5), number(9))
            {
                reading.sectors_read += read;
                reading.sectors_written += written;
            }
        }
        Some(reading)
    }

    /// What was done since an earlier reading, which was made this number of seconds before.
    pub fn since(&self, earlier: &Self, seconds: f64) -> MachineReport {
        let per_second = |now: f64, before: f64| (now - before) * SECTOR / seconds.max(1e-3);
        MachineReport {
            idle_share: (self.idle - earlier.idle) / (self.all - earlier.all).max(1.0),
            disk_read_per_second: per_second(self.sectors_read, earlier.sectors_read),
            disk_written_per_second: per_second(self.sectors_written, earlier.sectors_written),
        }
    }
}

/// Whether a block device is a part of another one, or memory.
fn is_part(name: &str) -> bool {
    let is_numbered = name.ends_with(|last: char| last.is_ascii_digit());
    let is_partition = if name.starts_with("nvme") || name.starts_with("mmcblk") {
        name.contains('p')
    } else {
        is_numbered
            && ["sd", "vd", "xvd", "hd"]
                .iter()
                .any(|kind| name.starts_with(kind))
    };
    is_partition
        || ["loop", "ram", "zram", "dm-", "md"]
            .iter()
            .any(|kind| name.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_counted_once_and_idle_time_is_a_share() {
        let before =
            MachineReading::parse("cpu  10 0 10 60 20 0 0 0 5 0\ncpu0 1 1 1 1 1\n", "").unwrap();
        let disks = "   8 0 sda 1 2 100 4 5 6 200 8 9 10 11\n   8 1 sda1 1 2 100 4 5 6 200 8 9 10 11\n\
                     7 0 loop0 1 2 900 4 5 6 900 8 9\n 259 0 nvme0n1 1 2 10 4 5 6 20 8 9\n 259 1 nvme0n1p1 1 2 10 4 5 6 20 8 9\n";
        let now = MachineReading::parse("cpu  60 0 60 90 20 0 0 0 5 0\n", disks).unwrap();
        let report = now.since(&before, 2.0);
        assert!(
            (report.idle_share - 30.0 / 130.0).abs() < 1e-9,
            "{report:?}"
        );
        assert_eq!(report.disk_read_per_second, 110.0 * 512.0 / 2.0);
        assert_eq!(report.disk_written_per_second, 220.0 * 512.0 / 2.0);
        assert!(MachineReading::parse("", "").is_none());
        assert!(MachineReading::now().is_some());
    }
}
