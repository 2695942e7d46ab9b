//! What a server of this machine consumes, as `/proc` tells: CPU, context switches, memory, descriptors.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// The processes of a server: some that were named or found, and all that they started.
#[derive(Clone, Debug)]
pub struct ServerProcesses {
    roots: BTreeSet<u32>,
}

/// What the processes have consumed since they began, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessReading {
    /// Seconds of CPU.
    pub cpu: f64,
    /// The same in user mode and in the kernel, if that is known.
    pub user_and_system: Option<(f64, f64)>,
    /// Context switches because a thread waited, and because its time was over, if they are known.
    pub switches: Option<(u64, u64)>,
    /// Resident memory. Pages that processes share count for each.
    pub memory_bytes: u64,
    /// The most resident memory that each process ever had, if that is known.
    pub peak_bytes: Option<u64>,
    /// Open descriptors, if the kernel tells them to this user.
    pub descriptors: u64,
}

impl ServerProcesses {
    /// The process with this number; `None` if there is none, or it belongs to somebody else.
    pub fn of_pid(pid: u32) -> Option<Self> {
        let found = Self {
            roots: BTreeSet::from([pid]),
        };
        found.read().is_some().then_some(found)
    }

    /// The same with further processes, which exist.
    pub fn and(mut self, further: &[u32]) -> Self {
        self.roots.extend(further);
        self
    }

    /// The processes that listen on this TCP port of this machine, or on this UDP port. Not this process.
    pub fn of_port(port: u16) -> Option<Self> {
        let inodes = listening(port);
        if inodes.is_empty() {
            return None;
        }
        let own = std::process::id();
        let roots: BTreeSet<u32> = all_processes()
            .filter(|pid| *pid != own && holds(*pid, &inodes))
            .collect();
        (!roots.is_empty()).then_some(Self { roots })
    }

    /// The name of the first one, and its number.
    pub fn name(&self) -> (String, u32) {
        let pid = self.roots.first().copied().unwrap_or(0);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (name.trim().to_owned(), pid)
    }

    /// These processes and all that they started.
    fn all(&self) -> BTreeSet<u32> {
        let mut parents: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in all_processes() {
            if let Some(stat) = Stat::read(pid) {
                parents.entry(stat.parent).or_default().push(pid);
            }
        }
        let mut all = BTreeSet::new();
        let mut left: Vec<u32> = self.roots.iter().copied().collect();
        while let Some(pid) = left.pop() {
            if all.insert(pid) {
                left.extend(parents.get(&pid).into_iter().flatten());
            }
        }
        all
    }

    /// The proportional set size of all of them: pages that they share count once. `None` if the kernel does not tell this user.
    pub fn pss(&self) -> Option<u64> {
        let sizes = self.all().into_iter().filter_map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            kilobytes(&text, "Pss:")
        });
        sizes.reduce(|sum, size| sum + size)
    }

    /// Reads the numbers of all these processes and of those that they started. `None` if none exists.
    pub fn read(&self) -> Option<ProcessReading> {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as u64;
        let mut sum = ProcessReading::default();
        let (mut user, mut system) = (0.0, 0.0);
        let mut switched = (0, 0);
        let mut is_any = false;
        for pid in self.all() {
            let Some(stat) = Stat::read(pid) else {
                continue;
            };
            is_any = true;
            user += stat.user as f64 / ticks;
            system += stat.system as f64 / ticks;
            sum.memory_bytes += stat.resident_pages * page;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            if let Some(peak) = kilobytes(&status, "VmHWM:") {
                sum.peak_bytes = Some(sum.peak_bytes.unwrap_or(0) + peak);
            }
            let (voluntary, involuntary) = switches(pid);
            switched.0 += voluntary;
            switched.1 += involuntary;
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
            sum.descriptors += descriptors.map_or(0, |found| found.count() as u64);
        }
        sum.cpu = user + system;
        sum.user_and_system = Some((user, system));
        sum.switches = Some(switched);
        is_any.then_some(sum)
    }
}

/// The bytes of a line such as `VmHWM:      5120 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

/// The numbers of all processes.
fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Some fields of `/proc/PID/stat` (proc_pid_stat(5)).
struct Stat {
    parent: u32,
    /// Clock ticks, with those of children that ended.
    user: u64,
    system: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first of these is the third of the manual.
        let number = |field: usize| -> Option<u64> { fields.get(field - 3)?.parse().ok() };
        Some(Self {
            parent: u32::try_from(number(4)?).ok()?,
            user: number(14)? + number(16)?,
            system: number(15)? + number(17)?,
            resident_pages: number(24)?,
        })
    }
}

/// The context switches of all threads of a process.
fn switches(pid: u32) -> (u64, u64) {
    let mut sum = (0, 0);
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    for thread in threads.flatten() {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        for line in status.lines() {
            let number = |text: &str| text.trim().parse().unwrap_or(0);
            if let Some(count) = line.strip_prefix("voluntary_ctxt_switches:") {
                sum.0 += number(count);
            } else if let Some(count) = line.strip_prefix("nonvoluntary_ctxt_switches:") {
                sum.1 += number(count);
            }
        }
    }
    sum
}

/// The inodes of the sockets that listen on a port.
fn listening(port: u16) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for (file, state) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        let table = fs::read_to_string(Path::new("/proc/net").join(file)).unwrap_or_default();
        inodes.extend(
            table
                .lines()
                .skip(1)
                .filter_map(|line| listener(line, port, state)),
        );
    }
    inodes
}

/// The inode of a line of `/proc/net/tcp`, if it is a socket in this state on this port.
fn listener(line: &str, port: u16, state: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, own) = fields.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(own, 16) == Ok(port) && fields.get(3) == Some(&state);
    fields.get(9)?.parse().ok().filter(|_| is_it)
}

/// Whether a process has one of these sockets.
fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    descriptors.flatten().any(|descriptor| {
        let Ok(link) = fs::read_link(descriptor.path()) else {
            return false;
        };
        let inode = link.to_str().and_then(|link| {
            let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok()
        });
        inode.is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_program_whose_name_has_parentheses() {
        let text =
            "7 (a) (b) c) S 3 7 7 0 -1 4194560 1 2 3 4 50 60 5 6 20 0 1 0 100 9000 250 18446 1 1";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.user, stat.system), (3, 55, 66));
        assert_eq!(stat.resident_pages, 250);
        assert!(Stat::parse("").is_none() && Stat::parse("1 (a) S 1").is_none());
    }

    #[test]
    fn finds_listeners_in_the_table_of_sockets() {
        let line = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 0 100 0 0 10 0";
        assert_eq!(listener(line, 8080, "0A"), Some(4711));
        assert_eq!(listener(line, 8081, "0A"), None);
        assert_eq!(listener(&line.replace("0A", "01"), 8080, "0A"), None);
        assert_eq!(listener("", 8080, "0A"), None);
    }

    #[test]
    fn reads_sizes_of_the_kernel() {
        let text = "Name:\tx\nVmHWM:\t    5120 kB\nVmRSS:\t  7 kB\n";
        assert_eq!(kilobytes(text, "VmHWM:"), Some(5120 * 1024));
        assert_eq!(kilobytes(text, "Pss:"), None);
        assert_eq!(kilobytes("Pss: many kB", "Pss:"), None);
    }

    #[test]
    fn reads_this_process() {
        let own = ServerProcesses::of_pid(std::process::id()).unwrap();
        let reading = own.read().unwrap();
        assert!(
            reading.memory_bytes > 100_000 && reading.descriptors >= 3,
            "{reading:?}"
        );
        // The sum of pages that are resident may be a little off (proc_pid_status(5)).
        assert!(reading.peak_bytes.unwrap() > 100_000, "{reading:?}");
        assert!(own.pss().unwrap() > 100_000);
        assert!(ServerProcesses::of_pid(u32::MAX).is_none());
    }
}
