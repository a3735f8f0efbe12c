//! Makes the I/O of an exporter on its state file fail, by a library that is preloaded into it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binary::Launch;

/// Every operation that can fail.
pub(crate) const ALL: &str = "open read pread write sync truncate";

/// The disk of a state file.
pub(crate) struct Disk {
    control: PathBuf,
    file: PathBuf,
}

// === impl Disk ===

impl Disk {
    /// Puts the state file of these exporters on a disk that can fail.
    pub(crate) fn below(launch: Launch) -> (Launch, Self) {
        let disk = Self {
            control: launch.dir().join("faults"),
            file: launch.dir().canonicalize().unwrap().join("state.db"),
        };
        let launch = launch
            .on_disk()
            .env("LD_PRELOAD", &preloaded("disk_faults"));
        (launch.env("DISK_FAULTS", &disk.control), disk)
    }

    /// From now on these operations on the file, and on those beside it, fail with an error such as `EIO`.
    pub(crate) fn fail(&self, error: &str, operations: &str) {
        let line = format!("{error} {} {operations}", self.file.display());
        // A process may read it at any time.
        let new = self.control.with_extension("new");
        fs::write(&new, line).unwrap();
        fs::rename(new, &self.control).unwrap();
    }

    pub(crate) fn heal(&self) {
        fs::remove_file(&self.control).unwrap();
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

/// Returns the path of a library to preload, which is compiled from its source in this directory.
pub(crate) fn preloaded(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Another test may use the library.
    let new = tempfile::NamedTempFile::new_in(directory).unwrap();
    let source = format!("{}/tests/support/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    let compiled = compiler.arg(new.path()).arg(source).status();
    assert!(compiled.unwrap().success(), "cc failed");
    let library = directory.join(format!("{name}.so"));
    new.persist(&library).unwrap();
    library
}
