//! The modules of `src/` import each other in one direction, and no file is long.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::files::below;

/// What each module may import. `util` shows what the API client shares with the other modules: text, errors and delays.
/// `commands` and `main`, which are not listed, may import everything.
const ALLOWED: [(&str, &str); 11] = [
    ("util", "orgdata_api"),
    ("metrics", "util"),
    ("ledger", "util"),
    ("health", "util metrics"),
    ("audit", "util metrics ledger health orgdata_api"),
    ("tickets", "util metrics ledger health orgdata_api"),
    ("otlp", "util metrics ledger health orgdata_api"),
    ("telemetry", "util metrics otlp"),
    ("web", "util metrics ledger health audit tickets otlp"),
    (
        "cli",
        "util metrics ledger audit tickets otlp web telemetry orgdata_api",
    ),
    (
        "app",
        "util metrics ledger health audit tickets otlp web telemetry cli orgdata_api",
    ),
];

/// The maximum number of lines of code in a file.
const LINES: usize = 500;

/// Returns the code of the files below these directories by path, without comments, blank lines and tests.
fn code(directories: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut code = BTreeMap::new();
    for (path, text) in directories.iter().flat_map(|directory| below(directory)) {
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        if path.ends_with(".rs") && !is_test {
            let lines = text
                .lines()
                .map(str::trim)
                .take_while(|line| *line != "#[cfg(test)]");
            let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
            code.insert(path, lines.map(str::to_owned).collect());
        }
    }
    code
}

/// Returns the modules and crates of ours that a piece of code names, as in `crate::ledger` or `crate::{audit, web::tls}`.
fn imports(code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut found = BTreeSet::new();
    for root in ["crate::", "orgdata_exporter::"] {
        for rest in code.split(root).skip(1) {
            let (mut depth, mut start) = (0, true);
            for (at, c) in rest.char_indices() {
                if start && is_name(c) {
                    let name = rest[at..].split(|c| !is_name(c)).next().unwrap();
                    found.insert(name.to_owned());
                    start = false;
                }
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                start |= depth == 1 && (c == '{' || c == ',');
                if depth == 0 && !is_name(c) {
                    break;
                }
            }
        }
    }
    let crates = ["orgdata_api", "orgdata_simulator"];
    found.extend(
        crates
            .iter()
            .filter(|name| code.contains(&format!("{name}::")))
            .map(|name| (*name).to_owned()),
    );
    found
}

/// Returns what each module of `src/` imports.
fn modules() -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, lines) in code(&["src"]) {
        let module = path["src/".len()..]
            .split(['/', '.'])
            .next()
            .unwrap()
            .to_owned();
        modules
            .entry(module)
            .or_default()
            .extend(imports(&lines.join("\n")));
    }
    modules.remove("lib");
    let names: BTreeSet<String> = modules.keys().cloned().collect();
    for (module, imports) in &mut modules {
        imports.retain(|name| {
            name != module && (names.contains(name) || name.starts_with("orgdata_"))
        });
    }
    modules
}

#[test]
fn imports_point_in_one_direction() {
    let modules = modules();
    let mut wrong = Vec::new();
    for (module, imports) in &modules {
        if let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == module) {
            let upward = imports
                .iter()
                .filter(|name| !allowed.split(' ').any(|allowed| allowed == *name));
            wrong.extend(upward.map(|name| format!("{module} imports {name}")));
        }
    }
    // Without the modules that import or are imported by none of the others, again and again, only cycles remain.
    let mut rest = modules;
    while let Some(name) = rest.iter().find_map(|(name, imports)| {
        let leaf = !imports.iter().any(|name| rest.contains_key(name));
        let root = !rest.values().any(|imports| imports.contains(name));
        (leaf || root).then(|| name.clone())
    }) {
        rest.remove(&name);
    }
    let cycle: Vec<&String> = rest.keys().collect();
    assert!(
        wrong.is_empty() && cycle.is_empty(),
        "cycle among {cycle:?}\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_file_is_long() {
    let code = code(&[
        "src",
        "crates/orgdata-api/src",
        "crates/orgdata-simulator/src",
    ]);
    let long = code.iter().filter(|(_, lines)| lines.len() > LINES);
    let long: Vec<_> = long.map(|(path, lines)| (path, lines.len())).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn imports_are_found() {
    let code = "use crate::ledger::{self, Outbox};\nuse crate::{audit, web::{tls, users}};\nfn a(b: crate::util::C) {}\nuse orgdata_api::Client;";
    let found: Vec<String> = imports(code).into_iter().collect();
    assert_eq!(found, ["audit", "ledger", "orgdata_api", "util", "web"]);
}
