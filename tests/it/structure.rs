//! The modules of `src/` import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::files::below;

/// What each module may import. `util` shows what the API client shares with the other modules: text, errors and delays.
/// `commands` and `main`, which are not listed, may import everything.
const ALLOWED: &str = "
util: orgdata_api
metrics: util ledger health
machine:
ledger: util machine
health: util
landing: util metrics health
endpoints: util metrics health landing
audit: util metrics ledger health orgdata_api
tickets: util machine metrics ledger health orgdata_api
records: util metrics ledger health audit orgdata_api
telemetry: util records
cli: util machine metrics ledger audit tickets records telemetry orgdata_api
app: util machine metrics ledger health endpoints audit tickets records telemetry cli orgdata_api
";

/// The directories whose files import each other in one direction, too.
const WITHOUT_CIRCLES: &str = "crates/connections/src crates/exporter-web/src crates/orgdata-api/src crates/orgdata-simulator/src
    crates/otlp-logs/src src/audit src/commands/check src/commands/verify src/ledger src/metrics src/records src/tickets";

/// Returns what a piece of code names after a prefix, as in `crate::ledger`, `crate::{audit, web}`.
fn names<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let mut found = BTreeSet::new();
    for rest in code.split(prefix).skip(1) {
        let list = rest
            .strip_prefix('{')
            .and_then(|list| list.split('}').next());
        let list = list.unwrap_or(rest.split(',').next().unwrap());
        found.extend(
            list.split(',')
                .map(|name| name.trim().split(is_other).next().unwrap()),
        );
    }
    found
}

/// Returns the modules and crates that a piece of code names.
fn imports(code: &str) -> BTreeSet<&str> {
    let mut found = names(code, "crate::");
    let crates = ["orgdata_api", "orgdata_simulator"].into_iter();
    found.extend(crates.filter(|name| code.contains(&format!("{name}::"))));
    found
}

/// Returns the code of a file without comments and unit tests.
fn code(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| *line != "#[cfg(test)]");
    let code: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
    code.join("\n")
}

/// Returns what each file of a directory imports of the others. What `mod.rs` or `lib.rs` shows of them is no import.
fn imports_within(directory: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = below(directory);
    files.retain(|(path, _)| path.ends_with(".rs") && !path.ends_with("tests.rs"));
    let name = |path: &str| path.split(['/', '.']).rev().nth(1).unwrap().to_owned();
    let files = files.iter().map(|(path, text)| (name(path), code(text)));
    let files: BTreeMap<String, String> = files.collect();
    let root = ["mod", "lib"]
        .into_iter()
        .find(|name| files.contains_key(*name));
    let root = root.unwrap().to_owned();
    let statements = files[&root].split_inclusive(';');
    let is_export = |statement: &&str| statement.contains("pub") && statement.contains(" use ");
    let (exports, own): (Vec<&str>, Vec<&str>) = statements.partition(is_export);
    let (exports, own) = (exports.concat(), own.concat());
    let owner = |name: &&str| {
        let exports = |file: &str| names(&exports, &format!("{file}::")).contains(name);
        let owner = files.keys().find(|file| file == name || exports(file));
        owner.unwrap_or(&root).clone()
    };
    // As in `crate::ledger::`, or `crate::` alone in a crate.
    let (_, within_src) = directory.split_once("src").unwrap();
    let absolute = format!("crate{}::", within_src.replace('/', "::"));
    let imported = |(file, code): (&String, &String)| {
        let mut found: BTreeSet<String> = match *file == root {
            true => {
                let paths = own.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
                let first = paths.filter_map(|path| Some(path.split_once("::")?.0));
                let found = first.filter(|name| files.contains_key(*name));
                found.map(str::to_owned).collect()
            }
            false => {
                let found = names(code, "super::");
                found.union(&names(code, &absolute)).map(owner).collect()
            }
        };
        found.remove(file);
        (file.clone(), found)
    };
    files.iter().map(imported).collect()
}

#[test]
fn files_import_each_other_in_one_direction() {
    for directory in WITHOUT_CIRCLES.split_whitespace() {
        let mut files = imports_within(directory);
        let count = files.len();
        // Those that import none of the others are left out, until none is left.
        for _ in 0..count {
            let left: BTreeSet<String> = files.keys().cloned().collect();
            files.retain(|_, imported| !imported.is_disjoint(&left));
        }
        assert!(files.is_empty(), "{directory}: {files:#?}");
    }
    assert!(imports_within("crates/otlp-logs/src")["sender"].contains("http"));
}

#[test]
fn imports_point_in_one_direction() {
    let mut files = below("src");
    files.retain(|(path, _)| path.ends_with(".rs") && !path.ends_with("tests.rs"));
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
        for name in imports(&code(text)) {
            let is_ours = modules.contains(name) || name.starts_with("orgdata_");
            let may = name == importing || allowed.split(' ').any(|one| one == name);
            assert!(!is_ours || may, "{path} imports {name}");
            count += usize::from(is_ours);
        }
    }
    assert!(count > 50, "{count} imports found");
}
