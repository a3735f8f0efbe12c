//! Cases that once failed, each with what it would have done to an operator.

use http::StatusCode;
use orgdata_exporter::audit::Start;
use orgdata_exporter::simulator::{AfterReading, Fault, FaultKind, Readings};

use super::case::{Case, Change, Step};
use super::exact::everything_is_exact;

const NEWEST: AfterReading = AfterReading::Newest;

fn case(steps: Vec<Step>) -> Case {
    Case { seed: 1, history: 10, start: Start::Now, page_size: 5, readings: Readings::default(), steps }
}

/// The loop asked for ever, as fast as the service answered, and took nothing.
#[test]
fn a_burst_between_a_poll_and_a_re_read_is_walked() {
    let readings = Readings { after: NEWEST, ..Readings::default() };
    let steps = vec![Step::Settle, Step::During(2, Change::Events(20)), Step::Settle];
    everything_is_exact(&Case { readings, ..case(steps) });
}

/// A service that takes no cursor at all was asked without a pause.
#[test]
fn a_cursor_that_is_never_taken_is_tried_at_every_poll_and_not_between() {
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::GONE)).times(1_000);
    everything_is_exact(&case(vec![Step::Settle, Step::Now(Change::Fault(refused)), Step::Settle]));
}

/// An event was called late that only came at the very moment of the newest one.
#[test]
fn what_comes_at_the_same_moment_between_a_poll_and_a_re_read_is_not_late() {
    let steps = vec![
        Step::Settle,
        Step::Now(Change::Pass(1_000)),
        Step::Now(Change::Events(1)),
        Step::Settle,
        Step::During(2, Change::Events(1)),
        Step::Settle,
    ];
    everything_is_exact(&Case { page_size: 1, ..case(steps) });
}
