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

/// Returns what each module of `src/` imports.
fn modules() -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, lines) in code(&["src"]) {
        let module = path["src/".len()..].split(['/', '.']).next().unwrap();
        let imports = imports(&lines.join("\n"));
        modules
            .entry(module.to_owned())
            .or_default()
            .extend(imports);
    }
    modules.remove("lib");
    let names: BTreeSet<String> = modules.keys().cloned().collect();
    for (module, imports) in &mut modules {
        let is_ours = |name: &str| names.contains(name) || name.starts_with("orgdata_");
        imports.retain(|name| name != module && is_ours(name));
    }
    modules
}

#[test]
fn imports_point_in_one_direction() {
    let modules = modules();
    assert!(modules["app"].contains("ledger") && modules["cli"].contains("web"));
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
    assert!(rest.is_empty(), "cycle among {:?}", rest.keys());
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn no_file_is_long() {
    let crates = ["crates/orgdata-api/src", "crates/orgdata-simulator/src"];
    let code = code(&["src", crates[0], crates[1]]);
    let long = code.iter().filter(|(_, lines)| lines.len() > LINES);
    let long: Vec<_> = long.map(|(path, lines)| (path, lines.len())).collect();
    assert!(long.is_empty(), "{long:?}");
}
