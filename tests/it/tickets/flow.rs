//! Ticket flow: what was opened and closed before a scan, compared with what the tickets of the simulator say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::metrics::snapshot::{Flow, QUANTILES, WINDOWS};
use orgdata_exporter::simulator::{Config, Fields, Simulator};
use orgdata_exporter::tickets::Scanner;
use prometheus_client::metrics::counter::Counter;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::support::{NOON, settings, snapshot};
use crate::support::cases;
use crate::support::settings::simulated;

const DAY: i64 = 86_400_000;

#[derive(Clone, Debug)]
enum Step {
    Create,
    Delete(Index),
    /// Closed now.
    Close(Index),
    /// Open again, with the time at which it was closed or without.
    Reopen(Index, bool),
    /// A field with a time, and how many milliseconds ago it is.
    Date(Index, &'static str, i64),
    Hours(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let field = prop::sample::select(vec!["createdAt", "closedAt"]);
    let ago = prop_oneof![
        -DAY..40 * DAY,
        prop::sample::select(vec![0, DAY, 7 * DAY, 30 * DAY])
    ];
    prop_oneof![
        4 => Just(Step::Create),
        1 => index().prop_map(Step::Delete),
        4 => index().prop_map(Step::Close),
        2 => (index(), any::<bool>()).prop_map(|(index, keeps)| Step::Reopen(index, keeps)),
        2 => (index(), field, ago).prop_map(|(index, field, ago)| Step::Date(index, field, ago)),
        3 => (1_u64..200).prop_map(Step::Hours),
    ]
}

fn take(sim: &Simulator, step: &Step) {
    let ids = sim.ticket_ids();
    let text = |ago: i64| {
        let at = sim.now().as_millisecond() - ago;
        format!("{:.3}", Timestamp::from_millisecond(at).unwrap())
    };
    let change = |index: &Index, fields: Fields| {
        if !ids.is_empty() {
            sim.change_ticket(*index.get(&ids), fields).unwrap();
        }
    };
    match step {
        Step::Create => _ = sim.add_ticket(Fields::new()).unwrap(),
        Step::Delete(index) if !ids.is_empty() => sim.remove_ticket(*index.get(&ids)).unwrap(),
        Step::Delete(_) => {}
        Step::Close(index) => {
            let closed = Fields::new().with("state", "CLOSED");
            change(index, closed.with("closedAt", text(0)));
        }
        Step::Reopen(index, keeps) => {
            let open = Fields::new().with("state", "OPEN");
            let cleared = open.clone().with("closedAt", Value::Null);
            change(index, if *keeps { open } else { cleared });
        }
        Step::Date(index, field, ago) => change(index, Fields::new().with(field, text(*ago))),
        Step::Hours(hours) => sim.advance(Duration::from_secs(3600 * hours)),
    }
}

/// The flow as its documentation defines it, and the number of open tickets with a time of closing.
fn reference(tickets: &[Value], end: Timestamp) -> (BTreeMap<String, Flow>, u64) {
    let time = |ticket: &Value, field: &str| -> Option<i64> {
        let time: Timestamp = ticket[field].as_str()?.parse().unwrap();
        Some(time.as_millisecond())
    };
    let (mut flows, mut odd) = (BTreeMap::<String, Flow>::new(), 0);
    for (window, (_, length)) in WINDOWS.iter().enumerate() {
        let start = end.as_millisecond() - length.as_millis() as i64;
        let is_within = |at: i64| at > start && at <= end.as_millisecond();
        let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        odd = 0;
        for ticket in tickets {
            let kind = ticket["type"].as_str().unwrap_or("unknown").to_owned();
            let flow = flows.entry(kind.clone()).or_default();
            let (created, closed) = (time(ticket, "createdAt"), time(ticket, "closedAt"));
            flow.opened[window] += u64::from(created.is_some_and(is_within));
            if ticket["state"] == "OPEN" {
                odd += u64::from(closed.is_some());
            } else if let Some(closed) = closed.filter(|at| is_within(*at)) {
                flow.closed[window] += 1;
                let created = created.into_iter();
                let open = created.map(|created| (closed - created).max(0) / 1000);
                times.entry(kind).or_default().extend(open);
            }
        }
        for (kind, mut times) in times {
            times.sort_unstable();
            let quantile = |(_, percent)| {
                let is_enough = |at: &usize| (at + 1) * 100 >= times.len() * percent;
                let at = (0..times.len()).find(is_enough)?;
                u32::try_from(times[at]).ok()
            };
            flows.get_mut(&kind).unwrap().time_to_close[window] = QUANTILES.map(quantile);
        }
    }
    (flows, odd)
}

fn go_through((seed, steps): &(u64, Vec<Step>)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let sim: Arc<Simulator> = Simulator::new(Config {
        seed: *seed,
        tickets: 40,
        ..Config::quiet()
    });
    sim.set_clock("2030-01-01T00:00:00.500Z".parse().unwrap());
    let client = simulated(&sim);
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    for steps in steps.chunks(5) {
        steps.iter().for_each(|step| take(&sim, step));
        // The header that names the time has whole seconds.
        let end = Timestamp::from_second(sim.now().as_second()).unwrap();
        let (flow, odd) = reference(&sim.tickets(), end);
        let (snapshot, _) = runtime.block_on(scanner.round(&client)).unwrap();
        let shown = snapshot.flow.iter();
        let shown: BTreeMap<_, _> = shown
            .map(|(kind, flow)| (kind.to_string(), *flow))
            .collect();
        assert_eq!((shown, snapshot.malformed), (flow, odd));
    }
}

#[test]
fn the_flow_is_that_of_the_tickets_through_reopenings_deletions_and_changed_dates() {
    let name = "the_flow_is_that_of_the_tickets_through_reopenings_deletions_and_changed_dates";
    let cases = (any::<u64>(), prop::collection::vec(step(), 1..60));
    cases::check(name, 100, &cases, go_through);
}

#[tokio::test]
async fn windows_end_at_the_scan_and_begin_exclusively() {
    assert_eq!(NOON, "2026-03-10T12:00:00Z");
    let row = |(id, (state, created, closed)): (usize, &(&str, &str, &str))| {
        format!(
            r#"{{"id":{id},"type":"BUG","state":"{state}","createdAt":{created},"closedAt":{closed}}}"#
        )
    };
    let rows = [
        ("OPEN", r#""2026-03-10T12:00:00Z""#, "null"),
        ("OPEN", r#""2026-03-10T12:00:01Z""#, "null"),
        ("OPEN", r#""2026-03-09T12:00:00Z""#, "null"),
        (
            "CLOSED",
            r#""2026-03-09T12:00:01Z""#,
            r#""2026-03-09T12:00:11Z""#,
        ),
        (
            "CLOSED",
            r#""2026-02-01T00:00:00Z""#,
            r#""2026-03-03T12:00:00Z""#,
        ),
        // Closed before it was created, and of an unknown age.
        (
            "DONE",
            r#""2026-03-05T00:00:00Z""#,
            r#""2026-03-04T00:00:00Z""#,
        ),
        ("DONE", "null", r#""2026-03-08T00:00:00Z""#),
        // Open after all, and long ago.
        ("OPEN", "null", r#""2026-03-10T00:00:00Z""#),
        ("CLOSED", "null", r#""2020-03-10T00:00:00Z""#),
    ];
    let rows: Vec<String> = rows.iter().enumerate().map(row).collect();
    let snapshot = snapshot(&rows).await;
    let month = 30 * 86_400 + 12 * 3600;
    let expected = Flow {
        opened: [2, 4, 4],
        closed: [1, 3, 4],
        time_to_close: [
            [Some(10), Some(10)],
            [Some(0), Some(10)],
            [Some(10), Some(month)],
        ],
    };
    assert_eq!((snapshot.flow["BUG"], snapshot.malformed), (expected, 1));
    assert_eq!(snapshot.open_total(), 4);
}
