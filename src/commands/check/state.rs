//! The state file: whether it can be used, which organization it belongs to, and whether its disk has room.

use std::io;
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
    if let Ok(Ok(state)) = tokio::time::timeout(limit, look).await {
        return state;
    }
    let limit = humantime::format_duration(limit);
    let advice = "check whether its disk hangs, or give --state.path a file on another one";
    Finding::bad(CHECK, format!("cannot read {name} within {limit}"), advice).into()
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
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        let directory = directory.unwrap_or(Path::new("."));
        let unwritable = |error: io::Error| OpenError::Unwritable {
            path: path.to_owned(),
            error: error.to_string(),
        };
        let look = writable(directory, path).map_err(unwritable);
        let look = match look.and_then(|()| Look::at(path)) {
            Ok(look) => look,
            Err(error) => return Finding::error(CHECK, error).into(),
        };
        let mut state = Self::from(content(path, &look, settings));
        state.held = look.held;
        state
            .findings
            .extend(disk(directory, path, settings.max_size));
        if let Content::State { organization, .. } = look.content {
            state.organization = organization;
        }
        state
    }
}

fn content(path: &Path, look: &Look, settings: &Settings) -> Finding {
    let name = path.display();
    match &look.content {
        Content::Nothing if look.held => {
            Finding::good(CHECK, format!("{name} is in use by a running exporter"))
        }
        Content::Nothing => Finding::good(
            CHECK,
            format!("{name} does not exist yet and can be created"),
        ),
        Content::Damaged(how) => Finding::warning(
            CHECK,
            format!("{name} is damaged: {how}"),
            "the exporter would rename it and begin with a new one, with counters at 0; restore a copy if there is one",
        ),
        Content::State {
            base_url,
            older,
            waiting,
            dead_letters,
            ..
        } => {
            if let Err(error) = settings.check_owner(base_url) {
                return Finding::error(CHECK, error);
            }
            let used = match (look.held, older) {
                (true, _) => ", and a running exporter uses it",
                (false, true) => ", and will be migrated from an older version",
                (false, false) => "",
            };
            let moved = match *base_url == settings.base_url {
                true => String::new(),
                false => format!(", though it was written with {base_url}"),
            };
            Finding::good(
                CHECK,
                format!(
                    "{name} can be used{used}{moved}; {waiting} log records wait, {dead_letters} dead letters"
                ),
            )
        }
    }
}

/// Checks whether this user could write the file and the files beside it.
#[cfg(unix)]
fn writable(directory: &Path, file: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if file.exists() {
        access(file, Access::READ_OK | Access::WRITE_OK)?;
    }
    Ok(())
}

#[cfg(unix)]
fn disk(directory: &Path, path: &Path, max_size: u64) -> Option<Finding> {
    let disk = rustix::fs::statvfs(directory).ok()?;
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

#[cfg(not(unix))]
fn writable(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn disk(_: &Path, _: &Path, _: u64) -> Option<Finding> {
    None
}
