//! Random cases: a world, how it reads its own specification, and what happens in it.

use std::time::Duration;

use crate::audit::Start;
use crate::simulator::{
    AfterReading, Fault, FaultKind, FlagReading, KeyReading, Readings, RetryAfter,
};
use http::StatusCode;
use proptest::prelude::*;

/// Tables of the state file that the tail writes to.
const TABLES: &[&str] = &[
    "state", "ranges", "pages", "events", "actors", "totals", "outbox",
];

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub seed: u64,
    pub history: u64,
    pub start: Start,
    pub page_size: u32,
    pub readings: Readings,
    pub steps: Vec<Step>,
}

/// What a test does next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Now(Change),
    /// The world changes just before the n-th request from now.
    During(u64, Change),
    /// Some rounds of the tail, whatever is left to do.
    Rounds(u64),
    Settle,
    /// A round that dies when it was polled so often, and another tail on the same ledger.
    Die(u64),
    Restart,
    /// Rounds while nothing can be written to a table of the state file.
    Fail(&'static str, u64),
}

/// How the world changes.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Events(u64),
    Pass(u64),
    /// So many rows, created so many milliseconds ago.
    Late(u64, u64),
    /// A row dated so many milliseconds in the future.
    Ahead(u64),
    Fault(Fault),
    /// Only so many entries stay.
    Retain(u64),
    /// So many of the newest entries never happened.
    Restore(u64),
}

impl Case {
    pub(super) fn faults(&self) -> u64 {
        let times = |change: &Change| match change {
            Change::Fault(fault) => fault.times.unwrap_or(u64::MAX),
            _ => 0,
        };
        self.changes().map(times).sum()
    }

    /// Whether a row is ever dated in the future.
    pub(super) fn has_future(&self) -> bool {
        let mut changes = self.changes();
        changes.any(|change| matches!(change, Change::Ahead(_)))
    }

    /// Whether the service is ever restored from a backup.
    pub(super) fn has_restore(&self) -> bool {
        let mut changes = self.changes();
        changes.any(|change| matches!(change, Change::Restore(_)))
    }

    fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps.iter().filter_map(|step| match step {
            Step::Now(change) | Step::During(_, change) => Some(change),
            _ => None,
        })
    }
}

/// A service that keeps what it has, and whose faults heal before anybody can take them for more.
pub(super) fn honest() -> impl Strategy<Value = Case> {
    case(step(change().boxed())).prop_filter("too many faults", |case| case.faults() < 12)
}

/// A service that also loses entries: to retention, to a restore from a backup.
pub(super) fn forgetful() -> impl Strategy<Value = Case> {
    let loss = prop_oneof![
        (0..12u64).prop_map(Change::Retain),
        (1..8u64).prop_map(Change::Restore)
    ];
    let case = case(step(prop_oneof![5 => change(), 1 => loss].boxed()))
        .prop_filter("too many faults", |case| case.faults() < 12);
    (case, any::<bool>()).prop_map(|(mut case, settled)| {
        if settled {
            case.steps.insert(0, Step::Settle);
        }
        case
    })
}

fn case(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Case> {
    let ago = |seconds| Start::Ago(Duration::from_secs(seconds));
    let start = prop_oneof![
        Just(Start::Now),
        Just(Start::Oldest),
        (0..320u64).prop_map(ago)
    ];
    let page_size = prop_oneof![1..5u32, 1..20u32, Just(1000)];
    let steps = prop::collection::vec(step, 1..10);
    let parts = (any::<u64>(), 0..16u64, start, page_size, readings(), steps);
    parts.prop_map(|(seed, history, start, page_size, readings, steps)| Case {
        seed,
        history,
        start,
        page_size,
        readings,
        steps,
    })
}

fn readings() -> impl Strategy<Value = Readings> {
    use FlagReading::{AlwaysFalse, AlwaysTrue, Right};
    let flag = || prop_oneof![Just(Right), Just(AlwaysFalse), Just(AlwaysTrue)];
    let after = prop_oneof![Just(AfterReading::Adjacent), Just(AfterReading::Newest)];
    let cap = prop_oneof![3 => Just(None), 1 => (1..8u64).prop_map(Some)];
    let key = prop_oneof![2 => Just(KeyReading::CreatedAt), 1 => Just(KeyReading::Arrival)];
    let no_date = prop::bool::weighted(0.15);
    let parts = (after, any::<bool>(), flag(), flag(), cap, key, no_date);
    parts.prop_map(
        |(after, after_inclusive, has_previous, has_more, page_cap, key, no_date)| Readings {
            after,
            after_inclusive,
            has_previous,
            has_more,
            page_cap,
            key,
            no_date,
            ..Readings::default()
        },
    )
}

fn step(change: BoxedStrategy<Change>) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => change.clone().prop_map(Step::Now),
        3 => (1..12u64, change).prop_map(|(requests, change)| Step::During(requests, change)),
        2 => (1..8u64).prop_map(Step::Rounds),
        3 => Just(Step::Settle),
        2 => (1..40u64).prop_map(Step::Die),
        1 => Just(Step::Restart),
        1 => (prop::sample::select(TABLES), 1..5u64).prop_map(|(table, rounds)| Step::Fail(table, rounds)),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => prop_oneof![1..4u64, 1..16u64].prop_map(Change::Events),
        2 => prop_oneof![0..50u64, 0..200_000u64].prop_map(Change::Pass),
        2 => (1..4u64, prop_oneof![0..5u64, 0..300_000u64]).prop_map(|(count, behind)| Change::Late(count, behind)),
        1 => prop_oneof![1..1000u64, 400_000..4_000_000u64].prop_map(Change::Ahead),
        1 => fault().prop_map(Change::Fault),
    ]
}

/// Requests that fail, each in its way.
fn fault() -> impl Strategy<Value = Fault> {
    let kind = prop_oneof![
        prop::sample::select(vec![400u16, 404, 410, 422, 500, 503])
            .prop_map(|status| FaultKind::Status(code(status))),
        prop::sample::select(vec![400u16, 404, 410, 422, 500])
            .prop_map(|status| FaultKind::ExpiredCursor(code(status))),
        (1..5u64).prop_map(FaultKind::TooLarge),
        prop::sample::select(vec![
            FaultKind::TooManyRequests(RetryAfter::Absent),
            FaultKind::TooManyRequests(RetryAfter::Seconds(2)),
            FaultKind::Reset,
            FaultKind::ResetBody,
            FaultKind::TruncatedJson,
            FaultKind::Hang,
            FaultKind::Html(StatusCode::OK),
            FaultKind::Empty(StatusCode::OK),
            FaultKind::UnknownFields,
        ]),
    ];
    (kind, 1..7u64).prop_map(|(kind, times)| Fault::new(kind).times(times))
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}
