//! How long comparisons take, by their files.

use crate::LoadLimit;

use crate::comparison::plan::{ComparisonFile, ComparisonPlan};

/// The seconds that are assumed for a load which a number of requests ends.
const REQUESTS: f64 = 10.0;

/// The seconds that are assumed for the start of a server, its connections, and its end.
const START: f64 = 1.0;

impl ComparisonFile {
    /// About how many seconds its cases take, without what is prepared for them, once some of them are complete and some
    /// measurements of the next one are made.
    pub fn seconds_left(&self, (cases, measurements): (usize, usize)) -> f64 {
        let mut left = self.cases.iter().skip(cases);
        let begun = left
            .next()
            .map_or(0.0, |case| case.seconds_left(measurements));
        begun + left.map(|case| case.seconds_left(0)).sum::<f64>()
    }

    /// How many seconds its cases take at most, without what is prepared for them, unless servers need far longer than a second
    /// to start.
    pub fn seconds_at_most(&self) -> f64 {
        let cases = self.cases.iter();
        cases
            .map(|case| {
                let round = case.seconds_of_round();
                match case.rounds.1 {
                    // No second round begins that would end later.
                    2.. => case.budget.as_secs_f64().max(round),
                    _ => round,
                }
            })
            .sum()
    }
}

impl ComparisonPlan {
    fn seconds_of_round(&self) -> f64 {
        let loads = self.loads.iter();
        // Idle connections are held twice: the first ones, and all.
        let holds = if self.idle > Some(0) { 2.0 } else { 1.0 };
        loads
            .map(|load| {
                let seconds = match load.limit {
                    LoadLimit::Time(time) => time.as_secs_f64() * holds,
                    LoadLimit::Requests(_) => REQUESTS,
                };
                load.warm_up.as_secs_f64() + seconds + START
            })
            .sum()
    }

    fn seconds_left(&self, measurements: usize) -> f64 {
        let (_, rounds) = self.rounds;
        let round = self.seconds_of_round();
        let all = (round * rounds as f64).min(self.budget.as_secs_f64().max(round));
        let made = measurements as f64 / (rounds * self.loads.len()).max(1) as f64;
        all * (1.0 - made).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::comparison::ComparisonChanges;

    fn file(rounds: Option<usize>) -> ComparisonFile {
        let text = r#"
            [rounds]
            least = 5
            most = 5
            budget = "60s"
            [load]
            duration = "3s"
            warm_up = "1s"
            [[server]]
            name = "a"
            url = "http://127.0.0.1:1/"
            [[server]]
            name = "b"
            url = "http://127.0.0.1:2/"
            [[case]]
            name = "short"
            [[case]]
            name = "long"
            load = { duration = "40s", warm_up = "0s" }
            [[case]]
            name = "counted"
            load = { requests = 100 }
            rounds = { least = 2, most = 2 }
        "#;
        let changes = ComparisonChanges {
            rounds,
            ..ComparisonChanges::default()
        };
        ComparisonFile::parse(text, Path::new("/"), &changes).unwrap()
    }

    #[test]
    fn the_time_of_a_file_is_that_of_its_cases_within_their_budgets() {
        let file = file(None);
        // 50 s, 410 s of which the first round is made alone, and 44 s.
        assert_eq!(file.seconds_left((0, 0)), 50.0 + 82.0 + 44.0);
        assert_eq!(file.seconds_at_most(), 60.0 + 82.0 + 60.0);
        assert_eq!(file.seconds_left((0, 5)), 25.0 + 82.0 + 44.0);
        assert_eq!(file.seconds_left((2, 3)), 11.0);
        assert_eq!(file.seconds_left((3, 0)), 0.0);
    }

    #[test]
    fn one_round_is_made_whatever_the_budget_is() {
        let file = file(Some(1));
        assert_eq!(file.seconds_left((0, 0)), 10.0 + 82.0 + 22.0);
        assert_eq!(file.seconds_at_most(), 10.0 + 82.0 + 22.0);
    }
}
