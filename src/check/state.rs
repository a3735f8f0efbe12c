//! The state file: whose it is, whether it can be used, and whether its disk has room.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::{Finding, Level, What};
use crate::ledger::{Content, Look, OpenError, Settings, StatePath};

/// What is known of the state file.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) findings: Vec<Finding>,
    /// An exporter runs with it.
    pub(super) held: bool,
    /// The organization that it belongs to.
    organization: Option<String>,
}

/// Looks at the file and its disk, off the runtime's threads: either may hang.
pub(super) async fn look(settings: &Settings, limit: Duration) -> State {
    let StatePath::File(path) = settings.path.clone() else {
        return State {
            findings: vec![Finding::good(
                What::State,
                "in memory: nothing of it outlives the process",
            )],
            ..State::default()
        };
    };
    let (name, settings) = (path.display().to_string(), settings.clone());
    let looking = tokio::task::spawn_blocking(move || look_at(&path, &settings));
    match tokio::time::timeout(limit, looking).await {
        Ok(Ok(state)) => state,
        Ok(Err(_)) | Err(_) => {
            let said = format!(
                "{name} cannot be read within {}",
                humantime::format_duration(limit)
            );
            let finding = Finding::bad(
                What::State,
                said,
                "see whether its disk hangs, or give --state.path a file on another one",
            );
            State {
                findings: vec![finding],
                ..State::default()
            }
        }
    }
}

/// Whether the key and the state file are of one organization; nothing where one of the two is not known.
pub(super) fn organization(of_the_key: Option<&str>, state: &State) -> Option<Finding> {
    let found = of_the_key?;
    Some(match &state.organization {
        Some(wanted) if wanted != found => Finding::bad(
            What::Organization,
            format!("the API key belongs to organization {found}, but the state file to {wanted}"),
            format!("use a key of organization {wanted}, or give --state.path another file"),
        ),
        Some(_) => Finding::good(
            What::Organization,
            format!("{found}, of the key and of the state file"),
        ),
        None => Finding::good(What::Organization, found),
    })
}

fn look_at(path: &Path, settings: &Settings) -> State {
    let look = match Look::at(path) {
        Ok(look) => look,
        Err(error) => {
            return State {
                findings: vec![told(&error)],
                ..State::default()
            };
        }
    };
    let (held, organization) = match &look.content {
        Content::State { organization, .. } => (look.held, organization.clone()),
        _ => (look.held, None),
    };
    let finding = judge(path, &look, settings);
    let mut findings = vec![finding];
    if findings[0].level != Level::Bad {
        findings.extend(disk(path, settings));
    }
    State {
        findings,
        held,
        organization,
    }
}

fn told(error: &OpenError) -> Finding {
    Finding::told(What::State, Level::Bad, &error.to_string())
}

fn judge(path: &Path, look: &Look, settings: &Settings) -> Finding {
    let name = path.display();
    if let Err(error) = writable(path) {
        return told(&OpenError::Unwritable {
            path: path.to_owned(),
            error: error.to_string(),
        });
    }
    let (base_url, older, waiting, dead_letters) = match &look.content {
        Content::Nothing if look.held => {
            return Finding::good(What::State, format!("{name} is held by a running exporter"));
        }
        Content::Nothing => {
            return Finding::good(
                What::State,
                format!("{name} is not there yet, and can be made"),
            );
        }
        Content::Damaged(how) => {
            let said = format!("{name} is damaged: {how}");
            let advice = "the exporter would set it aside and begin afresh, with counters at 0; put a copy in its place if there is one";
            return Finding::warning(What::State, said, advice);
        }
        Content::State {
            base_url,
            older,
            waiting,
            dead_letters,
            ..
        } => (base_url, *older, *waiting, *dead_letters),
    };
    if *base_url != settings.base_url {
        return told(&OpenError::OtherService {
            path: path.to_owned(),
            found: base_url.clone(),
            wanted: settings.base_url.clone(),
        });
    }
    let mut said = format!("{name} is of this service");
    if look.held {
        said.push_str(", and a running exporter has it");
    } else if older {
        said.push_str(", written by an older version, and is brought up to date at the next start");
    }
    said.push_str(&format!(
        "; {waiting} log records wait, {dead_letters} dead letters"
    ));
    Finding::good(What::State, said)
}

/// Whether the exporter could write the file, and what it keeps beside it.
fn writable(path: &Path) -> io::Result<()> {
    let directory = directory(path);
    if !directory.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no directory {}", directory.display()),
        ));
    }
    #[cfg(unix)]
    {
        use rustix::fs::{Access, access};
        access(&directory, Access::WRITE_OK | Access::EXEC_OK)?;
        if path.exists() {
            access(path, Access::READ_OK | Access::WRITE_OK)?;
        }
    }
    Ok(())
}

fn directory(path: &Path) -> PathBuf {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_owned()
}

#[cfg(unix)]
fn disk(path: &Path, settings: &Settings) -> Option<Finding> {
    let disk = rustix::fs::statvfs(directory(path)).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let taken = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Some(room(free, taken, settings.max_size))
}

#[cfg(not(unix))]
fn disk(_: &Path, _: &Settings) -> Option<Finding> {
    None
}

/// Whether a file of `taken` bytes can grow to its limit.
fn room(free: u64, taken: u64, max_size: u64) -> Finding {
    let (shown, limit) = (
        ByteSize(free).display().iec(),
        ByteSize(max_size).display().iec(),
    );
    if free.saturating_add(taken) >= max_size {
        return Finding::good(
            What::Disk,
            format!("{shown} free for a state file of at most {limit}"),
        );
    }
    Finding::warning(
        What::Disk,
        format!("{shown} free, and the state file may grow to {limit}"),
        "make room, or lower --state.max-size: on a full disk nothing is counted until there is room",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_for_the_whole_file_is_a_warning() {
        assert_eq!(room(100 << 20, 0, 256 << 20).level, Level::Warning);
        assert_eq!(room(100 << 20, 200 << 20, 256 << 20).level, Level::Good);
        assert_eq!(
            room(0, 0, 8 << 20).said,
            "0 B free, and the state file may grow to 8.0 MiB"
        );
        assert_eq!(room(u64::MAX, u64::MAX, 8 << 20).level, Level::Good);
    }

    #[test]
    fn an_organization_is_judged_only_where_both_are_known() {
        let state = |organization: Option<&str>| State {
            organization: organization.map(str::to_owned),
            ..State::default()
        };
        assert_eq!(organization(None, &state(Some("1"))), None);
        assert_eq!(
            organization(Some("1"), &state(None)).expect("known").level,
            Level::Good
        );
        assert_eq!(
            organization(Some("1"), &state(Some("1")))
                .expect("known")
                .level,
            Level::Good
        );
        assert_eq!(
            organization(Some("2"), &state(Some("1")))
                .expect("known")
                .level,
            Level::Bad
        );
    }
}
