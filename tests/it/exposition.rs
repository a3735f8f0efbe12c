//! A whole scrape: the same lines every time, in both formats, and nothing that a strict parser refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::ledger::MAX_LABEL;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;

use crate::support::binary::Scrape;
use crate::support::busy::{busy, encode};
use crate::support::openmetrics::{parse, series};
use crate::support::{binary, http_peer};

/// Families whose values differ from run to run.
const VARYING: [&str; 11] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "orgdata_audit_sweep_age_seconds",
    "orgdata_last_success_timestamp_seconds",
    "orgdata_tickets_snapshot_timestamp_seconds",
    "orgdata_tickets_snapshot_duration_seconds",
];

/// Returns the scrape with a word in place of what differs from run to run, and the samples of each family in order.
fn masked(scrape: &str) -> String {
    let mask = |line: &str| {
        let name = line.split(['{', ' ']).next().unwrap();
        // The last number of an exemplar is its time.
        let varies = VARYING.contains(&name) || line.contains(" # {trace_id=");
        match line.rsplit_once(' ') {
            _ if line.starts_with('#') => format!("{line}\n"),
            _ if name == "orgdata_exporter_build_info" => format!("{name}{{VARIES}} 1\n"),
            Some((series, _)) if varies => format!("{series} VARIES\n"),
            _ => format!("{line}\n"),
        }
    };
    let mut lines: Vec<String> = scrape.lines().map(mask).collect();
    let samples = lines.chunk_by_mut(|a, b| !a.starts_with('#') && !b.starts_with('#'));
    samples.for_each(<[String]>::sort_unstable);
    lines.concat()
}

#[tokio::test]
async fn the_whole_scrape_in_both_forms() {
    let metrics = busy();
    for (name, format) in [
        ("scrape-openmetrics.txt", Format::OpenMetrics),
        ("scrape-text.txt", Format::Text),
    ] {
        let actual = masked(&encode(&metrics, format));
        let directory = env!("CARGO_MANIFEST_DIR");
        let path = format!("{directory}/tests/golden/{name}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &actual).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        let mut lines = actual.lines().zip(expected.lines());
        let differs = lines.find(|(actual, expected)| actual != expected);
        let is_equal = differs.is_none() && actual.len() == expected.len();
        assert!(is_equal, "{path}: {differs:?}; UPDATE_GOLDEN=1 updates it");
    }
}

#[tokio::test]
async fn a_strict_parser_accepts_the_scrape_from_the_start() {
    let empty = [0, 60].map(|hold| Metrics::new(Duration::from_secs(hold)));
    for metrics in empty {
        parse(&encode(&metrics, Format::OpenMetrics)).unwrap();
    }
}

#[tokio::test]
async fn every_family_explains_itself() {
    for family in parse(&encode(&busy(), Format::OpenMetrics)).unwrap() {
        let (name, help) = (&family.name, &family.help);
        let starts_well = help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
        let ends_well = help.ends_with('.') && !help.ends_with("..");
        assert!(starts_well && ends_well, "{name}: {help}");
        assert!(help.split(' ').count() >= 4, "{name}: {help}");
        // prometheus-client writes HELP as it is, and OpenMetrics wants these escaped.
        assert!(!help.contains(['"', '\\']), "{name}: {help}");
        if name.ends_with("_timestamp_seconds") || name == "process_start_time_seconds" {
            assert!(help.contains("since the epoch"), "{name}: {help}");
        }
    }
}

#[tokio::test]
async fn label_values_of_every_kind_come_through_the_whole_program() {
    let long = "x".repeat(100_000);
    let cut = format!("{}…", "x".repeat(MAX_LABEL));
    // As written in JSON, where \u{1} stands for a byte that is not UTF-8, and as expected in a label.
    let values = [
        ("a \\\" b \\\\ c \\n d", "a \" b \\ c   d"),
        ("invalid \u{1}\u{1} here", "invalid \u{fffd}\u{fffd} here"),
        ("nul \\u0000 here", "nul   here"),
        ("esc \\u001b[31m cr \\r end", "esc  [31m cr   end"),
        ("} # {a=\\\"b\\\"} 1", "} # {a=\"b\"} 1"),
        ("é ☃ 𝄞", "é ☃ 𝄞"),
        (&long, &cut),
    ];
    let time = Timestamp::now() - Duration::from_secs(60);
    let item = |(id, (text, _)): (usize, &(&str, &str))| {
        format!(
            r#"{{"id":"{id}","type":"{text}","occurredAt":"{time:.3}","createdAt":"{time:.3}","updatedAt":"{time:.3}","organizationId":1,"actorUserId":{id},"actorUser":{{"id":{id},"firstName":"{text}","lastName":null,"profileImageUrl":null}}}}"#
        )
    };
    let items: Vec<String> = values.iter().enumerate().map(item).collect();
    let page = |items: &[String]| {
        let items = items.join(",");
        let page = format!(
            r#"{{"items":[{items}],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":false}}"#
        );
        let not_utf_8 = |byte| if byte == 1 { 0xff } else { byte };
        page.into_bytes()
            .into_iter()
            .map(not_utf_8)
            .collect::<Vec<u8>>()
    };
    // What is there at the first start is not counted, what comes above it is.
    let first = item((values.len(), &("FIRST", "")));
    let pages = [
        page(std::slice::from_ref(&first)),
        page(&[items, vec![first]].concat()),
    ];
    let is_synced = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&is_synced);
    let peer = http_peer::Peer::start(move |seen, _| match seen.target() {
        target if target.contains("tickets") => http_peer::json("200 OK", http_peer::NO_TICKETS),
        target if target.contains("before=") => http_peer::json("200 OK", http_peer::NO_ENTRIES),
        _ => http_peer::json("200 OK", &pages[usize::from(later.load(Relaxed))]),
    })
    .await;
    let exporter = binary::exporter(&peer.url()).start();
    exporter.synced().await;
    is_synced.store(true, Relaxed);
    let all = |scrape: &Scrape| scrape.0.contains("actor=\"5\"");
    let classic = exporter.until("the events", all).await.0;
    assert!(classic.contains(r#"activity_type="a \" b \\ c   d""#));
    let request = binary::client().get(format!("{}/metrics", exporter.url().await));
    let accept = "application/openmetrics-text;version=1.0.0";
    let answer = request.header("accept", accept).send().await.unwrap();
    // UTF-8, whatever came.
    let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let mut shown = series(&parse(&text).unwrap());
    let names = ["orgdata_audit_events_total", "orgdata_audit_actor_info"];
    shown.retain(|(name, _), _| names.contains(&name.as_str()));
    assert_eq!(shown.len(), 2 * values.len());
    for (id, (_, expected)) in values.iter().enumerate() {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let actor = label("actor", &id.to_string());
        let event = vec![label("activity_type", expected), actor.clone()];
        let info = vec![actor, label("name", expected)];
        for (name, labels) in names.into_iter().zip([event, info]) {
            let key = (name.to_owned(), labels);
            assert!(shown.contains_key(&key), "{key:?}: {shown:?}");
        }
    }
}
