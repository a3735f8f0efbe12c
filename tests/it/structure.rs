//! The modules of `src/` import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::files::below;

/// What each module may import. `util` shows what the API client shares with the other modules: text, errors and delays.
/// `commands` and `main`, which are not listed, may import everything.
const ALLOWED: &str = "
util: orgdata_api
metrics: util ledger health
ledger: util
health: util
landing: util metrics health
endpoints: util metrics health landing
audit: util metrics ledger health orgdata_api
tickets: util metrics ledger health orgdata_api
records: util metrics ledger health audit orgdata_api
telemetry: util records
cli: util metrics ledger audit tickets records telemetry orgdata_api
app: util metrics ledger health endpoints audit tickets records telemetry cli orgdata_api
";

/// Returns what a piece of code names, as in `crate::ledger`, `crate::{audit, web}` or `orgdata_api::Client`.
fn imports(code: &str) -> BTreeSet<&str> {
    let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let list = rest.strip_prefix('{').map(|list| list.split('}').next());
        let list = list
            .flatten()
            .map_or(vec![rest], |list| list.split(", ").collect());
        found.extend(list.iter().map(|name| name.split(is_other).next().unwrap()));
    }
    let crates = ["orgdata_api", "orgdata_simulator"].into_iter();
    found.extend(crates.filter(|name| code.contains(&format!("{name}::"))));
    found
}

#[test]
fn the_modules_of_otlp_logs_have_no_circle() {
    let mut files = below("crates/otlp-logs/src");
    files.retain(|(path, _)| !path.ends_with("tests.rs") && !path.ends_with("lib.rs"));
    let module = |path: &str| path.split(['/', '.']).rev().nth(1).unwrap().to_owned();
    let modules = files.iter().map(|(path, text)| {
        let found = imports(text.split("#[cfg(test)]").next().unwrap());
        (module(path), found.into_iter().map(str::to_owned).collect())
    });
    let mut modules: BTreeMap<String, BTreeSet<String>> = modules.collect();
    let count = modules.len();
    assert!(count > 5 && modules["sender"].contains("http"));
    // Those that import none of the others are left out, until none is left.
    for _ in 0..count {
        let left: BTreeSet<String> = modules.keys().cloned().collect();
        modules.retain(|_, imported| !imported.is_disjoint(&left));
    }
    assert!(modules.is_empty(), "{modules:?}");
}

#[test]
fn imports_point_in_one_direction() {
    let mut files = below("src");
    files.retain(|(path, _)| path.ends_with(".rs") && !path.ends_with("tests.rs"));
    files.retain(|(path, _)| !path.starts_with("src/tests/"));
    let module = |path: &str| path.split(['/', '.']).nth(1).unwrap().to_owned();
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let mut count = 0;
    for (path, text) in &files {
        let importing = module(path);
        let mut rules = ALLOWED.lines().filter_map(|line| line.split_once(": "));
        let rule = rules.find(|(name, _)| *name == importing);
        let allowed = rule.map_or("", |(_, allowed)| allowed);
        if ["commands", "main", "lib"].contains(&&*importing) {
            continue;
        }
        let lines = text.lines().map(str::trim);
        let lines = lines.take_while(|line| *line != "#[cfg(test)]");
        let code: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
        for name in imports(&code.join("\n")) {
            let is_ours = modules.contains(name) || name.starts_with("orgdata_");
            let may = name == importing || allowed.split(' ').any(|one| one == name);
            assert!(!is_ours || may, "{path} imports {name}");
            count += usize::from(is_ours);
        }
    }
    assert!(count > 50, "{count} imports found");
}
