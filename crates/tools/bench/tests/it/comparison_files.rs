//! The files in the documentation are right.

use std::fs;
use std::path::Path;
use std::time::Duration;

use apus_bench::ScenarioPlan;
use apus_bench::comparison::{ComparisonChanges, ComparisonFile};
use apus_http::Headers;

#[test]
fn the_files_of_the_page_are_right() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/benchmarking.md");
    let page = fs::read_to_string(page).unwrap();
    let files: Vec<_> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [scenario, comparison, cases] = files[..] else {
        panic!("{} files", files.len());
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("users.csv"),
        "name,password\nada,secret\n",
    )
    .unwrap();
    let path = folder.path().join("file.toml");
    fs::write(&path, scenario).unwrap();
    ScenarioPlan::read(&path, None, &Headers::new()).unwrap();
    for (text, count) in [(comparison, 1), (cases, 3)] {
        fs::write(&path, text).unwrap();
        let file = ComparisonFile::read(&path, &ComparisonChanges::default()).unwrap();
        assert_eq!(file.case_count(), count);
    }
}

/// All files in a folder of `bench`.
fn files_of(folder: &str, changes: &ComparisonChanges) -> Vec<ComparisonFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../bench")
        .join(folder);
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|name| name == "toml"));
    let files = paths.map(|path| ComparisonFile::read(&path, changes).unwrap());
    files.collect()
}

#[test]
fn the_files_of_make_bench_and_make_published_are_right() {
    for (folder, least) in [("cases", 50), ("published", 35)] {
        let files = files_of(folder, &ComparisonChanges::default());
        assert!(files.iter().all(ComparisonFile::has_cases), "{folder}");
        let cases: usize = files.iter().map(ComparisonFile::case_count).sum();
        assert!(cases >= least, "{folder}: {cases}");
    }
}

#[test]
fn make_published_takes_as_long_as_its_documentation_says() {
    let minutes = |seconds: f64| seconds / 60.0;
    let files = files_of("published", &ComparisonChanges::default());
    let expected: f64 = files.iter().map(|file| file.seconds_left((0, 0))).sum();
    let most: f64 = files.iter().map(ComparisonFile::seconds_at_most).sum();
    assert!(minutes(expected) <= 50.0, "{} min", minutes(expected));
    assert!(minutes(most) <= 80.0, "{} min", minutes(most));
    // What is prepared is part of the ten minutes.
    let quick = ComparisonChanges {
        rounds: Some(1),
        duration: Some(Duration::from_secs(2)),
        ..ComparisonChanges::default()
    };
    let files = files_of("published", &quick);
    let expected: f64 = files.iter().map(|file| file.seconds_left((0, 0))).sum();
    assert!(minutes(expected) <= 9.0, "{} min", minutes(expected));
}
