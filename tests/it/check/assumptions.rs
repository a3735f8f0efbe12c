//! What the exporter assumes of the API: each line of docs/api.md holds, does not hold or cannot be told, and never wrongly so.

use std::time::Duration;

use orgdata_exporter::simulator::{
    ClockSource, Config, Endpoint, Fault, FaultKind, Fields, KeyReading, Readings, Running,
    TimeForm, TotalCount::*,
};
use serde_json::{Value, json as value};

use super::{Checked, check, expect, organization};
use crate::support::binary::Launch;
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS, Peer, json};
use crate::support::service::spawn;

/// `check` without the limit of requests per second, which is for the API's sake.
fn quick(base_url: &str) -> Launch {
    check(base_url).arg("--api.max-requests-per-second=1000")
}

async fn reading(change: impl FnOnce(&mut Readings)) -> Running {
    let api = spawn(organization()).await;
    api.change_readings(change);
    api
}

#[tokio::test]
async fn all_of_them_hold_for_an_api_as_documented() {
    let api = spawn(organization()).await;
    let all = "good page-size: a limit of 1000 brings all 50 entries that there are";
    let checked = expect(quick(&api.base_url()), all).await;
    for name in [
        "times",
        "order",
        "ids",
        "cursors",
        "has-more",
        "page-size",
        "open-states",
        "offset",
        "last-page",
        "total-count",
    ] {
        checked.assert("good", name, "holds: ");
    }
    let small = quick(&api.base_url()).arg("--api.page-size=25");
    let words = "good page-size: a limit of 25 brings as many entries";
    let small = expect(small, words).await;
    small.assert("good", "has-more", "entries follow 2 pages with it");
    let requests = api.requests();
    assert!(requests.audit + requests.tickets <= 2 * 25, "{requests:?}");
}

type Change = fn(&mut Readings);

/// Readings of the specification, and what is said of each.
const READINGS: [(Change, &str); 14] = [
    (|it| it.before_inclusive = true, "good cursors: inclusive"),
    (|it| it.page_cap = Some(20), "good page-size: at most 20"),
    (|it| it.page_cap = Some(2), "good page-size: at most 2"),
    (|it| it.times = TimeForm::NoZone, "good times: can be read"),
    (|it| it.times = TimeForm::Millis, "good times: can be read"),
    (|it| it.behind = 3, "good audit-logs: can be read"),
    (|it| it.tickets_oldest_first = true, "good offset: holds"),
    (|it| it.has_more = Some(false), "unknown has-more: "),
    (|it| it.has_more = Some(true), "warning has-more: last page"),
    (|it| it.oldest_first = true, "warning order: not supported"),
    (|it| it.total_count = Missing, "warning total-count: it is"),
    (|it| it.total_count = Off(3), "warning total-count: fewer"),
    (|it| it.total_count = PageLength, "warning total-count: "),
    (|it| it.ignore_offset = true, "warning offset: may fail"),
];

#[tokio::test]
async fn what_does_not_hold_says_what_the_exporter_does_and_what_is_supported_is_no_warning() {
    for (change, expected) in READINGS {
        expect(quick(&reading(change).await.base_url()), expected).await;
    }
    let arrival = |it: &mut Readings| it.key = KeyReading::Arrival;
    let readings = crate::support::service::readings(arrival);
    let api = spawn(Config {
        readings,
        ..organization()
    })
    .await;
    api.add_late(3, Duration::from_secs(3600));
    expect(quick(&api.base_url()), "good order: createdAt rises ").await;
    let ahead = Fields::new().with("createdAt", "2100-01-01T00:00:00Z");
    api.add_entry(&ahead).unwrap();
    expect(quick(&api.base_url()), "warning times: time zone").await;

    let api = spawn(organization()).await;
    api.fault(Fault::new(FaultKind::TooLarge(500)).on(Endpoint::Audit));
    let words = "warning page-size: a page of 1000 entries fails (HTTP 500, server_error) | requests smaller ones | --api.page-size=125";
    expect(quick(&api.base_url()), words).await;
}

#[tokio::test]
async fn states_that_no_ticket_has_are_named() {
    let api = spawn(organization()).await;
    for (states, size, expected) in [
        ("OPEN,NEW", "1000", "warning open-states: CLOSED, OPEN"),
        // They may be on another page, unless only their case is wrong.
        ("OPEN,NEW", "10", "unknown open-states: is NEW"),
        ("OPEN,open", "10", "warning open-states: is open"),
    ] {
        let launch = quick(&api.base_url()).flag("--tickets.open-states", states);
        expect(launch.flag("--api.page-size", size), expected).await;
    }
    api.clear_tickets();
    let none = "unknown tickets: none found in 1 response";
    expect(quick(&api.base_url()), none).await;
}

/// A page of a listing that a script writes; requests are counted from 1.
type Entries = fn(limit: u64, before: Option<u64>, number: usize) -> Value;

/// Returns the page as documented, of entries 99 to 0. A cursor is the number of its entry.
fn documented(limit: u64, before: Option<u64>) -> Value {
    let top = before.unwrap_or(100);
    let end = top.saturating_sub(limit);
    let entry = |number: u64| {
        let time = jiff::Timestamp::from_second(1_760_000_000 + number as i64).unwrap();
        value!({"id": format!("e{number}"), "type": "T", "createdAt": time.to_string(), "organizationId": 1})
    };
    let items: Vec<Value> = (end..top).rev().map(entry).collect();
    let cursor = (!items.is_empty()).then(|| end.to_string());
    value!({"items": items, "endCursor": cursor, "hasMore": end > 0})
}

/// Returns the same with another field in each entry, which gets its index.
fn with(
    limit: u64,
    before: Option<u64>,
    field: &str,
    other: impl Fn(usize, &Value) -> Value,
) -> Value {
    let mut page = documented(limit, before);
    let items = page["items"].as_array_mut().unwrap().iter_mut();
    for (index, item) in items.enumerate() {
        item[field] = other(index, &item[field]);
    }
    page
}

/// Returns the number of a parameter of a request.
fn parameter(target: &str, wanted: &str) -> Option<u64> {
    let query = url::Url::parse(&format!("http://x{target}")).unwrap();
    let mut pairs = query.query_pairs();
    pairs.find(|(name, _)| name == wanted)?.1.parse().ok()
}

async fn scripted(entries: Entries) -> Peer {
    Peer::start(move |seen, number| {
        let target = seen.target();
        if target.contains("/v1/tickets") {
            return json("200 OK", NO_TICKETS);
        }
        let limit = parameter(target, "limit").unwrap();
        let page = entries(limit, parameter(target, "before"), number);
        json("200 OK", page.to_string())
    })
    .await
}

#[tokio::test]
async fn odd_pages_of_audit_logs_are_recognized() {
    let cases: [(Entries, &str); 9] = [
        (
            |limit, before, number| {
                let other = |_, id: &Value| format!("{id}-{number}").into();
                with(limit, before, "id", other)
            },
            "warning ids: entries have other ids in the next response",
        ),
        (
            |limit, before, _| with(limit, before, "id", |_, _| Value::Null),
            "warning ids: 100 of 100 entries have none | a hash of the entry",
        ),
        (
            |limit, before, _| {
                let same = |index, id: &Value| if index < 20 { id.clone() } else { "x".into() };
                with(limit, before, "id", same)
            },
            "warning ids: two entries have one id",
        ),
        (
            |limit, before, _| {
                let odd = |index, at: &Value| if index > 0 { at.clone() } else { "soon".into() };
                with(limit, before, "createdAt", odd)
            },
            "warning times: 1 of 100 entries have none that can be read",
        ),
        (
            |limit, before, _| {
                let mut page = documented(limit, before);
                page["endCursor"] = Value::Null;
                page
            },
            "warning cursors: a page with entries below it has no endCursor | ask the API's operators",
        ),
        (
            |limit, before, _| documented(limit, before.map(|before| before.saturating_sub(2))),
            "warning cursors: endCursor leads past some entries",
        ),
        (
            |limit, _, _| documented(limit.min(60), None),
            "warning cursors: endCursor leads to no further entry",
        ),
        (
            // An accident.
            |limit, before, number| match before.is_some() && number == 4 {
                true => serde_json::from_str(NO_ENTRIES).unwrap(),
                false => documented(limit, before),
            },
            "",
        ),
        (
            |_, before, _| documented(50, before),
            "warning page-size: a page has more entries than its limit",
        ),
    ];
    for (entries, expected) in cases {
        let api = scripted(entries).await;
        expect(quick(&api.url()), expected).await;
    }
}

#[tokio::test]
async fn filters_that_do_not_filter_are_named() {
    let api = scripted(|limit, before, _| documented(limit, before)).await;
    for (flag, expected) in [
        ("--audit.activity-types=T", ""),
        ("--audit.deal-ids=7", "warning filters: 100 of 100"),
        ("--audit.actor-emails=a@b.c", "unknown filters: e-mail"),
    ] {
        expect(quick(&api.url()).arg(flag), expected).await;
    }
    // Pages that are filtered after they were cut are shorter, which is no maximum.
    let api = reading(|it| (it.filter_after_limit, it.page_cap) = (true, Some(20))).await;
    let launch = quick(&api.base_url()).arg("--audit.activity-types=TASK_COMPLETED");
    let checked = expect(launch, "").await;
    assert!(!checked.0.contains("at most"), "{}", checked.0);
}

/// Where an offset leads in a listing of `total` tickets.
type Offset = fn(limit: u64, offset: u64, total: u64) -> u64;

async fn tickets(total: u64, offset: Offset) -> Peer {
    Peer::start(move |seen, _| {
        let number = |name| parameter(seen.target(), name).unwrap();
        let (limit, given) = (number("limit"), number("offset"));
        let start = offset(limit, given, total).min(total);
        let ids = start..(start + limit).min(total);
        let items = ids.map(|id| value!({"id": id, "state": "OPEN", "type": "BUG"}));
        let items: Vec<Value> = items.collect();
        let page = value!({"items": items, "limit": limit, "offset": given, "totalCount": total});
        json("200 OK", page.to_string())
    })
    .await
}

#[tokio::test]
async fn offsets_that_are_rounded_or_stop_before_the_end_are_named() {
    let rounded = "warning offset: it is ignored or rounded | not consistent";
    let readings: [(Offset, &str); 4] = [
        (|_, offset, _| offset, ""),
        (|limit, offset, _| offset - offset % limit, rounded),
        (|limit, offset, _| offset.next_multiple_of(limit), rounded),
        (
            |limit, offset, total| offset.min(total.saturating_sub(limit)),
            "warning last-page: an offset near the end leads to the last full page | not consistent",
        ),
    ];
    for (offset, expected) in readings {
        for total in [6, 7, 1500] {
            let api = tickets(total, offset).await;
            let launch = quick(&api.url()).arg("--audit.enabled=false");
            expect(launch, expected).await;
        }
    }
}

/// Whatever moves while it asks, nothing is said that is not so.
#[tokio::test]
async fn entries_and_tickets_that_come_and_go_meanwhile_are_no_contradiction() {
    for seed in 0..16_u64 {
        let config = Config {
            history: [3, 12, 50, 400][seed as usize % 4],
            tickets: [0, 2, 6, 40][seed as usize / 4 % 4],
            clock: ClockSource::Real,
            readings: Readings {
                key: if seed % 2 == 0 {
                    KeyReading::CreatedAt
                } else {
                    KeyReading::Arrival
                },
                before_inclusive: seed % 3 == 0,
                tickets_oldest_first: seed % 5 == 0,
                ..Readings::default()
            },
            ..Config::quiet()
        };
        let api = spawn(config).await;
        api.on_request(Box::new(move |request, sim| {
            let mix = seed.wrapping_mul(31).wrapping_add(request.number);
            match mix % 6 {
                0 => sim.add_events(1 + mix % 30),
                1 => sim.add_late(1 + mix % 3, Duration::from_secs(30)),
                2 => sim.retain(40),
                3 => drop(sim.add_ticket(Fields::new())),
                4 => drop(sim.ticket_ids().first().map(|id| sim.remove_ticket(*id))),
                _ => {}
            }
            None
        }));
        let checked = Checked(quick(&api.base_url()).run().await.stdout);
        // That none of the tickets is open may be so.
        let is_wrong = |(level, name, _): &(&str, &str, &str)| {
            ["warning", "bad"].contains(level) && *name != "open-states"
        };
        let wrong = checked.findings().iter().any(is_wrong);
        assert!(!wrong, "seed {seed}: {}", checked.0);
    }
}
