//! The files in the documentation are right.

use std::fs;
use std::path::Path;

use apus_bench::{ComparisonPlan, ScenarioPlan};
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
    let [scenario, comparison] = files[..] else {
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
    fs::write(&path, comparison).unwrap();
    ComparisonPlan::read(&path).unwrap();
}
