//! What the numbers mean: amounts, dates, states and any row. The properties test what is counted under which label.

use std::fmt::Display;

use orgdata_exporter::metrics::tickets::{Group, Snapshot};
use orgdata_exporter::tickets::{MAX_VALUES, OTHER, Scanner};
use prometheus_client::metrics::counter::Counter;

use super::support::{Script, settings, slice, snapshot};

/// Rows with consecutive ids, each with one more field.
fn rows<T: Display>(field: &str, values: impl IntoIterator<Item = T>) -> Vec<String> {
    let row =
        |(id, value)| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN","{field}":{value}}}"#);
    values.into_iter().enumerate().map(row).collect()
}

#[tokio::test]
async fn sums_of_amounts_are_exact_and_never_overflow_and_leave_out_what_is_unreadable() {
    let amount =
        |snapshot: &Snapshot| -> f64 { snapshot.open.values().map(Group::deal_amount).sum() };
    for (value, count, sum) in [
        ("0.1", 1000, 100.0),
        ("-33.33", 2, -66.66),
        ("90000000000000.01", 2, 180_000_000_000_000.02),
        (
            "18446744073709551615",
            2000,
            36_893_488_147_419_103_230_000.0,
        ),
        ("-9.5e23", 100_000, -7.922_816_251_426_434e28),
    ] {
        let snapshot = snapshot(&rows("dealAmountSum", vec![value; count])).await;
        let seen = (amount(&snapshot), snapshot.malformed);
        assert_eq!(seen, (sum, 0), "{value}");
    }
    let bad = [
        "1e300", "-1e308", "1e999", "\"12\"", "[12]", "1e24", "-7.9e28",
    ];
    let good = ["12.5", "-3", "-0.0", "null", "1E2", "0.004", "1e-300"];
    let snapshot = snapshot(&rows("dealAmountSum", bad.iter().chain(&good))).await;
    let seen = (amount(&snapshot), snapshot.tickets, snapshot.malformed);
    assert_eq!(seen, (109.504, 14, 7));
}

#[tokio::test]
async fn any_row_is_a_ticket() {
    let snapshot = snapshot(&[
        r#"{"id":2,"type":["BUG"],"state":"OPEN","linkedDeals":{"id":1},"createdAt":17}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","createdAt":"yesterday"}"#,
        r#""nonsense""#,
        "null",
        r#"{"title":"a"}"#,
        r#"{"id":null,"title":"b"}"#,
    ])
    .await;
    let groups = snapshot.by_state.iter();
    let groups = groups.map(|([state, kind], group)| (&**state, &**kind, group.tickets));
    let expected = [
        ("OPEN", "BUG", 1),
        ("OPEN", "unknown", 1),
        ("unknown", "unknown", 4),
    ];
    let groups: Vec<_> = groups.filter(|group| group.2 > 0).collect();
    assert_eq!((&groups[..], snapshot.malformed), (&expected[..], 4));
}

/// It is noon on March 10th.
#[tokio::test]
async fn a_ticket_is_overdue_from_its_due_date_on_by_the_clock_of_the_api() {
    for (due, is_overdue) in [
        (r#""2026-03-10T12:00:00Z""#, true),
        (r#""2026-03-10T12:00:01Z""#, false),
        (r#""2026-03-10T14:00:00+02:00""#, true),
        (r#""2026-03-10T14:00:01+02:00""#, false),
        (r#""2026-03-10T12:00:00""#, true),
        // Without a time, at the end of the day.
        (r#""2026-03-09""#, true),
        (r#"" 20260309 ""#, true),
        ("20260309", true),
        (r#""2026-03-10""#, false),
        // Without a date.
        (r#""9999-12-31T23:59:59Z""#, false),
        (r#""0001-01-01T00:00:00Z""#, false),
        (r#""1970-01-01T00:00:00Z""#, false),
        ("0", false),
        (r#"" ""#, false),
    ] {
        let snapshot = snapshot(&rows("targetDueDate", [due])).await;
        let seen = (snapshot.malformed, snapshot.overdue_total());
        assert_eq!(seen, (0, u64::from(is_overdue)), "{due}");
    }
}

#[tokio::test]
async fn the_settings_say_which_states_are_open() {
    let states = ["OPEN", "IN_PROGRESS", "open", "CLOSED", "TRIAGE"];
    let row = |state| format!(r#"{{"title":"{state}","type":"BUG","state":"{state}"}}"#);
    let script = Script::listing(states.map(row).to_vec());
    let mut settings = settings(100);
    settings.open_states = ["IN_PROGRESS", "OPEN", "NEVER_SEEN"]
        .map(str::to_owned)
        .into();
    let mut scanner = Scanner::new(settings, Counter::default());
    let (snapshot, _) = scanner.round(&script.client).await.unwrap();
    assert_eq!((snapshot.tickets, snapshot.open_total()), (5, 2));
}

/// One more than have a label of their own.
#[tokio::test]
async fn the_types_of_the_last_snapshot_keep_their_labels_if_the_order_changes() {
    let row = |id| format!(r#"{{"id":{id},"type":"T{id}","state":"OPEN"}}"#);
    let rows: Vec<String> = (0..=MAX_VALUES).map(row).collect();
    let script = Script::new(move |request| {
        let mut rows = rows.clone();
        if request.number > 0 {
            rows.reverse();
        }
        Ok(slice(&rows, request))
    });
    let mut scanner = Scanner::new(settings(100), Counter::default());
    let mut labels = Vec::new();
    for _ in 0..2 {
        let (snapshot, _) = scanner.round(&script.client).await.unwrap();
        labels.push(snapshot.times.keys().cloned().collect::<Vec<_>>());
    }
    assert_eq!(labels[0], labels[1]);
    assert!(labels[0].iter().any(|label| **label == *OTHER));
}

#[tokio::test]
async fn a_ticket_counts_in_each_age_that_it_has_reached() {
    let created = [
        r#""2026-03-09T12:00:00Z""#,
        r#""2026-03-03T12:00:01Z""#,
        r#""2025-01-01T00:00:00.250Z""#,
        r#""2030-01-01T00:00:00Z""#,
        r#""0001-01-01T00:00:00Z""#,
    ];
    let snapshot = snapshot(&rows("createdAt", created)).await;
    assert_eq!(snapshot.times["BUG"].older_than, [3, 1, 1, 1]);
}
