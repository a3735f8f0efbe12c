//! What the exporter assumes of the API: each line of docs/api.md holds, does not hold or cannot be told, and never wrongly so.

use std::time::Duration;

use orgdata_exporter::simulator::{
    ClockSource, Config, Endpoint, Fault, FaultKind, Fields, KeyReading, Readings, TotalCount::Off,
};
use serde_json::{Value, json as value};

use super::{Checked, check, expect, service};
use crate::support::binary::Launch;
use crate::support::http_peer::{NO_TICKETS, Peer, json};
use crate::support::service::spawn;

/// `check` without the limit of requests per second, which is for the API's sake.
fn quick(base_url: &str) -> Launch {
    check(base_url).arg("--api.max-requests-per-second=1000")
}

type Reading = fn(&mut Readings);

#[tokio::test]
async fn what_does_not_hold_says_what_the_exporter_does_and_what_is_supported_is_no_warning() {
    let cases: [(Reading, &str); 6] = [
        (|it| it.page_cap = Some(20), "good page-size: at most 20"),
        (|it| it.has_more = Some(false), "unknown has-more: "),
        (|it| it.has_more = Some(true), "warning has-more: last page"),
        (|it| it.oldest_first = true, "warning order: not supported"),
        (|it| it.total_count = Off(3), "warning total-count: fewer"),
        (|it| it.ignore_offset = true, "warning offset: may fail"),
    ];
    for (change, expected) in cases {
        let api = service().await;
        api.change_readings(change);
        expect(quick(&api.base_url()), expected).await;
    }
    let api = service().await;
    let large = Fault::new(FaultKind::TooLarge(500)).on(Endpoint::Audit);
    api.fault(large);
    let words = "warning page-size: a page of 1000 entries fails (HTTP 500, server_error) | requests smaller ones | --api.page-size=125";
    expect(quick(&api.base_url()), words).await;
    api.clear_faults();
    let ahead = Fields::new().with("createdAt", "2100-01-01T00:00:00Z");
    api.add_entry(&ahead).unwrap();
    expect(quick(&api.base_url()), "warning times: time zone").await;
}

#[tokio::test]
async fn states_that_no_ticket_has_are_named() {
    let api = service().await;
    for (size, expected) in [
        ("1000", "warning open-states: none of 20 tickets is NEW"),
        // They may be on another page.
        ("10", "unknown open-states: is NEW"),
    ] {
        let launch = quick(&api.base_url()).arg("--tickets.open-states=OPEN,NEW");
        expect(launch.flag("--api.page-size", size), expected).await;
    }
    api.clear_tickets();
    let none = "unknown tickets: none found in 1 response";
    expect(quick(&api.base_url()), none).await;
}

/// Returns the number of a parameter of a request.
fn parameter(target: &str, name: &str) -> Option<u64> {
    let (_, rest) = target.split_once(&format!("{name}="))?;
    rest.split('&').next()?.parse().ok()
}

/// A change of a page, which gets the number of its request, from 1.
type Change = fn(&mut Value, usize);

/// An API with entries 99 to 0, whose cursors are their numbers.
async fn entries(change: Change) -> Peer {
    Peer::start(move |seen, number| {
        if seen.target().contains("/v1/tickets") {
            return json("200 OK", NO_TICKETS);
        }
        let top = parameter(seen.target(), "before").unwrap_or(100);
        let end = top.saturating_sub(parameter(seen.target(), "limit").unwrap());
        let entry = |number: u64| {
            let time = 1_760_000_000 + number;
            value!({"id": format!("e{number}"), "type": "T", "createdAt": time, "organizationId": 1})
        };
        let items: Vec<Value> = (end..top).rev().map(entry).collect();
        let cursor = (!items.is_empty()).then(|| end.to_string());
        let mut page = value!({"items": items, "endCursor": cursor, "hasMore": end > 0});
        if end < top {
            change(&mut page, number);
        }
        json("200 OK", page.to_string())
    })
    .await
}

#[tokio::test]
async fn odd_pages_of_audit_logs_are_recognized() {
    let cases: [(Change, &str); 4] = [
        (
            |page, number| {
                for item in page["items"].as_array_mut().unwrap() {
                    item["id"] = format!("{}-{number}", item["id"]).into();
                }
            },
            "warning ids: entries have other ids in the next response",
        ),
        (
            |page, _| page["items"][1]["id"] = page["items"][0]["id"].clone(),
            "warning ids: two entries have one id",
        ),
        (
            |page, _| page["endCursor"] = Value::Null,
            "warning cursors: a page with entries below it has no endCursor",
        ),
        (
            |page, _| page["endCursor"] = "7".into(),
            "warning cursors: endCursor leads past some entries",
        ),
    ];
    for (change, expected) in cases {
        expect(quick(&entries(change).await.url()), expected).await;
    }
}

#[tokio::test]
async fn filters_that_do_not_filter_are_named() {
    let api = entries(|_, _| {}).await;
    for (flag, expected) in [
        ("--audit.activity-types=T", ""),
        ("--audit.deal-ids=7", "warning filters: 100 of 100"),
        ("--audit.actor-emails=a@b.c", "unknown filters: e-mail"),
    ] {
        expect(quick(&api.url()).arg(flag), expected).await;
    }
}

#[tokio::test]
async fn an_offset_that_stops_before_the_end_is_named() {
    let api = Peer::start(|seen, _| {
        let total = 7;
        let number = |name| parameter(seen.target(), name).unwrap();
        let (limit, offset) = (number("limit"), number("offset"));
        let start = offset.min(total - limit.min(total));
        let ids = start..(start + limit).min(total);
        let ticket = |id| value!({"id": id, "state": "OPEN", "type": "BUG"});
        let items: Vec<Value> = ids.map(ticket).collect();
        let page = value!({"items": items, "limit": limit, "offset": offset, "totalCount": total});
        json("200 OK", page.to_string())
    })
    .await;
    let launch = quick(&api.url()).arg("--audit.enabled=false");
    let words =
        "warning last-page: an offset near the end leads to the last full page | not consistent";
    expect(launch, words).await;
}

/// Whatever moves while it asks, nothing is said that is not so.
#[tokio::test]
async fn entries_and_tickets_that_come_and_go_meanwhile_are_no_contradiction() {
    for seed in 0..10_u64 {
        let mut config = Config::quiet();
        config.history = [3, 12, 50, 400][seed as usize % 4];
        config.tickets = [0, 2, 6, 40][seed as usize / 2 % 4];
        config.clock = ClockSource::Real;
        if seed % 2 == 1 {
            config.readings.key = KeyReading::Arrival;
        }
        config.readings.before_inclusive = seed % 3 == 0;
        config.readings.tickets_oldest_first = seed % 5 == 0;
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
