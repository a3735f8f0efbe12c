//! The state file as a file: locked, and still in its place.
//!
//! The lock is on the file itself, so that a second process is refused whatever name it uses. The process opens the file once for it and keeps it
//! open until its end, because closing a second descriptor would drop the locks that SQLite has on the file.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::schema::PROGRAM_VERSION;
use super::way_out;
use crate::util::one_line;

/// How much of the file is read at once.
const READ_BYTES: usize = 64 * 1024;

/// SQLite creates a file of this size beside the state file.
const INDEX_BYTES: usize = 32 * 1024;

/// The maximum length of the name of a version, in characters.
const MAX_VERSION: usize = 64;

/// A state file that no other process uses.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    /// Absolute, without symbolic links.
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "state file {0} is in use by another process; stop that one, or set --state.path to another file"
    )]
    Locked(PathBuf),
    /// It is damaged: it can be read, and what is in it is wrong.
    #[error("{}", damage(.path, .what))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// It cannot be used as it is; the text says why, and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The disk or SQLite failed; another attempt may succeed.
    #[error("cannot open state file {path}: {error}; {}", way_out(error))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The message of SQLite.
        error: rusqlite::Error,
    },
}

// === impl StateFile ===

impl StateFile {
    /// Opens the file and locks it. If it is missing, an empty one is created. No other user may read it from then on.
    pub(super) fn claim(path: &Path) -> Result<Self, OpenError> {
        check_regular(path)?;
        let io = |error: io::Error| OpenError::io(path, &error);
        let file = private().open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        // It fails if the file is another user's.
        let _ = rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600));
        Ok(Self {
            path: path.canonicalize().map_err(io)?,
            id: id(&file.metadata().map_err(io)?),
            file,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether the path still names this file. It does as long as nothing says otherwise: a disk can fail.
    pub(super) fn is_in_place(&self) -> bool {
        match self.path.metadata() {
            Ok(metadata) => id(&metadata) == self.id,
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }

    /// Reads the file and its write-ahead log from beginning to end, as SQLite does. SQLite calls it damage if a disk cannot read them.
    pub(super) fn read_through(&self) -> io::Result<()> {
        let mut log = None;
        match File::open(with_suffix(&self.path, "-wal")) {
            Ok(file) => log = Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut bytes = vec![0; READ_BYTES];
        for file in [&self.file].into_iter().chain(&log) {
            let mut at = 0;
            loop {
                match file.read_at(&mut bytes, at)? {
                    0 => break,
                    read => at += read as u64,
                }
            }
        }
        Ok(())
    }
}

// === impl OpenError ===

impl OpenError {
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        Self::Sqlite { path, error }
    }

    /// The file, or one beside it, could not be opened, locked or renamed.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        use rustix::io::Errno as E;
        // These errors stay until the user changes something. Any other one may be transient.
        let lasting = [E::NOENT, E::ACCESS, E::PERM, E::ISDIR, E::NOTDIR, E::ROFS];
        let lasting = lasting.into_iter().chain([E::NAMETOOLONG, E::LOOP]);
        if lasting
            .map(Some)
            .any(|errno| errno == E::from_io_error(error))
        {
            return Self::unwritable(path, error);
        }
        let code = match error.kind() {
            io::ErrorKind::StorageFull => rusqlite::ffi::SQLITE_FULL,
            _ => rusqlite::ffi::SQLITE_IOERR,
        };
        let code = rusqlite::ffi::Error::new(code);
        let error = rusqlite::Error::SqliteFailure(code, Some(error.to_string()));
        Self::sqlite(path, error)
    }

    /// The file or its directory cannot be written.
    fn unwritable(path: &Path, error: &dyn Display) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let owner = path.metadata().map_or(user, |file| file.uid());
        let remedy = match owner == user {
            true => String::new(),
            false => format!(
                "it belongs to user {owner}, and this process runs as user {user}: run it as that user, change the owner of the file, or "
            ),
        };
        Self::Unusable(format!(
            "cannot open state file {}: {error}; {remedy}set --state.path to a file in a directory that this user can write, or to :memory:",
            path.display()
        ))
    }

    /// It is a directory, a device or the like.
    fn irregular(path: &Path) -> Self {
        Self::Unusable(format!(
            "{} is not a regular file; set --state.path to a file, or to :memory:",
            path.display()
        ))
    }

    /// It does not exist.
    pub(super) fn missing(path: &Path) -> Self {
        Self::Unusable(format!(
            "state file {} does not exist; set --state.path to the exporter's own, or run this in the exporter's directory",
            path.display()
        ))
    }

    pub(super) fn foreign(path: &Path) -> Self {
        Self::Unusable(format!(
            "{} is not a state file of this program; set --state.path to another file",
            path.display()
        ))
    }
}

/// Checks that a path names a file or nothing.
pub(super) fn check_regular(path: &Path) -> Result<(), OpenError> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(OpenError::irregular(path)),
        _ => Ok(()),
    }
}

/// Returns what is wrong with a damaged file, and what to do. This program never renames or replaces it.
pub(super) fn damage(path: &Path, what: &str) -> String {
    format!(
        "state file {} is damaged: {what}; restore a copy of it, or move it away: {}",
        path.display(),
        move_away(path)
    )
}

/// Returns why a file that another version wrote cannot be read, and what to do.
pub(super) fn other_version(path: &Path, version: Option<&str>, why: &str) -> String {
    let version = version.map(|version| one_line(version, MAX_VERSION));
    format!(
        "state file {} was written by {} and cannot be read by {PROGRAM_VERSION}: {why}; run that version, or move the file away: {}",
        path.display(),
        version.map_or("another version".to_owned(), |version| format!(
            "version {version}"
        )),
        move_away(path)
    )
}

/// Returns the command that moves a file away, and what a start without it means.
fn move_away(path: &Path) -> String {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    format!(
        "`mv {} {}`, and the same for its -wal, if there is one; then counters begin at 0, and log records that wait in the old file are not sent",
        quoted(path),
        quoted(&with_suffix(path, ".old"))
    )
}

/// Creates a file beside the state file, locks and writes it to the disk, and deletes it again: SQLite does not say why it cannot create one.
pub(super) fn probe(path: &Path) -> Result<(), OpenError> {
    let beside = with_suffix(path, ".probe");
    let written = private().open(&beside).and_then(|mut file| {
        // Another process may look at the same time.
        if let Err(TryLockError::Error(error)) = file.try_lock() {
            return Err(error);
        }
        file.write_all(&[0; INDEX_BYTES])?;
        file.sync_all()
    });
    let removed = match std::fs::remove_file(beside) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let done = written.and(removed);
    done.map_err(|error| OpenError::io(path, &error))
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
