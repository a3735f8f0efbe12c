//! The state file, its disk, and whether it is one of the organization of the key.

use bytesize::ByteSize;
use tokio::time::timeout;

use super::api::Api;
use super::port::Holder;
use super::{MAX_TIME, Outcome, bad, good, warning};
use crate::ledger::{LedgerOptions, Look, OpenError, OtherOrganization};
use crate::util::{blocking, counted, shown_duration};

/// What is known of the state file.
#[derive(Debug)]
pub(super) enum State {
    /// It is in memory.
    Memory,
    /// It could not be read in time.
    Late,
    /// It cannot be used.
    Unusable(OpenError),
    /// It can be used.
    Seen(Look),
}

/// Looks at the file in a thread of its own, since its disk may hang.
pub(super) async fn find(options: &LedgerOptions) -> State {
    let Some(path) = options.path.clone() else {
        return State::Memory;
    };
    match timeout(MAX_TIME, blocking(move || Look::at(&path))).await {
        Ok(Ok(Ok(look))) => State::Seen(look),
        Ok(Ok(Err(error))) => State::Unusable(error),
        Ok(Err(_)) | Err(_) => State::Late,
    }
}

// === impl State ===

impl State {
    /// Reports whether another process has the file; `None` if that is not known.
    pub(super) fn is_locked(&self) -> Option<bool> {
        match self {
            Self::Seen(look) => Some(look.is_locked),
            _ => None,
        }
    }

    /// Says whether the file can be used.
    pub(super) fn judge(&self, options: &LedgerOptions, holder: &Holder) -> Outcome {
        let name = options.shown_path().display();
        let look = match self {
            Self::Memory => return good("in memory, and lost when the process ends"),
            Self::Late => {
                let late = format!(
                    "cannot be read within {}, the longest that check waits; check whether its disk hangs, or give --state.path a file on another one",
                    shown_duration(MAX_TIME)
                );
                return warning(format!("{name} {late}")).in_json(late);
            }
            Self::Unusable(error) => {
                return bad(error).in_json("cannot be used; the text form says why");
            }
            Self::Seen(look) => look,
        };
        let mut said = match &look.content {
            None => "does not exist yet and can be created".to_owned(),
            Some(content) => {
                let records = counted(content.waiting, "log record", "log records");
                let letters = counted(content.dead_letters, "dead letter", "dead letters");
                let by = if look.is_locked {
                    "is in use by another process"
                } else {
                    "can be used"
                };
                format!("{by}; not delivered: {records}; {letters}")
            }
        };
        let size = |bytes| ByteSize(bytes).display().iec();
        if let Some(free) = look.free {
            said += &format!("; {} free on its disk", size(free));
        }
        let max = options.max_size;
        let problem = if look.is_locked && *holder == Holder::None {
            "no exporter answers at --web.listen-address, so it is in use by something else: stop that, or give --state.path another file".to_owned()
        } else if look.room.is_some_and(|room| room < max) {
            format!(
                "that is less than --state.max-size ({}) may need: free some space, or lower it",
                size(max)
            )
        } else {
            return good(format!("{name} {said}")).in_json(said);
        };
        let said = format!("{said}; {problem}");
        warning(format!("{name} {said}")).in_json(said)
    }

    /// Compares the organizations of what the key can read with each other and with that of the file. `None` if nothing names one.
    pub(super) fn organization(&self, api: &Api) -> Option<Outcome> {
        let content = match self {
            Self::Seen(look) => look.content.as_ref(),
            _ => None,
        };
        let stored = content.and_then(|content| content.organization.clone());
        let mut expected = stored.clone();
        let named = api.organizations.iter().filter(|named| !named.is_empty());
        for named in named.clone() {
            match OtherOrganization::check(named, expected.as_deref()) {
                Ok(found) => expected = found.map(|id| id.to_string()),
                Err(error) if stored.is_some() => {
                    let anonymous = "the key belongs to another one than the state file";
                    return Some(bad(error).in_json(anonymous));
                }
                Err(OtherOrganization { found, expected }) => {
                    let anonymous = "entries and tickets belong to different ones";
                    let said = format!(
                        "entries belong to {expected} and tickets to {found}; ask the API's operators"
                    );
                    return Some(bad(said).in_json(anonymous));
                }
            }
        }
        let expected = expected.filter(|_| named.count() > 0)?;
        Some(match stored {
            Some(_) => {
                let same = "the same for the key and the state file";
                good(format!("{expected}, {same}")).in_json(same)
            }
            None => good(expected).in_json("one"),
        })
    }
}
