//! The modules of `src/` import each other in one direction, and no file is long.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::files::below;

/// What each module may import. `util` shows what the API client shares with the other modules: text, errors and delays.
/// `commands` and `main`, which are not listed, may import everything.
const ALLOWED: &str = "
util: orgdata_api
metrics: util ledger
ledger: util
health: util metrics
landing: util metrics health
endpoints: util metrics health landing
tail: util metrics ledger health orgdata_api
tickets: util metrics ledger health orgdata_api
entry: ledger orgdata_api
relay: util metrics ledger health entry
telemetry: util relay
cli: util metrics ledger tail tickets entry relay telemetry orgdata_api
app: util metrics ledger health endpoints tail tickets relay telemetry cli orgdata_api
";

/// The maximum number of lines of code in a file.
const LINES: usize = 500;

/// Returns the code of the files below these directories by path, without comments, blank lines and tests.
fn code(directories: &[&str]) -> BTreeMap<String, Vec<String>> {
    let files = directories.iter().flat_map(|directory| below(directory));
    let is_code = |path: &str| !path.contains("/tests/") && !path.ends_with("tests.rs");
    let files = files.filter(|(path, _)| path.ends_with(".rs") && is_code(path));
    let lines = |text: String| {
        let lines = text.lines().map(str::trim);
        let lines = lines.take_while(|line| *line != "#[cfg(test)]");
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
        lines.map(str::to_owned).collect()
    };
    files.map(|(path, text)| (path, lines(text))).collect()
}

/// Returns the modules and crates of ours that a piece of code names, as in `crate::ledger` or `crate::{audit, web}`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let roots = ["crate::", "orgdata_exporter::"];
    for rest in roots.iter().flat_map(|root| code.split(root).skip(1)) {
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => rest.split(';').next().unwrap(),
        };
        assert!(!list.contains("::{") || !rest.starts_with('{'), "{list}");
        let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
        let names = list.split(", ").map(|name| name.split(is_other).next());
        found.extend(names.flatten().map(str::to_owned));
    }
    let crates = ["orgdata_api", "orgdata_simulator"].into_iter();
    let named = crates.filter(|name| code.contains(&format!("{name}::")));
    found.extend(named.map(str::to_owned));
    found
}

#[test]
fn imports_point_in_one_direction() {
    let code = code(&["src"]);
    let module = |path: &String| {
        path["src/".len()..]
            .split(['/', '.'])
            .next()
            .unwrap()
            .to_owned()
    };
    let modules: BTreeSet<String> = code.keys().map(module).collect();
    let is_ours = |name: &String| modules.contains(name) || name.starts_with("orgdata_");
    let mut edges = BTreeSet::new();
    for (path, lines) in &code {
        let names = imports(&lines.join("\n")).into_iter().filter(is_ours);
        edges.extend(names.map(|name| (module(path), name)));
    }
    assert!(edges.contains(&("app".to_owned(), "endpoints".to_owned())));
    edges.retain(|(module, name)| {
        let mut rules = ALLOWED.lines().filter_map(|line| line.split_once(": "));
        let rule = rules.find(|(known, _)| known == module);
        let may =
            rule.is_some_and(|(_, allowed)| allowed.split(' ').any(|allowed| allowed == name));
        !may && module != name && !["commands", "main", "lib"].contains(&&**module)
    });
    assert!(edges.is_empty(), "{edges:?}");
}

#[test]
fn no_file_is_long() {
    let crates = ["exporter-web", "orgdata-api", "orgdata-simulator"];
    let crates = crates.map(|name| format!("crates/{name}/src"));
    let code = code(&["src", &crates[0], &crates[1], &crates[2]]);
    let long = code.iter().filter(|(_, lines)| lines.len() > LINES);
    let long: Vec<_> = long.map(|(path, lines)| (path, lines.len())).collect();
    assert!(long.is_empty(), "{long:?}");
}
