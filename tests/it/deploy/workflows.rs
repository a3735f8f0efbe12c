//! The forge runs only what a commit names, with the rights that a job needs.

use serde_json::Value;

use crate::support::files::{file, names, yaml};

const DIRECTORY: &str = ".github/workflows";

#[test]
fn actions_are_pinned_by_commit_with_their_version() {
    let mut found = 0;
    for name in names(DIRECTORY) {
        for line in file(&format!("{DIRECTORY}/{name}")).lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            let (pin, version) = action.split_once(" # v").expect(line);
            let (_, commit) = pin.split_once('@').expect(line);
            let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(
                is_commit && version.split('.').count() == 3,
                "{name}: {line}"
            );
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn every_job_states_its_rights() {
    for name in names(DIRECTORY) {
        let workflow = yaml(&format!("{DIRECTORY}/{name}"));
        let none = Value::Object(Default::default());
        assert_eq!(workflow["permissions"], none, "{name}");
        for (job, steps) in workflow["jobs"].as_object().unwrap() {
            assert!(steps["permissions"].is_object(), "{name}: {job}");
        }
    }
}
