//! The files of the repository, and Kubernetes objects as plain values.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns the path of a file in the repository.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub(crate) fn file(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the path of a key or a certificate.
pub(crate) fn tls(name: &str) -> String {
    path(&format!("tests/support/tls/{name}"))
        .display()
        .to_string()
}

/// Returns the names in a directory of the repository, sorted.
pub(crate) fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(path(directory)).expect(directory);
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Returns the text files below a directory, with their paths.
pub(crate) fn below(directory: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for name in names(directory) {
        let name = format!("{directory}/{name}");
        if path(&name).is_dir() {
            files.extend(below(&name));
        } else if let Ok(text) = fs::read_to_string(path(&name)) {
            files.push((name, text));
        }
    }
    files
}

/// The lines around the generated part of a page.
const BEGIN: &str = "<!-- Generated: `UPDATE=1 cargo test --test it` writes this part. -->\n";
const END: &str = "\n<!-- End of the generated part. -->\n";

/// Asserts that the generated part of a page is up to date; with `UPDATE` in the environment it is written first.
pub(crate) fn generated_part(name: &str, wanted: &str) {
    let page = file(name);
    let (before, rest) = page.split_once(BEGIN).expect(name);
    let (_, after) = rest.split_once(END).expect(name);
    let wanted = [before, BEGIN, wanted, END, after].concat();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path(name), &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "outdated: {name}: UPDATE=1 cargo test --test it"
        );
    }
}

/// Returns what a page shows as printed by a command, [masked].
pub(crate) fn transcript(page: &str, command: &str) -> Vec<String> {
    let (_, printed) = page.split_once(&format!("{command}\n")).expect(command);
    let end = printed
        .find("\n```")
        .into_iter()
        .chain(printed.find("\n$ "));
    masked(&printed[..end.min().unwrap()])
}

/// Returns lines without what differs from run to run: numbers, ids, and the width of columns.
pub(crate) fn masked(text: &str) -> Vec<String> {
    let word = |word: &str| -> String {
        let is_id = |part: &str| part.len() > 11 && part.chars().all(|it| it.is_ascii_hexdigit());
        if word.split(['-', '=']).any(is_id) {
            return "ID".to_owned();
        }
        let mut masked = word.replace(|letter: char| letter.is_ascii_digit(), "#");
        while masked.contains("##") {
            masked = masked.replace("##", "#");
        }
        masked
    };
    let line = |line: &str| {
        line.split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.trim_end().lines().map(line).collect()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// Returns the targets of the Markdown links in a text.
pub(crate) fn links(text: &str) -> Vec<&str> {
    let parts = text.split("](").skip(1);
    parts.filter_map(|rest| rest.split(')').next()).collect()
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the only object of this kind and name.
pub(crate) fn object<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found: Vec<&Value> = documents.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    found[0]
}

/// Returns the entry of a list that has this name.
pub(crate) fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = array(list).iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

/// Returns the elements of a list; none if the value is not one.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text of a value; empty if it is not one.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asserts that a value has everything of a JSON pattern: objects may have more keys, and null means absent.
// A macro, so that the pattern is written as JSON and a failure names the line of the test.
macro_rules! assert_has {
    ($value:expr, $($pattern:tt)+) => {
        assert_eq!($crate::support::files::missing(&$value, &serde_json::json!($($pattern)+), ""), None)
    };
}
pub(crate) use assert_has;

/// Returns the first difference between a value and what a pattern wants.
pub(crate) fn missing(value: &Value, pattern: &Value, path: &str) -> Option<String> {
    let Some(fields) = pattern.as_object() else {
        return (value != pattern).then(|| format!("{path} is {value} instead of {pattern}"));
    };
    let mut fields = fields.iter();
    fields.find_map(|(key, pattern)| missing(&value[key], pattern, &format!("{path}/{key}")))
}
