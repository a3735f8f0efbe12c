//! The state file, its disk, and whether it is one of the organization of the key.

use bytesize::ByteSize;
use tokio::time::timeout;

use super::api::MAX_TIME;
use super::report::{Level, Outcome, bad, good, not_tested};
use crate::ledger::{LedgerOptions, Look, OtherOrganization};
use crate::util::{counted, shown_duration};

/// What is known of the state file.
#[derive(Debug)]
pub(super) enum State {
    /// It is in memory, or cannot be looked at.
    Unknown(Outcome),
    /// It can be used.
    Seen(Look),
}

/// Looks at the file in a thread of its own, since its disk may hang.
pub(super) async fn find(options: &LedgerOptions) -> State {
    let Some(path) = options.path.clone() else {
        return State::Unknown(good("in memory, and lost when the process ends"));
    };
    let look = tokio::task::spawn_blocking(move || Look::at(&path));
    State::Unknown(match timeout(MAX_TIME, look).await {
        Ok(Ok(Ok(look))) => return State::Seen(look),
        Ok(Ok(Err(error))) => bad(error),
        Ok(Err(_)) | Err(_) => not_tested(format!(
            "{} cannot be read within {}; check whether its disk hangs, or give --state.path a file on another one",
            options.shown_path().display(),
            shown_duration(MAX_TIME)
        )),
    })
}

// === impl State ===

impl State {
    /// Reports whether another process has the file.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self, Self::Seen(look) if look.is_locked)
    }

    /// Says whether the file can be used. `is_port_free` says that no exporter has the addresses.
    pub(super) fn judge(&self, options: &LedgerOptions, is_port_free: bool) -> Outcome {
        let look = match self {
            Self::Unknown(outcome) => return outcome.clone(),
            Self::Seen(look) => look,
        };
        let mut said = match &look.content {
            None => "does not exist yet and can be created".to_owned(),
            Some(content) => {
                let records = counted(content.waiting, "log record", "log records");
                let letters = counted(content.dead_letters, "dead letter", "dead letters");
                let by = match look.is_locked {
                    true => "is in use by another process",
                    false => "can be used",
                };
                format!("{by}; not delivered: {records}; {letters}")
            }
        };
        let size = |bytes| ByteSize(bytes).display().iec();
        if let Some(free) = look.free {
            said += &format!("; {} free on its disk", size(free));
        }
        let (max, mut level) = (options.max_size, Level::Warning);
        if look.is_locked && is_port_free {
            said += "; nothing listens at --web.listen-address, so it is in use by something else: stop that, or give --state.path another file";
        } else if look.room.is_some_and(|room| room < max) {
            said += &format!(
                "; that is less than --state.max-size ({}) may need: free some space, or lower it",
                size(max)
            );
        } else {
            level = Level::Good;
        }
        let name = options.shown_path().display();
        Outcome::new(level, format!("{name} {said}"))
    }

    /// Compares the organizations of what the key can read with each other and with that of the file. `None` if nothing names one.
    pub(super) fn organization(&self, organizations: &[Vec<i64>]) -> Option<Outcome> {
        let stored = match self {
            Self::Seen(look) => look.content.as_ref().and_then(|it| it.organization.clone()),
            Self::Unknown(_) => None,
        };
        let mut expected = stored.clone();
        let named = organizations.iter().filter(|named| !named.is_empty());
        for named in named.clone() {
            match OtherOrganization::check(named, expected.as_deref()) {
                Ok(found) => expected = found.map(|id| id.to_string()),
                Err(error) if stored.is_some() => return Some(bad(error)),
                Err(OtherOrganization { found, expected }) => {
                    return Some(bad(format!(
                        "entries belong to {expected} and tickets to {found}; ask the API's operators"
                    )));
                }
            }
        }
        let id = expected.filter(|_| named.count() > 0)?;
        Some(good(match stored {
            Some(_) => format!("{id}, the same for the key and the state file"),
            None => id,
        }))
    }
}
