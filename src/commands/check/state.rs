//! The state file, its disk, and whether it belongs to the organization of the key.

use bytesize::ByteSize;
use tokio::time::timeout;

use super::api::MAX_TIME;
use super::report::Level::{Bad, Good, NotTested, Warning};
use super::report::Line;
use crate::ledger::{Inspection, LedgerOptions, OtherOrganization};
use crate::util::{counted, shown_duration};

/// What is known of the state file, or the line of one in memory or that cannot be used.
pub(super) type State = Result<Inspection, Line>;

/// Looks at the file in a thread of its own, since its disk may hang.
pub(super) async fn look(options: &LedgerOptions) -> State {
    let line = |level, text| Line::new(level, "state", text);
    let Some(path) = options.path.clone() else {
        let text = "in memory, and lost when the process ends";
        return Err(line(Good, text.to_owned()));
    };
    let look = tokio::task::spawn_blocking(move || Inspection::at(&path));
    match timeout(MAX_TIME, look).await {
        Ok(Ok(look)) => look.map_err(|error| line(Bad, error.to_string())),
        Ok(Err(_)) | Err(_) => Err(line(
            NotTested,
            format!(
                "{} cannot be read within {}; check whether its disk hangs, or give --state.path a file on another one",
                options.shown_path().display(),
                shown_duration(MAX_TIME)
            ),
        )),
    }
}

/// Returns whether the file can be used. `is_port_free` means that no exporter has the addresses.
pub(super) fn line(state: &State, options: &LedgerOptions, is_port_free: bool) -> Line {
    let look = match state {
        Err(line) => return line.clone(),
        Ok(look) => look,
    };
    let mut text = options.shown_path().display().to_string();
    text += match (&look.content, look.is_locked) {
        (None, _) => " does not exist yet and can be created",
        (Some(_), true) => " is in use by another process",
        (Some(_), false) => " can be used",
    };
    if let Some(content) = &look.content {
        let records = counted(content.waiting, "log record", "log records");
        let letters = counted(content.dead_letters, "dead letter", "dead letters");
        text += &format!("; not delivered: {records}; {letters}");
    }
    let size = |bytes| ByteSize(bytes).display().iec();
    if let Some(free) = look.free {
        text += &format!("; {} free on its disk", size(free));
    }
    let (max, mut level) = (options.max_size, Warning);
    if look.is_locked && is_port_free {
        text += "; nothing listens at --web.listen-address, so another program uses the file: stop it, or give --state.path another file";
    } else if look.room.is_some_and(|room| room < max) {
        text += &format!(
            "; that is less than --state.max-size ({}) may need: free some space, or lower it",
            size(max)
        );
    } else {
        level = Good;
    }
    Line::new(level, "state", text)
}

/// Compares the organization that entries and tickets name with that of the file. `None` if nothing names one.
pub(super) fn organization(state: &State, named: &[i64]) -> Option<Line> {
    let content = state.as_ref().ok().and_then(|look| look.content.as_ref());
    let stored = content.and_then(|content| content.organization.as_deref());
    if named.is_empty() {
        return None;
    }
    let (level, text) = match (OtherOrganization::check(named, stored), stored) {
        (Err(error), _) => (Bad, error.to_string()),
        (Ok(_), Some(id)) => (
            Good,
            format!("{id}, the same for the key and the state file"),
        ),
        (Ok(id), None) => (Good, id?.to_string()),
    };
    Some(Line::new(level, "organization", text))
}
