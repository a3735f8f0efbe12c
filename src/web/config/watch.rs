//! The web configuration in force: read again when a file changes, kept when the new one is broken.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::time::Instant;

use super::doorman::{Doorman, Verdict};
use super::{ConfigError, Current, Peer};

/// How often the files are looked at while there are requests.
const RECHECK: Duration = Duration::from_secs(1);

/// How long a request waits for a look at the files. A file system that hangs must not hold requests.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// A web configuration file and what it says at present; cheap to clone, every clone is the same handle.
#[derive(Clone, Debug)]
pub struct WebConfig {
    shared: Arc<Shared>,
    recheck: Duration,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    current: ArcSwap<Current>,
    watch: Mutex<Watch>,
    /// When the files were looked at.
    looked: Mutex<Instant>,
    /// One look at a time: where one hangs, the others would hang too.
    looking: AtomicBool,
    doorman: Arc<Doorman>,
}

#[derive(Debug)]
struct Watch {
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    /// The failure that the log has been told of.
    told: Option<String>,
}

/// What tells one state of a file from another.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that was put in another's place may have its length and its time, not its number.
    number: (u64, i64, i64),
}

// === impl WebConfig ===

impl WebConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// Where it, or a file that it names, cannot be used.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut files = Vec::new();
        let current = Current::read(path, &mut files)?;
        let watch = Watch {
            stamps: stamps(files),
            told: None,
        };
        let shared = Shared {
            path: path.to_owned(),
            current: ArcSwap::from_pointee(current),
            watch: Mutex::new(watch),
            looked: Mutex::new(Instant::now()),
            looking: AtomicBool::new(false),
            doorman: Doorman::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            recheck: RECHECK,
        })
    }

    /// The same handle, looking at the files at most once in `recheck`; once a second unless said.
    #[must_use]
    pub fn rechecked(self, recheck: Duration) -> Self {
        Self { recheck, ..self }
    }

    /// Whether TLS is on at present.
    pub fn is_tls(&self) -> bool {
        self.shared.current.load().tls.is_some()
    }

    /// When the server's certificate ends; `None` without TLS.
    pub fn certificate_not_after(&self) -> Option<Timestamp> {
        self.shared.current.load().tls.as_ref()?.not_after
    }

    /// Says in the log what is in force.
    pub fn announce(&self) {
        let current = self.shared.current.load();
        for remark in current.tls.iter().flat_map(|tls| &tls.remarks) {
            tracing::warn!(file = %self.shared.path.display(), "web configuration: {remark}");
        }
        tracing::info!(
            file = %self.shared.path.display(),
            tls = current.tls.is_some(),
            client_certificates = current.tls.as_ref().is_some_and(|tls| tls.client_auth.is_mandatory()),
            users = !current.is_open(),
            "web configuration in force"
        );
    }

    /// Reads the files again, changed or not. It blocks: not for a thread of the runtime.
    pub fn reload(&self) {
        self.look(true);
    }

    /// What is in force, after a look at the files where that is due.
    pub(in crate::web) async fn current(&self) -> Arc<Current> {
        if self.is_due() {
            let config = self.clone();
            let look = tokio::task::spawn_blocking(move || {
                config.look(false);
                config.shared.looking.store(false, Ordering::Release);
            });
            let _ = tokio::time::timeout(LONGEST_LOOK, look).await;
        }
        self.shared.current.load_full()
    }

    /// Checks a user's password.
    pub(in crate::web) async fn check(
        &self,
        current: &Current,
        user: &str,
        password: SecretString,
        Peer(client): Peer,
    ) -> Verdict {
        self.shared
            .doorman
            .check(&current.users, user, password, client)
            .await
    }

    fn is_due(&self) -> bool {
        let mut looked = self
            .shared
            .looked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due =
            looked.elapsed() >= self.recheck && !self.shared.looking.swap(true, Ordering::Acquire);
        if due {
            *looked = Instant::now();
        }
        due
    }

    fn look(&self, anyway: bool) {
        let mut watch = self
            .shared
            .watch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let unchanged = watch
            .stamps
            .iter()
            .all(|(path, stamp)| Stamp::of(path) == *stamp);
        if unchanged && !anyway {
            return;
        }
        let current = self.shared.current.load_full();
        let mut files = Vec::new();
        // Before the files are read: what changes meanwhile is seen by the next look.
        let before = stamps(current.files.clone());
        let read = Current::read(&self.shared.path, &mut files).and_then(|next| match current.given_up_by(&next) {
            Some(field) => {
                Err(ConfigError::new(field, "a changed file cannot take this protection away while the program runs; restart it"))
            }
            None => Ok(next),
        });
        let more = files
            .into_iter()
            .filter(|file| !current.files.contains(file))
            .collect();
        watch.stamps = before.into_iter().chain(stamps(more)).collect();
        match read {
            Ok(mut next) => {
                watch.stamps.retain(|(path, _)| next.files.contains(path));
                if let (Some(old), Some(new)) = (&current.bucket, &next.bucket)
                    && old.is_like(new)
                {
                    next.bucket = Some(old.clone());
                }
                self.shared.current.store(Arc::new(next));
                watch.told = None;
                self.announce();
            }
            Err(error) => {
                let error = error.to_string();
                if watch.told.as_ref() != Some(&error) {
                    tracing::error!(file = %self.shared.path.display(), "the web configuration is broken: {error}; the one before stays in force");
                    watch.told = Some(error);
                }
            }
        }
    }
}

fn stamps(files: Vec<PathBuf>) -> Vec<(PathBuf, Option<Stamp>)> {
    files
        .into_iter()
        .map(|path| (Stamp::of(&path), path))
        .map(|(stamp, path)| (path, stamp))
        .collect()
}

// === impl Stamp ===

impl Stamp {
    /// `None` where there is no such file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            number: number(&metadata),
        })
    }
}

#[cfg(unix)]
fn number(metadata: &Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}
