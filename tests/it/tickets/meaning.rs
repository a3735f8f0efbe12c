//! What the numbers mean: priorities, deals, amounts, dates and label values of any ticket.

use std::fmt::Display;

use orgdata_exporter::tickets::Scanner;
use prometheus_client::metrics::counter::Counter;

use super::support::{Script, assert_shows, open_amount, page_at, settings, snapshot};

/// Rows with consecutive ids, each with one more field.
fn rows<T: Display>(field: &str, values: impl IntoIterator<Item = T>) -> Vec<String> {
    let row =
        |(id, value)| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN","{field}":{value}}}"#);
    values.into_iter().enumerate().map(row).collect()
}

#[tokio::test]
async fn a_ticket_ranks_by_the_highest_priority_of_its_deals() {
    let open = [
        r#"[{"id":1,"priority":"LOW"},{"id":2,"priority":"BLOCKER"}]"#,
        r#"[{"id":3,"priority":"URGENT"},{"id":3,"priority":"URGENT"}]"#,
        r#"[{"id":3,"priority":"LOW"},{"id":4,"priority":"ZZZ"}]"#,
        "null",
        r#"[{"id":5,"priority":null},{"id":6}]"#,
    ];
    let mut rows = rows("linkedDeals", open);
    let closed =
        r#"{"id":6,"type":"BUG","state":"CLOSED","linkedDeals":[{"id":7,"priority":"BLOCKER"}]}"#;
    rows.push(closed.to_owned());
    let snapshot = snapshot(&rows).await;
    let by_priority = [
        ("BUG/BLOCKER", 1),
        ("BUG/LOW", 1),
        ("BUG/URGENT", 1),
        ("BUG/none", 2),
    ];
    assert_shows(&snapshot, "open", &by_priority);
    // Deal 3 is LOW by one ticket and URGENT by another. LOW is higher, because URGENT is not in the settings.
    let deals = [("BLOCKER", 1), ("LOW", 2), ("ZZZ", 1), ("none", 2)];
    assert_shows(&snapshot, "deals", &deals);
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

#[tokio::test]
async fn any_row_is_a_ticket() {
    let malformed = snapshot(&[
        r#"{"id":1,"type":"BUG","state":"OPEN"}"#,
        r#"{"id":2,"type":["BUG"],"state":"OPEN","linkedDeals":{"id":1},"createdAt":17}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","createdAt":"yesterday"}"#,
        r#""nonsense""#,
        "null",
        "[[[]]]",
    ]);
    let malformed = malformed.await;
    let states = [("OPEN/BUG", 2), ("OPEN/unknown", 1), ("unknown/unknown", 3)];
    assert_shows(&malformed, "state", &states);
    let without_id = [
        r#"{"title":"a"}"#,
        r#"{"title":"b"}"#,
        r#"{"id":null,"title":"c"}"#,
    ];
    let without_id = snapshot(&without_id).await;
    for (seen, expected) in [(malformed, (6, 5, true)), (without_id, (3, 0, true))] {
        assert_eq!((seen.tickets, seen.malformed, seen.consistent), expected);
    }
}

#[tokio::test]
async fn a_ticket_is_overdue_from_its_due_date_on_by_the_clock_of_the_api() {
    let dates = [
        r#""2026-03-29T00:00:00Z""#,
        r#""2026-03-29T02:00:01+02:00""#,
        r#""2026-03-28T23:00:00""#,
        // Without a time, at the end of the day.
        r#""2026-03-29""#,
        r#"" 20260329 ""#,
        "20260329",
        // Without a date.
        r#""9999-12-31T23:59:59Z""#,
        r#""0001-01-01T00:00:00Z""#,
        r#""1970-01-01T00:00:00Z""#,
        "0",
        r#"" ""#,
    ];
    let mut rows = rows("targetDueDate", dates);
    rows.push(r#"{"id":19,"state":"CLOSED","targetDueDate":"2026-01-01T00:00:00Z"}"#.to_owned());
    for (now, expected) in [
        ("2026-03-28T23:59:59Z", 1),
        ("2026-03-29T00:00:00Z", 2),
        ("2026-03-29T00:00:01Z", 3),
        ("2026-03-29T23:59:59Z", 3),
        ("2026-03-30T00:00:00Z", 6),
    ] {
        let rows = rows.clone();
        let script = Script::new(move |request| Ok(page_at(now, &rows, request, Some(12))));
        let mut scanner = Scanner::new(settings(100), Counter::default());
        let (snapshot, _) = scanner.round(&script).await.unwrap();
        let seen = (snapshot.malformed, snapshot.overdue_total());
        assert_eq!(seen, (0, expected), "{now}");
    }
}

#[tokio::test]
async fn the_settings_say_which_states_are_open() {
    let states = ["OPEN", "IN_PROGRESS", "open", "CLOSED", "TRIAGE"];
    let row = |state| format!(r#"{{"title":"{state}","type":"BUG","state":"{state}"}}"#);
    let script = Script::listing(states.map(row).to_vec());
    let mut all = settings(100);
    all.open_states = ["IN_PROGRESS", "OPEN", "NEVER_SEEN"]
        .map(str::to_owned)
        .into();
    let mut scanner = Scanner::new(all, Counter::default());
    let (snapshot, _) = scanner.round(&script).await.unwrap();
    assert_eq!((snapshot.tickets, snapshot.open_total()), (5, 2));
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
    let oldest = "2025-01-01T00:00:00.250Z".parse().unwrap();
    assert_eq!(snapshot.times["BUG"].oldest_created, Some(oldest));
}
