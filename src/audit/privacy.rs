//! What records and dead letters say of users, and of `metadata`.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use crate::ledger::{ActorPrivacy, ActorRef};

/// Takes what must not leave from the text of an entry.
pub trait Redact: Debug + Send + Sync {
    /// Returns the text without it.
    fn redact(&self, text: &str) -> String;
}

/// `--otlp.actor` and `--otlp.redact`.
#[derive(Clone, Debug, Default)]
pub struct Privacy {
    /// `None` if nothing has to be redacted.
    pub(crate) redact: Option<Arc<dyn Redact>>,
    /// Makes the hash that a record has in place of the actor.
    pub(crate) hash: Option<ActorPrivacy>,
}

// === impl Privacy ===

impl Privacy {
    /// Returns the text of an entry as it may leave.
    pub(crate) fn text<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        match &self.redact {
            Some(redact) => redact.redact(raw).into(),
            None => raw.into(),
        }
    }

    /// Returns the hash of an actor's id.
    pub(crate) fn hash(&self, actor: Option<&ActorRef>) -> Option<String> {
        self.hash.as_ref()?.label(Some(actor?))
    }
}
