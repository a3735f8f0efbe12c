//! Any ticket, and what the numbers mean: priorities, deals, amounts, dates and label values.

use std::time::Duration;

use orgdata_exporter::tickets::{Fold, MAX_VALUES, Scanner};
use prometheus_client::metrics::counter::Counter;

use super::support::{NOON, Script, by_state, map, open, page_at, settings, snapshot};

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
    assert_eq!(
        open(&snapshot),
        map([
            ("BUG/BLOCKER", 1),
            ("BUG/URGENT", 1),
            ("BUG/LOW", 1),
            ("BUG/none", 2)
        ])
    );
    // Deal 3 is LOW by one ticket and URGENT by another: LOW is the higher one, since URGENT is not among the settings.
    let deals: Vec<(&str, u64)> = snapshot.deals().filter(|(_, deals)| *deals > 0).collect();
    assert_eq!(deals, [("BLOCKER", 1), ("LOW", 2), ("ZZZ", 1), ("none", 2)]);
}

#[tokio::test]
async fn amounts_are_exact_to_the_cent() {
    let rows: Vec<String> = (0..1000)
        .map(|id| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN","dealAmountSum":0.1}}"#))
        .collect();
    let rows: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .chain([r#"{"id":-1,"state":"OPEN","dealAmountSum":-33.33}"#])
        .collect();
    let snapshot = snapshot(&rows).await;
    assert_eq!(snapshot.open_total().deal_amount.as_f64(), 66.67);
}

/// Cents of all sizes: a sum of doubles would be wrong by the end, whatever the order.
#[test]
fn a_million_amounts_add_up_to_the_cent() {
    let mut fold = Fold::new(&settings(1000), None, NOON.parse().unwrap());
    let (mut cents, mut doubles) = (0_i128, 0.0);
    for id in 0..1_000_000_u64 {
        let amount = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (30 + id % 20);
        let sign = if id % 7 == 0 { "-" } else { "" };
        let text = format!("{sign}{}.{:02}", amount / 100, amount % 100);
        cents += i128::from(amount) * if id % 7 == 0 { -1 } else { 1 };
        doubles += text.parse::<f64>().unwrap();
        fold.add(&format!(
            r#"{{"id":{id},"state":"OPEN","dealAmountSum":{text}}}"#
        ));
    }
    let sum = fold
        .finish(Duration::ZERO, None)
        .open_total()
        .deal_amount
        .as_f64();
    assert_eq!((sum * 100.0).round() as i128, cents);
    assert_ne!((doubles * 100.0).round() as i128, cents);
}

#[tokio::test]
async fn an_absurd_amount_is_left_out_and_told() {
    let absurd = [
        "1e300",
        "1.7976931348623157e308",
        "-1e308",
        "1e999",
        "1e24",
        &"9".repeat(400),
        "\"12\"",
        "[12]",
        "true",
    ];
    let mut rows: Vec<String> = absurd
        .iter()
        .enumerate()
        .map(|(id, amount)| format!(r#"{{"id":{id},"state":"OPEN","dealAmountSum":{amount}}}"#))
        .collect();
    let odd = [
        "12.5", "-3", "-0.0", "null", "1E2", "0.004", "0.00004", "1e-300", "5e-324",
    ];
    rows.extend(odd.iter().enumerate().map(|(id, amount)| {
        format!(
            r#"{{"id":{},"state":"OPEN","dealAmountSum":{amount}}}"#,
            100 + id
        )
    }));
    let snapshot = snapshot(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(
        (snapshot.tickets, snapshot.malformed),
        (rows.len() as u64, absurd.len() as u64)
    );
    assert_eq!(snapshot.open_total().deal_amount.as_f64(), 109.504);
}

#[tokio::test]
async fn the_largest_amounts_do_not_overflow() {
    for (largest, sum) in [
        ("18446744073709551615", 36_893_488_147_419_103_230_000.0),
        ("-9.5e23", -1.9e27),
    ] {
        let rows: Vec<String> = (0..2000)
            .map(|id| format!(r#"{{"id":{id},"state":"OPEN","dealAmountSum":{largest}}}"#))
            .collect();
        let snapshot = snapshot(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(
            (
                snapshot.open_total().deal_amount.as_f64(),
                snapshot.malformed
            ),
            (sum, 0)
        );
    }
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
    assert_eq!(
        by_state(&snapshot),
        map([("OPEN/BUG", 2), ("OPEN/unknown", 1), ("unknown/unknown", 3)])
    );
    assert_eq!(
        (snapshot.tickets, snapshot.malformed, snapshot.doubt),
        (6, 5, None)
    );
}

#[tokio::test]
async fn tickets_without_an_id_count_each_for_itself() {
    let snapshot = snapshot(&[
        r#"{"title":"a"}"#,
        r#"{"title":"b"}"#,
        r#"{"id":null,"title":"c"}"#,
    ])
    .await;
    assert_eq!(
        (snapshot.tickets, snapshot.malformed, snapshot.doubt),
        (3, 0, None)
    );
}

#[tokio::test]
async fn label_values_are_bounded_and_who_was_first_stays() {
    let rows = |from: u64| {
        (from..from + 50)
            .map(|n| format!(r#"{{"id":{n},"type":"T{n}","state":"S{n}"}}"#))
            .collect::<Vec<_>>()
    };
    let mut listing = rows(0);
    let script = Script::new(move |request| {
        if request.number == 1 {
            // The same tickets, and new ones before them.
            listing = rows(1000).into_iter().chain(rows(0)).collect();
        }
        Ok(super::support::slice(&listing, request))
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    let first = scanner.round(&script).await.unwrap();
    let second = scanner.round(&script).await.unwrap();
    for snapshot in [&first, &second] {
        let mut states: Vec<&str> = snapshot
            .by_state()
            .filter(|(_, group)| group.tickets > 0)
            .map(|((state, _), _)| state)
            .collect();
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
    let script =
        Script::new(move |request| Ok(page_at("2026-03-28T23:59:30Z", &rows, request, Some(9))));
    let snapshot = Scanner::new(settings(100), Counter::default())
        .round(&script)
        .await
        .unwrap();
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
async fn a_date_that_is_none_is_counted_and_an_absurd_one_is_a_date() {
    let dates = [
        // What is no date at all.
        (r#""soon""#, true),
        (r#""2026-02-30""#, true),
        (r#""2026-01-01T25:00:00Z""#, true),
        (r#""+275760-09-13T00:00:00Z""#, true),
        (r#""1772323200""#, false),
        ("1772323200", true),
        ("{}", true),
        // What says that there is none.
        ("null", false),
        (r#""""#, false),
        (r#""1970-01-01T00:00:00.000Z""#, false),
        (r#""9999-12-31T23:59:59+00:00""#, false),
        (r#""0001-01-01T00:00:00""#, false),
        // What is one, in the past or in the future.
        (r#""1999-12-31T23:59:60Z""#, false),
        (r#""2026-03-10 11:59:59""#, false),
        (r#""2026-03-10T12:59:59+01:00""#, false),
        (r#""9998-12-31""#, false),
        (r#""9999-12-30T23:59:59Z""#, false),
        (r#""2026-03-10T12:00:01-23:59""#, false),
    ];
    let rows = dates
        .iter()
        .enumerate()
        .map(|(id, (date, _))| format!(r#"{{"id":{id},"state":"OPEN","targetDueDate":{date}}}"#));
    let rows: Vec<String> = rows.collect();
    let snapshot = snapshot(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(
        snapshot.malformed,
        dates.iter().filter(|(_, malformed)| *malformed).count() as u64
    );
    assert_eq!(
        (snapshot.tickets, snapshot.overdue_total()),
        (dates.len() as u64, 3)
    );
}

/// Only the service's clock counts: as it was at the first page, and from then on as time passes here. That this machine's clock is set
/// changes nothing, and a clock of the service's that is put right is believed at the next scan.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_moves_no_due_date_within_a_scan() {
    let rows: Vec<String> = (0..30)
        .map(|id| {
            format!(r#"{{"id":{id},"state":"OPEN","targetDueDate":"2026-10-25T01:{id:02}:00Z"}}"#)
        })
        .collect();
    // It says 01:20:30, jumps by an hour in the middle of the scan, and is an hour back in the next one.
    let times = [
        "2026-10-25T01:20:30Z",
        "2026-10-25T02:20:30Z",
        "2026-10-25T02:20:30Z",
        "2026-10-25T02:20:30Z",
    ];
    let script = Script::new(move |request| {
        let time = times.get(request.number).unwrap_or(&"2026-10-25T00:20:30Z");
        let mut page = super::support::slice(&rows, request);
        page.server_time = time.parse().unwrap();
        Ok(page)
    });
    let mut scanner = Scanner::new(settings(10), Counter::default());
    let snapshot = scanner.round(&script).await.unwrap();
    assert_eq!((script.requests().len(), snapshot.overdue_total()), (4, 21));
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(snapshot.overdue_total(), 22);
    tokio::time::advance(HOUR).await;
    assert_eq!(snapshot.overdue_total(), 30);
    assert_eq!(scanner.round(&script).await.unwrap().overdue_total(), 0);
}

#[tokio::test]
async fn which_states_are_open_is_a_setting() {
    let rows = ["OPEN", "IN_PROGRESS", "open", "CLOSED", "TRIAGE"];
    let rows: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(id, state)| format!(r#"{{"id":{id},"type":"BUG","state":"{state}"}}"#))
        .collect();
    for (open_states, open) in [
        (vec!["OPEN"], 1),
        (vec!["IN_PROGRESS", "OPEN", "OPEN", "NEVER_SEEN"], 2),
        (vec![], 0),
        (vec![" "], 0),
    ] {
        let mut all = settings(100);
        all.open_states = open_states.iter().map(ToString::to_string).collect();
        let snapshot = Scanner::new(all, Counter::default())
            .round(&Script::listing(rows.clone()))
            .await
            .unwrap();
        assert_eq!(
            (snapshot.tickets, snapshot.open_total().tickets),
            (5, open),
            "{open_states:?}"
        );
    }
}

/// Not even a service that makes up a type, a state and a priority for each ticket fills the memory or the exposition.
#[tokio::test]
async fn made_up_label_values_are_bounded_in_number_and_length() {
    let long = "x".repeat(5000);
    let rows: Vec<String> = (0..3000)
        .map(|n| {
            format!(
                r#"{{"id":{n},"type":"{n}{long}","state":"{s}","linkedDeals":[{{"id":{n},"priority":"{n}{long}"}}]}}"#,
                s = if n % 2 == 0 { "OPEN".to_owned() } else { format!("{n}{long}") }
            )
        })
        .collect();
    let snapshot = Scanner::new(settings(100), Counter::default())
        .round(&Script::listing(rows))
        .await
        .unwrap();
    let values = MAX_VALUES + 10;
    assert!(
        snapshot.folded
            && snapshot.by_state().count() <= values * values
            && snapshot.open().count() <= values * values
    );
    assert!(
        snapshot
            .by_state()
            .all(|((state, kind), _)| state.len() <= 70 && kind.len() <= 70)
    );
    assert!(
        snapshot
            .open()
            .all(|((_, priority), _)| priority.len() <= 70)
    );
    assert_eq!(
        snapshot
            .by_state()
            .map(|(_, group)| group.tickets)
            .sum::<u64>(),
        3000
    );
    assert_eq!(snapshot.deals().map(|(_, deals)| deals).sum::<u64>(), 1500);
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
    let older = || {
        snapshot
            .older_than()
            .filter(|(kind, ..)| *kind == "BUG")
            .map(|(_, _, tickets)| tickets)
            .collect::<Vec<u64>>()
    };
    assert_eq!(older(), [2, 1, 1, 1]);
    tokio::time::advance(HOUR / 2).await;
    assert_eq!(older(), [2, 2, 1, 1]);
    tokio::time::advance(HOUR / 2).await;
    assert_eq!(older(), [3, 2, 1, 1]);
    assert_eq!(
        snapshot.oldest_created().collect::<Vec<_>>(),
        [("BUG", 1_735_689_600.25)]
    );
}

#[tokio::test]
async fn a_type_that_is_only_closed_still_has_open_series_at_zero() {
    let snapshot = snapshot(&[
        r#"{"id":1,"type":"BUG","state":"CLOSED","linkedDeals":[{"id":1,"priority":"HIGH"}]}"#,
    ])
    .await;
    assert_eq!(
        by_state(&snapshot),
        map([("CLOSED/BUG", 1), ("OPEN/BUG", 0)])
    );
    assert_eq!(
        (snapshot.open().count(), snapshot.open_total().tickets),
        (5, 0)
    );
    assert!(snapshot.deals().all(|(_, deals)| deals == 0));
}
