//! Whether a damaged file is a state file is decided by its header, not by what is beside it.

use std::fs;
use std::path::{Path, PathBuf};

use orgdata_exporter::ledger::{LedgerHandle, LedgerState, OpenError};

use crate::support::settings::ledger;

/// Where SQLite's header ends.
const HEADER: usize = 100;

/// SQLite's magic, and where the header says whose file it is.
const MAGIC: usize = 16;
const APPLICATION: std::ops::Range<usize> = 68..72;

fn open(file: &Path) -> Result<LedgerState, OpenError> {
    let options = ledger(Some(file.to_owned()), "http://api");
    LedgerHandle::open(options).map(|(_, state)| state)
}

/// Returns a file with these bytes and nothing beside it.
fn alone(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let dir = dir.join(name);
    fs::create_dir(&dir).unwrap();
    let file = dir.join("state.db");
    fs::write(&file, bytes).unwrap();
    file
}

/// Returns the bytes of a state file.
fn state_file(dir: &Path) -> Vec<u8> {
    let file = alone(dir, "whole", b"");
    drop(open(&file).unwrap());
    fs::read(file).unwrap()
}

fn changed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    bytes
}

#[test]
fn a_file_whose_header_is_ours_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let whole = state_file(dir.path());
    for (name, bytes) in [
        ("no magic", changed(&whole, |it| it[..MAGIC].fill(0))),
        (
            "noise before",
            changed(&whole, |it| it[..APPLICATION.start].fill(0x5a)),
        ),
        ("no schema", changed(&whole, |it| it[HEADER..4096].fill(0))),
        ("noise after", changed(&whole, |it| it[HEADER..].fill(0x5a))),
        ("only a header", changed(&whole, |it| it.truncate(HEADER))),
        ("half", changed(&whole, |it| it.truncate(it.len() / 2))),
        ("a page", changed(&whole, |it| it.truncate(4096))),
    ] {
        let file = alone(dir.path(), name, &bytes);
        let state = open(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(state.recreated_at.is_some(), "{name}");
        let aside = fs::read(file.with_extension("db.damaged")).unwrap();
        assert!(aside == bytes, "{name}");
    }
}

#[test]
fn any_other_file_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let whole = state_file(dir.path());
    let other = rusqlite::Connection::open(dir.path().join("other.db")).unwrap();
    other
        .execute_batch("CREATE TABLE precious (it TEXT)")
        .unwrap();
    let other = fs::read(dir.path().join("other.db")).unwrap();
    for (name, bytes) in [
        ("text", b"precious\n".repeat(1000)),
        ("short", b"precious".to_vec()),
        ("zeros", vec![0; 8192]),
        ("another database", other.clone()),
        (
            "another one, damaged",
            changed(&other, |it| it[HEADER..].fill(0x5a)),
        ),
        ("no header", changed(&whole, |it| it[..HEADER].fill(0))),
        (
            "of another program",
            changed(&whole, |it| it[APPLICATION].fill(7)),
        ),
    ] {
        let file = alone(dir.path(), name, &bytes);
        // A damaged copy beside it makes it no state file.
        fs::write(file.with_extension("db.damaged"), "ours").unwrap();
        match open(&file) {
            Err(OpenError::Unusable(text)) => {
                assert!(text.contains("is not a state file"), "{name}: {text}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert!(fs::read(&file).unwrap() == bytes, "{name}");
    }
}
