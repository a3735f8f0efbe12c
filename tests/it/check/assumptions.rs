//! What three pages of audit logs and two of tickets show of the exporter's assumptions about the API.

use std::time::Duration;

use orgdata_exporter::simulator::{Config, Readings, TotalCount::Off};
use serde_json::{Value, json as value};

use super::{check, expect, organization, service};
use crate::support::http_peer::{NO_TICKETS, Peer, json};
use crate::support::service::spawn;

type Reading = fn(&mut Readings);

#[tokio::test]
async fn what_is_supported_is_good_and_what_is_not_says_what_the_exporter_does() {
    let order = "warning audit-logs: oldest entry comes first | not supported";
    let offset = "warning tickets: does not begin with the ticket at its offset | not consistent";
    let total = "warning tickets: totalCount is not the number | not consistent";
    let cases: [(Reading, &str); 7] = [
        (|it| it.page_cap = Some(7), ""),
        (|it| it.has_more = Some(false), ""),
        (|it| it.has_more = Some(true), ""),
        (|it| it.before_inclusive = true, ""),
        (|it| it.oldest_first = true, order),
        (|it| it.total_count = Off(-3), total),
        (|it| it.ignore_offset = true, offset),
    ];
    for (change, expected) in cases {
        let api = service().await;
        api.change_readings(change);
        expect(check(&api.base_url()), expected).await;
        let requests = api.requests();
        assert!(requests.audit <= 3 && requests.tickets <= 2, "{requests:?}");
    }
}

#[tokio::test]
async fn a_listing_of_any_length_is_good() {
    for (history, tickets) in [(1, 0), (9, 1), (10, 10), (19, 11), (21, 19)] {
        let config = Config {
            history,
            tickets,
            ..organization()
        };
        let api = spawn(config).await;
        let checked = expect(check(&api.base_url()), "").await;
        assert!(checked.0.ends_with("\nAll is well.\n"), "{}", checked.0);
    }
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
    let cases: [(Change, &str); 6] = [
        (
            |page, number| {
                for item in page["items"].as_array_mut().unwrap() {
                    item["id"] = format!("{}-{number}", item["id"]).into();
                }
            },
            "their ids change",
        ),
        (
            |page, _| page["items"][1]["id"] = page["items"][0]["id"].clone(),
            "two entries have one id",
        ),
        (
            |page, _| page["endCursor"] = Value::Null,
            "endCursor skips entries",
        ),
        (
            |page, _| page["endCursor"] = "7".into(),
            "endCursor skips entries",
        ),
        (
            |page, _| page["items"][3]["id"] = Value::Null,
            "entries have no id",
        ),
        (
            |page, _| page["items"][3]["createdAt"] = "yesterday".into(),
            "cannot be read, so records have the time of arrival",
        ),
    ];
    for (change, words) in cases {
        let api = entries(change).await;
        expect(check(&api.url()), &format!("warning audit-logs: {words}")).await;
    }
}

#[tokio::test]
async fn filters_that_do_not_filter_are_named() {
    let api = entries(|_, _| {}).await;
    for (flag, expected) in [
        (
            "--audit.activity-types=T",
            "good audit-logs: inside the filters",
        ),
        ("--audit.deal-ids=7", "warning audit-logs: --audit.deal-ids"),
    ] {
        expect(check(&api.url()).arg(flag), expected).await;
    }
}

#[tokio::test]
async fn entries_that_come_and_go_meanwhile_are_no_contradiction() {
    for seed in 0..8_u64 {
        let mut config = organization();
        config.history = [3, 12, 50, 400][seed as usize % 4];
        config.readings.before_inclusive = seed % 2 == 0;
        let api = spawn(config).await;
        api.on_request(Box::new(move |request, sim| {
            match seed.wrapping_mul(31).wrapping_add(request.number) % 4 {
                0 => sim.add_events(1 + request.number * 7 % 30),
                1 => sim.add_late(1 + seed % 3, Duration::from_secs(30)),
                2 => sim.retain(40),
                _ => {}
            }
            None
        }));
        expect(check(&api.base_url()), "").await;
    }
}
