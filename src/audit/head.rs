//! What one step of a walk needs of it.

use crate::ledger::{Direction, EventId, Walk, WalkKind};

/// The walk and its deepest mark.
pub(super) struct Head {
    pub(super) kind: WalkKind,
    pub(super) direction: Direction,
    pub(super) floor: Option<jiff::Timestamp>,
    pub(super) started_at: jiff::Timestamp,
    pub(super) joined: bool,
    pub(super) depth: usize,
    pub(super) before: Option<String>,
    pub(super) end: Option<String>,
    pub(super) bottom: EventId,
}

/// Copies what one step needs: a walk of a thousand pages is not copied for each of them.
pub(super) trait CloneHead {
    fn clone_head(&self) -> Option<Head>;
}

// === impl Option<Walk> ===

impl CloneHead for Option<Walk> {
    fn clone_head(&self) -> Option<Head> {
        let walk = self.as_ref()?;
        let mark = walk.marks.last()?;
        Some(Head {
            kind: walk.kind,
            direction: walk.direction,
            floor: walk.floor,
            started_at: walk.started_at,
            joined: walk.joined,
            depth: walk.marks.len() - 1,
            before: mark.before.clone(),
            end: mark.end.clone(),
            bottom: mark.bottom,
        })
    }
}
