//! Any ticket, and what the numbers mean: priorities, deals, amounts, dates and label values.

use std::time::Duration;

use orgdata_exporter::tickets::{MAX_VALUES, Scanner};
use prometheus_client::metrics::counter::Counter;

use crate::support::{Script, by_state, map, open, page_at, settings, snapshot};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_ticket_ranks_by_the_highest_priority_of_its_deals() {
    let snapshot = snapshot(&[
        r#"{"id":1,"type":"BUG","state":"OPEN","linkedDeals":[{"id":1,"priority":"LOW"},{"id":2,"priority":"BLOCKER"}]}"#,
        r#"{"id":2,"type":"BUG","state":"OPEN","linkedDeals":[{"id":3,"priority":"URGENT"},{"id":3,"priority":"URGENT"}]}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","linkedDeals":[{"id":3,"priority":"LOW"},{"id":4,"priority":"ZZZ"}]}"#,
        r#"{"id":4,"type":"BUG","state":"OPEN","linkedDeals":null}"#,
        r#"{"id":5,"type":"BUG","state":"OPEN","linkedDeals":[{"id":5,"priority":null},{"id":6}]}"#,
        r#"{"id":6,"type":"BUG","state":"CLOSED","linkedDeals":[{"id":7,"priority":"BLOCKER"}]}"#,
    ])
    .await;
    assert_eq!(open(&snapshot), map([("BUG/BLOCKER", 1), ("BUG/URGENT", 1), ("BUG/LOW", 1), ("BUG/none", 2)]));
    // Deal 3 is LOW by one ticket and URGENT by another: LOW is the higher one, since URGENT is not among the settings.
    let deals: Vec<(&str, u64)> = snapshot.deals().filter(|(_, deals)| *deals > 0).collect();
    assert_eq!(deals, [("BLOCKER", 1), ("LOW", 2), ("ZZZ", 1), ("none", 2)]);
}

#[tokio::test]
async fn amounts_are_exact_to_the_cent() {
    let rows: Vec<String> = (0..1000).map(|id| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN","dealAmountSum":0.1}}"#)).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).chain([r#"{"id":-1,"state":"OPEN","dealAmountSum":-33.33}"#]).collect();
    let snapshot = snapshot(&rows).await;
    assert_eq!(snapshot.open_total().deal_amount.as_f64(), 66.67);
}

#[tokio::test]
async fn an_absurd_amount_is_left_out_and_told() {
    let snapshot = snapshot(&[
        r#"{"id":1,"state":"OPEN","dealAmountSum":1e300}"#,
        r#"{"id":2,"state":"OPEN","dealAmountSum":1e999}"#,
        r#"{"id":3,"state":"OPEN","dealAmountSum":"12"}"#,
        r#"{"id":4,"state":"OPEN","dealAmountSum":12.5}"#,
    ])
    .await;
    assert_eq!((snapshot.tickets, snapshot.malformed), (4, 3));
    assert_eq!(snapshot.open_total().deal_amount.as_f64(), 12.5);
}

#[tokio::test]
async fn one_bad_ticket_is_counted_and_hides_nothing() {
    let snapshot = snapshot(&[
        r#"{"id":1,"type":"BUG","state":"OPEN"}"#,
        r#"{"id":2,"type":["BUG"],"state":"OPEN","linkedDeals":{"id":1},"createdAt":17}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","createdAt":"yesterday"}"#,
        r#""nonsense""#,
        "null",
        "[[[]]]",
    ])
    .await;
    assert_eq!(by_state(&snapshot), map([("OPEN/BUG", 2), ("OPEN/unknown", 1), ("unknown/unknown", 3)]));
    assert_eq!((snapshot.tickets, snapshot.malformed, snapshot.doubt), (6, 5, None));
}

#[tokio::test]
async fn tickets_without_an_id_count_each_for_itself() {
    let snapshot = snapshot(&[r#"{"title":"a"}"#, r#"{"title":"b"}"#, r#"{"id":null,"title":"c"}"#]).await;
    assert_eq!((snapshot.tickets, snapshot.malformed, snapshot.doubt), (3, 0, None));
}

#[tokio::test]
async fn label_values_are_bounded_and_who_was_first_stays() {
    let rows = |from: u64| (from..from + 50).map(|n| format!(r#"{{"id":{n},"type":"T{n}","state":"S{n}"}}"#)).collect::<Vec<_>>();
    let mut listing = rows(0);
    let script = Script::new(move |request| {
        if request.number == 1 {
            // The same tickets, and new ones before them.
            listing = rows(1000).into_iter().chain(rows(0)).collect();
        }
        Ok(crate::support::slice(&listing, request))
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    let first = scanner.round(&script).await.unwrap();
    let second = scanner.round(&script).await.unwrap();
    for snapshot in [&first, &second] {
        let mut states: Vec<&str> = snapshot.by_state().filter(|(_, group)| group.tickets > 0).map(|((state, _), _)| state).collect();
        states.dedup();
        assert_eq!(states.len(), MAX_VALUES + 1);
        assert!(states.contains(&"S0") && states.contains(&"other") && !states.contains(&"S1000"));
        let tickets: u64 = snapshot.by_state().map(|(_, group)| group.tickets).sum();
        assert_eq!(tickets, snapshot.tickets);
    }
}

#[tokio::test(start_paused = true)]
async fn a_due_date_passes_at_midnight_and_not_at_the_next_scan() {
    let rows = [
        r#"{"id":1,"type":"BUG","state":"OPEN","targetDueDate":"2026-03-29T00:00:00Z"}"#,
        r#"{"id":2,"type":"BUG","state":"OPEN","targetDueDate":"2026-03-29T02:00:01+02:00"}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","targetDueDate":"2026-03-29"}"#,
        r#"{"id":4,"type":"BUG","state":"OPEN","targetDueDate":"2026-03-28T23:00:00"}"#,
        r#"{"id":5,"type":"BUG","state":"OPEN","targetDueDate":"9999-12-31T23:59:59Z"}"#,
        r#"{"id":6,"type":"BUG","state":"OPEN","targetDueDate":"0001-01-01T00:00:00Z"}"#,
        r#"{"id":7,"type":"BUG","state":"OPEN","targetDueDate":"1970-01-01T00:00:00Z"}"#,
        r#"{"id":8,"type":"BUG","state":"OPEN","targetDueDate":" "}"#,
        r#"{"id":9,"type":"BUG","state":"CLOSED","targetDueDate":"2026-01-01T00:00:00Z"}"#,
    ]
    .map(str::to_owned);
    // The service's clock counts, and this machine's may say what it wants; a night in which clocks change is like any other.
    let script = Script::new(move |request| Ok(page_at("2026-03-28T23:59:30Z", &rows, request, Some(9))));
    let snapshot = Scanner::new(settings(100), Counter::default()).round(&script).await.unwrap();
    assert_eq!(snapshot.overdue_total(), 1);
    tokio::time::advance(Duration::from_millis(29_999)).await;
    assert_eq!(snapshot.overdue_total(), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(snapshot.overdue_total(), 3);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(snapshot.overdue_total(), 4);
    assert_eq!(snapshot.malformed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_grows_older_between_two_scans() {
    let rows = [
        r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-03-09T13:00:00Z"}"#,
        r#"{"id":2,"type":"BUG","state":"OPEN","createdAt":"2026-03-03T12:30:00Z"}"#,
        r#"{"id":3,"type":"BUG","state":"OPEN","createdAt":"2025-01-01T00:00:00.250Z"}"#,
        r#"{"id":4,"type":"BUG","state":"OPEN","createdAt":"2030-01-01T00:00:00Z"}"#,
        r#"{"id":5,"type":"TASK","state":"OPEN","createdAt":"0001-01-01T00:00:00Z"}"#,
    ];
    let snapshot = snapshot(&rows).await;
    let older = || snapshot.older_than().filter(|(kind, ..)| *kind == "BUG").map(|(_, _, tickets)| tickets).collect::<Vec<u64>>();
    assert_eq!(older(), [2, 1, 1, 1]);
    tokio::time::advance(HOUR / 2).await;
    assert_eq!(older(), [2, 2, 1, 1]);
    tokio::time::advance(HOUR / 2).await;
    assert_eq!(older(), [3, 2, 1, 1]);
    assert_eq!(snapshot.oldest_created().collect::<Vec<_>>(), [("BUG", 1_735_689_600.25)]);
}

#[tokio::test]
async fn a_type_that_is_only_closed_still_has_open_series_at_zero() {
    let snapshot = snapshot(&[r#"{"id":1,"type":"BUG","state":"CLOSED","linkedDeals":[{"id":1,"priority":"HIGH"}]}"#]).await;
    assert_eq!(by_state(&snapshot), map([("CLOSED/BUG", 1), ("OPEN/BUG", 0)]));
    assert_eq!((snapshot.open().count(), snapshot.open_total().tickets), (5, 0));
    assert!(snapshot.deals().all(|(_, deals)| deals == 0));
}
