//! What the numbers mean: priorities, deals, amounts, dates and label values of any ticket.

use std::fmt::Display;
use std::time::Duration;

use orgdata_exporter::tickets::Scanner;
use prometheus_client::metrics::counter::Counter;

use super::support::{Script, open_amount, page_at, settings, snapshot};

const HOUR: Duration = Duration::from_secs(3600);

/// Rows with consecutive ids, each with one more field.
fn rows<T: Display>(field: &str, values: impl IntoIterator<Item = T>) -> Vec<String> {
    let row =
        |(id, value)| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN","{field}":{value}}}"#);
    values.into_iter().enumerate().map(row).collect()
}

#[tokio::test]
async fn each_deal_of_open_tickets_counts_once_in_the_amount_of_deals() {
    let row = |id, state, amount, deals: &str| {
        format!(
            r#"{{"id":{id},"state":"{state}","dealAmountSum":{amount},"linkedDeals":[{deals}]}}"#
        )
    };
    let (one, two) = (
        r#"{"id":1,"priority":"LOW"}"#,
        r#"{"id":2,"priority":"HIGH"}"#,
    );
    let (three, again) = (r#"{"id":3}"#, r#"{"id":3,"evaluationId":4}"#);
    let mut rows = vec![
        row(1, "OPEN", "100.25", one),
        row(2, "OPEN", "100.25", one),
        // Alone it is worth 100.25, so the other half says nothing about deal 1.
        row(3, "OPEN", "300", &format!("{one},{two}")),
        row(4, "OPEN", "7.5", &format!("{three},{again}")),
        row(5, "OPEN", "null", r#"{"id":5,"priority":"HIGH"}"#),
        row(6, "CLOSED", "1000", r#"{"id":6,"priority":"HIGH"}"#),
        row(7, "OPEN", "1000", ""),
    ];
    for _ in 0..2 {
        let snapshot = snapshot(&rows).await;
        let amounts = ["LOW", "HIGH", "none"].map(|priority| {
            let deals = snapshot.deals[priority];
            (deals.tickets, deals.deal_amount())
        });
        assert_eq!(amounts, [(1, 100.25), (2, 150.0), (1, 7.5)]);
        rows.reverse();
    }
}

#[tokio::test]
async fn sums_of_amounts_are_exact_and_never_overflow() {
    let most = "18446744073709551615";
    for (amount, count, sum) in [
        ("0.1", 1000, 100.0),
        ("-33.33", 2, -66.66),
        ("90000000000000.01", 2, 180_000_000_000_000.02),
        (most, 2000, 36_893_488_147_419_103_230_000.0),
        ("-9.5e23", 2000, -1.9e27),
        ("9.5e23", 100_000, 7.922_816_251_426_434e28),
        ("-9.5e23", 100_000, -7.922_816_251_426_434e28),
    ] {
        let snapshot = snapshot(&rows("dealAmountSum", vec![amount; count])).await;
        let seen = open_amount(&snapshot);
        assert_eq!((seen, snapshot.malformed), (sum, 0), "{amount}");
    }
    // One that cannot be read is left out and counted.
    let nines = "9".repeat(400);
    let bad = [
        "1e300", "-1e308", "1e999", &nines, "\"12\"", "[12]", "true", "1e24", "-7.9e28",
    ];
    let good = [
        "12.5", "-3", "-0.0", "null", "1E2", "0.004", "1e-300", "5e-324",
    ];
    let snapshot = snapshot(&rows("dealAmountSum", bad.iter().chain(&good))).await;
    assert_eq!((snapshot.tickets, snapshot.malformed), (17, 9));
    assert_eq!(open_amount(&snapshot), 109.504);
}

#[tokio::test(start_paused = true)]
async fn a_due_date_passes_at_midnight_and_not_at_the_next_scan() {
    let dates = [
        "2026-03-29T00:00:00Z",
        "2026-03-29T02:00:01+02:00",
        "2026-03-29",
        "2026-03-28T23:00:00",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        " ",
    ];
    let mut rows = rows("targetDueDate", dates.map(|date| format!("{date:?}")));
    rows.push(r#"{"id":9,"state":"CLOSED","targetDueDate":"2026-01-01T00:00:00Z"}"#.to_owned());
    let script =
        Script::new(move |request| Ok(page_at("2026-03-28T23:59:30Z", &rows, request, Some(9))));
    let mut scanner = Scanner::new(settings(100), Counter::default());
    let (snapshot, _) = scanner.round(&script).await.unwrap();
    assert_eq!(snapshot.malformed, 0);
    for (milliseconds, expected) in [(0, 1), (29_999, 1), (1, 3), (1000, 4)] {
        tokio::time::advance(Duration::from_millis(milliseconds)).await;
        assert_eq!(snapshot.overdue_total(), expected);
    }
}

#[tokio::test]
async fn the_settings_say_which_states_are_open() {
    let states = ["OPEN", "IN_PROGRESS", "open", "CLOSED", "TRIAGE"];
    let row = |state| format!(r#"{{"title":"{state}","type":"BUG","state":"{state}"}}"#);
    let script = Script::listing(states.map(row).to_vec());
    let several = &["IN_PROGRESS", "OPEN", "OPEN", "NEVER_SEEN"][..];
    for (states, open) in [(&["OPEN"][..], 1), (several, 2), (&[], 0), (&[" "], 0)] {
        let mut all = settings(100);
        all.open_states = states.iter().map(ToString::to_string).collect();
        let mut scanner = Scanner::new(all, Counter::default());
        let (snapshot, _) = scanner.round(&script).await.unwrap();
        let seen = (snapshot.tickets, snapshot.open_total());
        assert_eq!(seen, (5, open), "{states:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_grows_older_between_two_scans() {
    let created = [
        r#""2026-03-09T13:00:00Z""#,
        r#""2026-03-03T12:30:00Z""#,
        r#""2025-01-01T00:00:00.250Z""#,
        r#""2030-01-01T00:00:00Z""#,
        r#""0001-01-01T00:00:00Z""#,
    ];
    let snapshot = snapshot(&rows("createdAt", created)).await;
    let half = HOUR / 2;
    for (time, expected) in [
        (Duration::ZERO, [2, 1, 1, 1]),
        (half, [2, 2, 1, 1]),
        (half, [3, 2, 1, 1]),
    ] {
        tokio::time::advance(time).await;
        let older = snapshot.times["BUG"].older_than.each_ref();
        assert_eq!(older.map(|older| snapshot.passed(older)), expected);
    }
    let oldest = "2025-01-01T00:00:00.250Z".parse().unwrap();
    assert_eq!(snapshot.times["BUG"].oldest_created, Some(oldest));
}
