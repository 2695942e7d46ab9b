//! The files in the documentation are right.

use std::fs;
use std::path::Path;

use apus_bench::{ComparisonChanges, ComparisonFile, ScenarioPlan};
use apus_http::Headers;

#[test]
fn the_files_of_the_page_are_right() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarking.md");
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
    for (text, count) in [(comparison, 1), (cases, 2)] {
        fs::write(&path, text).unwrap();
        let file = ComparisonFile::read(&path, &ComparisonChanges::default()).unwrap();
        assert_eq!(file.case_count(), count);
    }
}

/// The cases of all files in a folder of `bench`.
fn cases_of(folder: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench")
        .join(folder);
    let mut cases = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let file = ComparisonFile::read(&path, &ComparisonChanges::default()).unwrap();
            assert!(file.has_cases() && file.has_value("apus"), "{path:?}");
            cases += file.case_count();
        }
    }
    cases
}

#[test]
fn the_files_of_make_bench_and_make_seeds_are_right() {
    assert!(cases_of("cases") >= 30 && cases_of("seeds") >= 25);
}
