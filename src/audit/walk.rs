//! A walk: down from the top, only remembering where each page ends; then up, taking, each page one transaction.

use crate::api::{AuditPage, Cursor, Priority};
use crate::ledger::{
    Commit, Direction, Disposition, Gap, GapReason, Mark, NewEntry, Walk, WalkChange, WalkKind,
};

use super::fetch::{Fetched, Place, STRIKES, STRIKES_BEFORE_A_GAP};
use super::head::{CloneHead, Head};
use super::tail::{Tail, TailError};
use super::view::{Rule, View};

/// Pages of the way down kept in memory.
const KEPT_PAGES: usize = 8;

/// Bytes of such pages kept in memory.
const KEPT_BYTES: usize = 8 * 1024 * 1024;

/// What the way down found below the deepest mark.
enum Ground {
    /// The page that stands on what the ledger holds, or on the floor.
    Page(View),
    /// Nothing.
    Nothing,
    /// Something that cannot be read.
    Unreadable(Gap),
}

// === impl Tail ===

impl Tail {
    /// A walk that begins with `top`.
    pub(super) fn new_walk(
        &self,
        kind: WalkKind,
        floor: Option<jiff::Timestamp>,
        top: &View,
        before: Option<String>,
    ) -> Walk {
        let marks = top.bottom().map(|bottom| Mark {
            before,
            end: top.end().map(|end| end.as_str().to_owned()),
            bottom,
        });
        Walk {
            kind,
            direction: Direction::Down,
            floor,
            started_at: top.page.server_time,
            joined: false,
            marks: marks.into_iter().collect(),
        }
    }

    /// Begins a walk; `commit` holds what else is to be written with its beginning.
    pub(super) async fn begin_walk(
        &mut self,
        kind: WalkKind,
        floor: Option<jiff::Timestamp>,
        top: View,
        commit: Option<Commit>,
    ) -> Result<(), TailError> {
        self.passed.clear();
        let walk = self.new_walk(kind, floor, &top, None);
        tracing::debug!(
            walk = kind.as_str(),
            floor = floor.map(tracing::field::display),
            "a walk begins"
        );
        let mut commit = commit.unwrap_or_else(|| self.commit(&top));
        // A re-read over a single page is the rule: it needs no way back.
        if kind == WalkKind::Reread
            && (top.is_empty() || top.end().is_none() || top.is_below(floor))
        {
            commit.entries = self.late(&top);
            commit.reread_at = Some(top.page.server_time);
            return self.write(commit).await;
        }
        if kind != WalkKind::Reread
            && self
                .state
                .walk
                .as_ref()
                .is_some_and(|walk| walk.kind == WalkKind::Reread)
        {
            // A hole goes first; the re-read it ends is made up for afterwards.
            self.next_reread = tokio::time::Instant::now();
        }
        let top_at_birth = self
            .state
            .walk_top
            .clone()
            .filter(|_| kind == WalkKind::FirstStart);
        commit.walk = Some(WalkChange::Begin {
            walk,
            top: top_at_birth,
        });
        let idle = kind == WalkKind::Reread && self.late(&top).is_empty();
        self.write(commit).await?;
        self.idle_mark = idle;
        self.keep(0, top);
        Ok(())
    }

    /// One page of the walk under way.
    pub(super) async fn walk_step(&mut self) -> Result<(), TailError> {
        self.find_newest_at_birth().await?;
        let Some(walk) = &self.state.walk else {
            return Ok(());
        };
        match (walk.direction, walk.marks.last()) {
            (Direction::Down, Some(_)) => self.down().await,
            (Direction::Up, Some(_)) => self.up().await,
            // No walk is without a mark.
            (_, None) => {
                let mut commit = Commit::new(walk.started_at);
                commit.walk = Some(WalkChange::End);
                self.write(commit).await
            }
        }
    }

    async fn down(&mut self) -> Result<(), TailError> {
        let Some(walk) = self.state.walk.clone_head() else {
            return Ok(());
        };
        let Some(end) = walk.end.clone() else {
            return self.ground(Ground::Nothing).await;
        };
        let place = Place::Before(Cursor::new(end.clone()));
        let page = match self
            .fetcher
            .page_for_sure(&place, self.priority(walk.kind), patience(walk.kind))
            .await?
        {
            Fetched::Page(page) => page,
            Fetched::Refused(error) => return self.refused(&error.to_string()).await,
        };
        let view = self.view(page).await?;
        if view.is_empty() {
            // A cursor of an earlier process may have grown old, and some services say so with an empty page. The live tail would find what
            // is missing as a gap; a range of history would seem complete.
            let fresh = self
                .passed
                .back()
                .is_some_and(|(depth, _)| *depth == walk.depth);
            if self.until.is_some() && !fresh && !self.rewalked {
                return self
                    .refused("there is nothing below a cursor of an earlier process")
                    .await;
            }
            return self.ground(Ground::Nothing).await;
        }
        // Some services repeat the entry of the cursor: where there is room for more, it was the last.
        let has_room = self.fetcher.limit() > 1 && (self.largest_page > 1 || !view.page.has_more);
        if has_room && view.ids().eq([walk.bottom]) {
            return self.ground(Ground::Nothing).await;
        }
        // A service may lead in a circle, which a range of history has no floor against.
        let circle = || {
            self.state
                .walk
                .iter()
                .flat_map(|walk| &walk.marks)
                .any(|mark| view.bottom() == Some(mark.bottom))
        };
        let stuck = view.bottom() == Some(walk.bottom)
            || self.until.is_some() && circle()
            || view.end().is_some_and(|next| next.as_str() == end);
        if stuck {
            let message = "the service answers the same page again and again, so older entries cannot be reached".to_owned();
            let gap = Gap {
                reason: GapReason::NoProgress,
                from: self.state.frontier_at,
                to: view.oldest(),
                message,
            };
            return self.ground(Ground::Unreadable(gap)).await;
        }
        let reached = view.is_below(walk.floor) || view.end().is_none();
        let joined =
            walk.kind != WalkKind::Reread && view.is_joined(&self.ledger, self.state.frontier_at);
        if reached || joined {
            return self.ground(Ground::Page(view)).await;
        }
        let (Some(bottom), next) = (
            view.bottom(),
            view.end().map(|next| next.as_str().to_owned()),
        ) else {
            return Ok(());
        };
        let depth = if self.idle_mark {
            walk.depth
        } else {
            walk.depth + 1
        };
        let idle = walk.kind == WalkKind::Reread && self.late(&view).is_empty()
            || self.is_above_range(&view);
        let mut commit = Commit::new(view.page.server_time);
        commit.walk = Some(WalkChange::Mark {
            depth,
            mark: Mark {
                before: Some(end),
                end: next,
                bottom,
            },
        });
        self.write(commit).await?;
        self.idle_mark = idle;
        self.keep(depth, view);
        Ok(())
    }

    /// The way down has ended: the page there is taken, and the walk turns.
    async fn ground(&mut self, ground: Ground) -> Result<(), TailError> {
        let Some(walk) = self.state.walk.clone_head() else {
            return Ok(());
        };
        let depth = walk.depth + 1;
        let looks_for_frontier = matches!(walk.kind, WalkKind::CatchUp | WalkKind::Recovery);
        let mut joined = !self.ledger.holds_any();
        let (mut oldest, mut new) = (None, walk.joined);
        let mut commit = Commit::new(walk.started_at);
        match ground {
            Ground::Page(view) => {
                self.found(&view);
                joined = joined || view.is_joined(&self.ledger, self.state.frontier_at);
                oldest = view.oldest();
                commit = self.commit(&view);
                let rule = if looks_for_frontier {
                    Rule::Frontier
                } else {
                    self.rule(&walk)
                };
                commit.entries = self.take(rule, &view);
                new = self.is_passed(&walk, &view);
                if walk.kind.moves_frontier() {
                    self.advance(&mut commit, &view);
                }
            }
            Ground::Nothing => {}
            Ground::Unreadable(gap) if walk.kind == WalkKind::Reread => {
                tracing::warn!(
                    reason = gap.reason.as_str(),
                    "the re-read ends early: {}",
                    gap.message
                );
            }
            Ground::Unreadable(gap) => commit.gaps.push(gap),
        }
        if self.vanished.is_some() && commit.gaps.is_empty() {
            commit.gaps.push(overtaken(self.state.frontier_at));
        }
        // Where only other filters showed what the ledger holds, nothing is missing.
        if walk.kind != WalkKind::Reread
            && !joined
            && commit.gaps.is_empty()
            && !self.filters_changed_since_frontier()
        {
            commit.gaps.push(Gap {
                reason: GapReason::FrontierGone,
                from: self.state.frontier_at,
                to: oldest,
                message: "no entry that the exporter had read is left below the new ones, so entries between them may have been removed before they were read".to_owned(),
            });
        }
        commit.walk = Some(WalkChange::Up {
            depth,
            joined: if looks_for_frontier { joined } else { new },
        });
        self.write(commit).await?;
        self.vanished = None;
        Ok(())
    }

    /// Takes the deepest page that is left.
    async fn up(&mut self) -> Result<(), TailError> {
        let Some(walk) = self.state.walk.clone_head() else {
            return Ok(());
        };
        let view = match self.passed.pop_back() {
            Some((depth, view)) if depth == walk.depth => view,
            _ => match self.again(&walk).await? {
                Again::Page(view) => view,
                Again::Skip => return self.skip(None).await,
                Again::Refused(error) => return self.refused(&error).await,
            },
        };
        if view.is_empty() {
            if walk.before.is_some() && !self.rewalked {
                // The entries were there on the way down. The cursor may have grown old; whether they are gone the next way down tells.
                self.vanished = (walk.kind != WalkKind::Reread).then_some(walk.bottom);
                return self
                    .refused("there is nothing any more where entries were on the way down")
                    .await;
            }
            let gap = (walk.kind != WalkKind::Reread).then(|| overtaken(self.state.frontier_at));
            return self.skip(gap).await;
        }
        let end = view.end().map(|end| end.as_str().to_owned());
        let unchanged = walk.before.is_none()
            || end == walk.end
            || view.contains(walk.bottom)
            || view.is_joined(&self.ledger, self.state.frontier_at);
        if !unchanged && let (Some(bottom), Some(_)) = (view.bottom(), &end) {
            // A late row pushed the last entries out: read on until it joins the page below.
            let mut commit = Commit::new(view.page.server_time);
            commit.walk = Some(WalkChange::Mark {
                depth: walk.depth,
                mark: Mark {
                    before: walk.before,
                    end,
                    bottom,
                },
            });
            self.write(commit).await?;
            self.idle_mark = false;
            self.keep(walk.depth, view);
            return Ok(());
        }
        let mut commit = self.commit(&view);
        commit.entries = self.take(self.rule(&walk), &view);
        if walk.kind.moves_frontier() {
            self.advance(&mut commit, &view);
        }
        // What is above something new is new.
        let joined = self.is_passed(&walk, &view)
            || commit
                .entries
                .iter()
                .any(|entry| entry.disposition == Disposition::Live);
        self.finish(&mut commit, &walk, joined);
        if let Err(error) = self.write(commit).await {
            // The top page cannot be asked for again: without it the way up would end below it, and the hole be found anew.
            self.passed.push_back((walk.depth, view));
            return Err(error);
        }
        // Cursors that grow old on the way up of a long walk are met again only after progress.
        self.rewalked &= !walk.kind.moves_frontier();
        Ok(())
    }

    /// The page of a mark, asked for again.
    async fn again(&mut self, walk: &Head) -> Result<Again, TailError> {
        if let Some(before) = &walk.before {
            let place = Place::Before(Cursor::new(before.clone()));
            return Ok(
                match self
                    .fetcher
                    .page_for_sure(&place, self.priority(walk.kind), patience(walk.kind))
                    .await?
                {
                    Fetched::Page(page) => Again::Page(self.view(page).await?),
                    Fetched::Refused(error) => Again::Refused(error.to_string()),
                },
            );
        }
        // The top page cannot be asked for again. A first start has kept the one it began with; for the others the poll goes on from the page below.
        let Some(body) = self.state.walk_top.clone() else {
            return self.top_again(walk).await;
        };
        match AuditPage::parse(body, walk.started_at) {
            Ok((page, _)) => Ok(Again::Page(self.view(page).await?)),
            Err(_) => Ok(Again::Skip),
        }
    }

    /// The newest page in the place of the one that a walk began with, where that stands on a hole: the poll would find the hole, which is
    /// told of already, anew.
    async fn top_again(&mut self, walk: &Head) -> Result<Again, TailError> {
        if walk.joined || !walk.kind.moves_frontier() {
            return Ok(Again::Skip);
        }
        let Fetched::Page(page) = self
            .fetcher
            .page(&Place::Top, self.priority(walk.kind), STRIKES)
            .await?
        else {
            return Ok(Again::Skip);
        };
        let view = self.view(page).await?;
        Ok(if view.contains(walk.bottom) {
            Again::Page(view)
        } else {
            Again::Skip
        })
    }

    async fn skip(&mut self, gap: Option<Gap>) -> Result<(), TailError> {
        let Some(walk) = self.state.walk.clone_head() else {
            return Ok(());
        };
        let mut commit = Commit::new(walk.started_at);
        commit.gaps.extend(gap);
        self.finish(&mut commit, &walk, walk.joined);
        self.write(commit).await
    }

    /// The service refuses a cursor of the walk. Cursors may have grown old: it is begun again; when it then takes nothing before the next
    /// one is refused, the place cannot be read.
    async fn refused(&mut self, error: &str) -> Result<(), TailError> {
        let Some(walk) = self.state.walk.clone_head() else {
            return Ok(());
        };
        self.passed.clear();
        if !self.rewalked {
            let page = match self
                .fetcher
                .page_for_sure(&Place::Top, Priority::Range, STRIKES)
                .await?
            {
                Fetched::Page(page) => page,
                Fetched::Refused(error) => return Err(error.into()),
            };
            self.rewalked = true;
            tracing::warn!(
                error,
                walk = walk.kind.as_str(),
                "the service refuses a cursor of the walk; the walk begins again from the top"
            );
            let top = self.view(page).await?;
            return self.begin_walk(walk.kind, walk.floor, top, None).await;
        }
        let message = format!(
            "the service cannot serve the entries below this one, not even one by one: {error}"
        );
        let gap = Gap {
            reason: GapReason::UnreadablePage,
            from: self.state.frontier_at,
            to: None,
            message,
        };
        self.rewalked = false;
        match walk.direction {
            Direction::Down => self.ground(Ground::Unreadable(gap)).await,
            Direction::Up => self.skip(Some(gap)).await,
        }
    }

    /// One mark less; with the last one the walk is over.
    fn finish(&mut self, commit: &mut Commit, walk: &Head, joined: bool) {
        commit.walk = Some(if walk.depth == 0 {
            WalkChange::End
        } else {
            WalkChange::Up {
                depth: walk.depth,
                joined,
            }
        });
        if walk.depth == 0 {
            self.rewalked = false;
            self.passed.clear();
            if walk.kind == WalkKind::Reread {
                commit.reread_at = Some(walk.started_at);
            }
        }
    }

    fn rule(&self, walk: &Head) -> Rule {
        match walk.kind {
            WalkKind::FirstStart if self.until.is_some() => self.range(),
            WalkKind::FirstStart => Rule::FirstStart {
                start_floor: self.floors().start,
                newest: self.newest_at_birth,
                passed: walk.joined,
            },
            WalkKind::Reread => Rule::Late,
            WalkKind::CatchUp | WalkKind::Recovery if walk.joined => Rule::Above,
            WalkKind::CatchUp | WalkKind::Recovery => Rule::Frontier,
        }
    }

    /// Whether everything above this page is new for sure.
    fn is_passed(&self, walk: &Head, view: &View) -> bool {
        walk.joined
            || walk.kind == WalkKind::FirstStart
                && self
                    .newest_at_birth
                    .is_some_and(|newest| view.contains(newest))
    }

    /// The newest entry of the page that the first start under way began with: what is below it was there when the ledger began, also
    /// when the walk had to begin again from a newer page.
    async fn find_newest_at_birth(&mut self) -> Result<(), TailError> {
        if self.until.is_some()
            || self.newest_at_birth.is_some() && (self.order.is_some() || self.largest_page <= 1)
        {
            return Ok(());
        }
        let Some(top) = self.state.walk_top.clone() else {
            return Ok(());
        };
        let Ok((page, _)) = AuditPage::parse(top, jiff::Timestamp::now()) else {
            return Ok(());
        };
        // After a restart the order has to be found first, or the page may be read upside down.
        let view = self.view(page).await?;
        self.newest_at_birth = view.top();
        self.there_at_birth = view.ids().collect();
        Ok(())
    }

    /// The entries of a page that are to be taken. What was in the page that the ledger began with is history, whatever its place says: a
    /// page of one moment does not show its order.
    fn take(&self, rule: Rule, view: &View) -> Vec<NewEntry> {
        let mut entries = view.take(rule, &self.ledger, self.state.frontier_at, self.floors());
        if let Rule::FirstStart { start_floor, .. } = rule {
            let was_there = |entry: &&mut NewEntry| {
                entry.disposition == Disposition::Live && self.there_at_birth.contains(&entry.id)
            };
            for entry in entries.iter_mut().filter(was_there) {
                let wanted = start_floor.is_none_or(|floor| entry.created_at >= floor);
                entry.disposition = if wanted {
                    Disposition::History
                } else {
                    Disposition::Baseline
                };
            }
        }
        entries
    }

    fn late(&self, view: &View) -> Vec<NewEntry> {
        view.take(
            Rule::Late,
            &self.ledger,
            self.state.frontier_at,
            self.floors(),
        )
    }

    /// A first start and a catch-up are what the live poll is waiting for.
    fn priority(&self, kind: WalkKind) -> Priority {
        match kind {
            WalkKind::CatchUp | WalkKind::Recovery => Priority::Live,
            WalkKind::FirstStart | WalkKind::Reread => Priority::Range,
        }
    }

    /// What vanished from the way up is there.
    fn found(&mut self, view: &View) {
        self.vanished.take_if(|id| view.contains(*id));
    }

    fn keep(&mut self, depth: usize, view: View) {
        self.found(&view);
        while self.passed.back().is_some_and(|(kept, _)| *kept >= depth) {
            self.passed.pop_back();
        }
        self.passed.push_back((depth, view));
        while self.passed.len() > KEPT_PAGES
            || self.passed.len() > 1
                && self
                    .passed
                    .iter()
                    .map(|(_, view)| view.page.bytes())
                    .sum::<usize>()
                    > KEPT_BYTES
        {
            self.passed.pop_front();
        }
    }
}

/// Failures until a place on the way is at fault.
fn patience(kind: WalkKind) -> u32 {
    if kind == WalkKind::Reread {
        STRIKES
    } else {
        STRIKES_BEFORE_A_GAP
    }
}

/// What was to be taken is no longer there.
fn overtaken(frontier_at: Option<jiff::Timestamp>) -> Gap {
    let message = "entries seen on the way down were gone on the way up, so they were removed before they were read".to_owned();
    Gap {
        reason: GapReason::RetentionOvertook,
        from: frontier_at,
        to: None,
        message,
    }
}

/// A page of a mark, asked for again.
enum Again {
    Page(View),
    Skip,
    Refused(String),
}
