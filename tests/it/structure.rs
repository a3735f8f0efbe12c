//! The modules of `src/` import each other in one direction.

use std::collections::BTreeSet;

use crate::support::files::below;

/// What each module may import. `util` shows what the API client shares with the other modules: text, errors and delays.
/// `commands` and `main`, which are not listed, may import everything.
const ALLOWED: &str = "
util: orgdata_api
metrics: util ledger health tickets
ledger: util
health: util
landing: util metrics health tickets
endpoints: util metrics health landing
audit: util metrics ledger health orgdata_api
tickets: util ledger orgdata_api
records: util metrics ledger health orgdata_api
telemetry: util records
cli: util metrics ledger audit tickets records telemetry orgdata_api
app: util metrics ledger health endpoints audit tickets records telemetry cli orgdata_api
";

/// Returns the modules and crates of ours that a piece of code names, as in `crate::ledger` or `crate::{audit, web}`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
    let roots = ["crate::", "orgdata_exporter::"];
    for rest in roots.iter().flat_map(|root| code.split(root).skip(1)) {
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => rest.split(is_other).next().unwrap(),
        };
        assert!(!list.contains("::{"), "{list}");
        let names = list.split([',', '\n']).map(str::trim);
        let names = names.map(|name| name.split(is_other).next());
        found.extend(names.flatten().map(str::to_owned));
    }
    let crates = ["orgdata_api", "orgdata_simulator"].into_iter();
    let named = crates.filter(|name| code.contains(&format!("{name}::")));
    found.extend(named.map(str::to_owned));
    found
}

#[test]
fn imports_point_in_one_direction() {
    let mut files = below("src");
    files.retain(|(path, _)| path.ends_with(".rs") && !path.ends_with("tests.rs"));
    files.retain(|(path, _)| !path.starts_with("src/tests/"));
    let module = |path: &str| path.split(['/', '.']).nth(1).unwrap().to_owned();
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let is_ours = |name: &String| modules.contains(name) || name.starts_with("orgdata_");
    let mut edges = BTreeSet::new();
    for (path, text) in &files {
        let lines = text.lines().map(str::trim);
        let lines = lines.take_while(|line| *line != "#[cfg(test)]");
        let code: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
        let names = imports(&code.join("\n")).into_iter().filter(is_ours);
        edges.extend(names.map(|name| (module(path), name)));
    }
    assert!(edges.contains(&("app".to_owned(), "endpoints".to_owned())));
    edges.retain(|(module, name)| {
        let mut rules = ALLOWED.lines().filter_map(|line| line.split_once(": "));
        let rule = rules.find(|(known, _)| known == module);
        let may = rule.is_some_and(|(_, allowed)| allowed.split(' ').any(|one| one == name));
        !may && module != name && !["commands", "main", "lib"].contains(&&**module)
    });
    assert!(edges.is_empty(), "{edges:?}");
}
