//! The state file: whether it can be used, which organization it belongs to, and whether its disk has room.

use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;

use super::Finding;
use crate::ledger::{Content, Look, OpenError, Settings, StatePath};

const CHECK: &str = "state";

/// What is known of the state file.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) findings: Vec<Finding>,
    /// Whether an exporter runs with it.
    pub(super) held: bool,
    organization: Option<String>,
}

/// Looks at the file and its disk in a thread of its own, since either may hang.
pub(super) async fn check(settings: &Settings, limit: Duration) -> State {
    let StatePath::File(path) = settings.path.clone() else {
        return Finding::good(CHECK, "in memory, and lost when the process ends").into();
    };
    let (name, settings) = (path.display().to_string(), settings.clone());
    let look = tokio::task::spawn_blocking(move || State::look(&path, &settings));
    match tokio::time::timeout(limit, look).await {
        Ok(Ok(state)) => state,
        _ => {
            let said = format!(
                "cannot read {name} within {}",
                humantime::format_duration(limit)
            );
            let advice = "check whether its disk hangs, or give --state.path a file on another one";
            Finding::bad(CHECK, said, advice).into()
        }
    }
}

// === impl State ===

impl From<Finding> for State {
    fn from(finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            ..Self::default()
        }
    }
}

impl State {
    /// Compares the organization of the key with that of the state file.
    pub(super) fn organization(&self, of_key: Option<&str>) -> Option<Finding> {
        const CHECK: &str = "organization";
        let of_key = of_key?;
        Some(match &self.organization {
            Some(ours) if ours != of_key => Finding::bad(
                CHECK,
                format!(
                    "the API key belongs to organization {of_key}, but the state file to {ours}"
                ),
                format!("use a key of organization {ours}, or give --state.path another file"),
            ),
            Some(_) => Finding::good(
                CHECK,
                format!("{of_key}, that of the key and of the state file"),
            ),
            None => Finding::good(CHECK, of_key),
        })
    }

    fn look(path: &Path, settings: &Settings) -> Self {
        let name = path.display();
        let look = match writable(path).and_then(|()| Look::at(path)) {
            Ok(look) => look,
            Err(error) => return Finding::error(CHECK, error).into(),
        };
        let mut state = Self {
            held: look.held,
            ..Self::default()
        };
        state.findings.push(match look.content {
            Content::Nothing if look.held => {
                Finding::good(CHECK, format!("{name} is in use by a running exporter"))
            }
            Content::Nothing => Finding::good(CHECK, format!("{name} does not exist yet and can be created")),
            Content::Damaged(how) => Finding::warning(
                CHECK,
                format!("{name} is damaged: {how}"),
                "the exporter would rename it and begin with a new one, with counters at 0; restore a copy if there is one",
            ),
            Content::State { base_url, .. } if !settings.may_use(&base_url) => {
                let (path, expected) = (settings.path.clone(), settings.base_url.clone());
                Finding::error(CHECK, OpenError::OtherOwner { path, found: base_url, expected })
            }
            Content::State { base_url, organization, older, waiting, dead_letters } => {
                state.organization = organization;
                let mut said = format!("{name} can be used");
                if look.held {
                    said.push_str(", and a running exporter uses it");
                } else if older {
                    said.push_str(", and will be migrated from an older version");
                }
                if base_url != settings.base_url {
                    said.push_str(&format!(", though it was written with {base_url}"));
                }
                said.push_str(&format!("; {waiting} log records wait, {dead_letters} dead letters"));
                Finding::good(CHECK, said)
            }
        });
        #[cfg(unix)]
        state.findings.extend(disk(path, settings.max_size));
        state
    }
}

/// Checks whether this user could write the file and the files beside it.
fn writable(path: &Path) -> Result<(), OpenError> {
    let directory = directory(path);
    let error = if !directory.is_dir() {
        Some(format!("there is no directory {}", directory.display()))
    } else {
        access(directory, path).err().map(|error| error.to_string())
    };
    let path = path.to_owned();
    error.map_or(Ok(()), |error| Err(OpenError::Unwritable { path, error }))
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn access(directory: &Path, file: &Path) -> std::io::Result<()> {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if file.exists() {
        access(file, Access::READ_OK | Access::WRITE_OK)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn access(_: &Path, _: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn disk(path: &Path, max_size: u64) -> Option<Finding> {
    let disk = rustix::fs::statvfs(directory(path)).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let used = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let limit = ByteSize(max_size).display().iec();
    let said = format!("{} free", ByteSize(free).display().iec());
    if free.saturating_add(used) >= max_size {
        let said = format!("{said}, for a state file of at most {limit}");
        return Some(Finding::good("disk", said));
    }
    Some(Finding::warning(
        "disk",
        format!("{said}, but the state file may grow to {limit}"),
        "free some space, or lower --state.max-size; on a full disk nothing is counted",
    ))
}
