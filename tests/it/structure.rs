//! The modules of `src/` import each other in one direction, and their files too.

use std::collections::{BTreeMap, BTreeSet};

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

/// Returns the names that a piece of code takes from these roots, as in `crate::ledger` or `crate::{audit, web}`.
fn names(code: &str, roots: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_other = |c: char| !c.is_ascii_lowercase() && c != '_';
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
    found
}

/// Returns the modules and crates of ours that a piece of code names.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = names(code, &["crate::", "orgdata_exporter::"]);
    let crates = ["orgdata_api", "orgdata_simulator"].into_iter();
    let named = crates.filter(|name| code.contains(&format!("{name}::")));
    found.extend(named.map(str::to_owned));
    found
}

#[test]
fn imports_point_in_one_direction() {
    let code = code(&["src"]);
    let module = |path: &String| path.split(['/', '.']).nth(1).unwrap().to_owned();
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
        let may = rule.is_some_and(|(_, allowed)| allowed.split(' ').any(|one| one == name));
        !may && module != name && !["commands", "main", "lib"].contains(&&**module)
    });
    assert!(edges.is_empty(), "{edges:?}");
}

/// A folder's own `mod.rs` is above its files, and is not one of them.
#[test]
fn files_of_a_folder_import_each_other_in_no_circle() {
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (path, lines) in code(&["src"]) {
        let (folder, name) = path.trim_end_matches(".rs").rsplit_once('/').unwrap();
        let module = folder.replacen("src", "crate", 1).replace('/', "::") + "::";
        let mut imports = names(&lines.join("\n"), &["super::", &module]);
        imports.remove(name);
        let files = folders.entry(folder.to_owned()).or_default();
        files.insert(name.to_owned(), imports);
    }
    assert!(folders["src/records"]["run"].contains("bisect"));
    folders.retain(|folder, files| {
        files.remove("mod");
        // What imports nothing that is left is in no circle.
        let mut left = 0;
        while left != files.len() {
            left = files.len();
            let known: BTreeSet<String> = files.keys().cloned().collect();
            files.retain(|_, imports| {
                imports.retain(|name| known.contains(name));
                !imports.is_empty()
            });
        }
        folder != "src" && !files.is_empty()
    });
    assert!(folders.is_empty(), "{folders:#?}");
}
