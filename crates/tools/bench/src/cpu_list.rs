//! Lists of processors, to which threads and servers are pinned.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Keeps the calling thread, and threads and processes that it starts, on these processors.
    pub fn pin(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        for cpu in &self.0 {
            set.set(*cpu);
        }
        sched_setaffinity(None, &set).map_err(|error| {
            io::Error::other(format!("the processors {self} cannot be used: {error}"))
        })
    }
}

impl FromStr for CpuList {
    type Err = InvalidCpuList;

    /// Parses a list such as `0,2-3`, or `first` and `last`: of the processors that this process may use.
    fn from_str(text: &str) -> Result<Self, InvalidCpuList> {
        let wrong = || InvalidCpuList(text.to_owned());
        let mut allowed = allowed();
        match text {
            "first" => return Ok(Self(vec![allowed.next().ok_or_else(wrong)?])),
            "last" => return Ok(Self(vec![allowed.last().ok_or_else(wrong)?])),
            _ => {}
        }
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if number < CpuSet::MAX_CPU => Ok(number),
            _ => Err(wrong()),
        };
        let mut found = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            found.extend(first..=last);
        }
        found.sort_unstable();
        found.dedup();
        Ok(Self(found))
    }
}

/// The error for a text that is no list of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCpuList(String);

impl fmt::Display for InvalidCpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no list of processors such as 0,2-3, and not `first` or `last`",
            self.0
        )
    }
}

impl std::error::Error for InvalidCpuList {}

/// The processors that this process may use.
fn allowed() -> impl Iterator<Item = usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(move |cpu| set.is_set(*cpu))
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_processors() {
        let list: CpuList = "3,0-1, 1".parse().unwrap();
        assert_eq!(list.to_string(), "0,1,3");
        let (first, last): (CpuList, CpuList) = ("first".parse().unwrap(), "last".parse().unwrap());
        assert!(first.0.len() == 1 && last.0.len() == 1 && first.0 <= last.0);
        for wrong in ["", "a", "1-", "2-1", "99999", "-1"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }
}
