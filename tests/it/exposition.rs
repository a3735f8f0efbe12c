//! A whole scrape: the same lines in the same order every time, in both formats, and nothing that a strict parser refuses.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::ledger::MAX_LABEL;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;

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
    "orgdata_audit_open_range_age_seconds",
    "orgdata_last_success_timestamp_seconds",
    "orgdata_tickets_snapshot_timestamp_seconds",
    "orgdata_tickets_snapshot_duration_seconds",
];

/// Returns the scrape with a word in place of what differs from run to run.
fn masked(scrape: &str) -> String {
    let without_value = |line: &str| {
        let (series, _) = line.rsplit_once(' ').unwrap();
        format!("{series} VARIES\n")
    };
    let mask = |line: &str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        // The last number of an exemplar is its time.
        let has_exemplar = line.contains(" # {trace_id=");
        if line.starts_with('#') {
            format!("{line}\n")
        } else if VARYING.contains(&name) || has_exemplar {
            without_value(line)
        } else if name == "orgdata_exporter_build_info" {
            "orgdata_exporter_build_info{VARIES} 1\n".to_owned()
        } else {
            format!("{line}\n")
        }
    };
    scrape.lines().map(mask).collect()
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
        let lines = actual.lines().zip(expected.lines());
        for (number, (actual, expected)) in lines.enumerate() {
            let line = number + 1;
            assert_eq!(
                actual, expected,
                "{path}:{line}; UPDATE_GOLDEN=1 updates it"
            );
        }
        assert_eq!(
            actual.len(),
            expected.len(),
            "{path}; UPDATE_GOLDEN=1 updates it"
        );
    }
}

#[tokio::test]
async fn a_strict_parser_accepts_the_scrape_from_the_start() {
    for metrics in [
        Metrics::new(Duration::ZERO),
        Metrics::new(Duration::from_secs(60)),
        busy(),
    ] {
        parse(&encode(&metrics, Format::OpenMetrics)).unwrap();
    }
}

#[tokio::test]
async fn both_forms_have_the_same_series_and_only_one_has_exemplars() {
    let metrics = busy();
    let openmetrics = encode(&metrics, Format::OpenMetrics);
    let text = encode(&metrics, Format::Text);
    let families = parse(&openmetrics).unwrap();
    let samples = families.iter().flat_map(|family| &family.samples);
    let exemplars = samples.filter_map(|sample| sample.exemplar.as_ref());
    let names = exemplars.map(|(labels, _)| {
        let names = labels.iter().map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>()
    });
    assert_eq!(names.collect::<Vec<_>>(), [["trace_id", "span_id"]; 2]);
    assert!(!text.contains("trace_id"));
    // The samples of the classic form, under descriptors of OpenMetrics.
    let lines = text.lines().filter(|line| !line.starts_with("# HELP"));
    let lines = lines.map(|line| line.replace("_total counter", " counter") + "\n");
    let text = lines.collect::<String>() + "# EOF\n";
    let values = |families| {
        let mut values = series(families);
        values.retain(|(name, _), _| !VARYING.contains(&name.as_str()));
        values
    };
    assert_eq!(values(&families), values(&parse(&text).unwrap()));
}

/// A sentence or two for the tooltip of a graph, and the unit of a time.
#[tokio::test]
async fn every_family_explains_itself() {
    for family in parse(&encode(&busy(), Format::OpenMetrics)).unwrap() {
        let (name, help) = (&family.name, &family.help);
        let starts_well = help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
        assert!(
            starts_well && help.ends_with('.') && !help.ends_with(".."),
            "{name}: {help}"
        );
        assert!(help.split(' ').count() >= 4, "{name}: {help}");
        if name.ends_with("_timestamp_seconds") || name == "process_start_time_seconds" {
            assert!(help.contains("since the epoch"), "{name}: {help}");
        }
    }
}

#[test]
fn the_strict_parser_is_strict() {
    let right = "# TYPE a counter\n# HELP a Help.\na_total{x=\"1\"} 1 # {t=\"x\"} 1.0 12.5\n# TYPE b gauge\nb 1e3\n# EOF\n";
    assert_eq!(parse(right).unwrap().len(), 2);
    for (wrong, why) in [
        ("# TYPE a gauge\na 1\n", "no end"),
        (
            "# TYPE a counter\na 1\n# EOF\n",
            "a counter without its suffix",
        ),
        ("# TYPE a gauge\na 1\na 2\n# EOF\n", "twice"),
        (
            "# TYPE a gauge\n# HELP a say \"no\"\na 1\n# EOF\n",
            "a quote in HELP",
        ),
        ("# TYPE a gauge\na{x=\"\\t\"} 1\n# EOF\n", "an escape"),
        ("# TYPE a gauge\na{x=\"1\",} 1\n# EOF\n", "a comma"),
        ("# TYPE a gauge\na 0x1\n# EOF\n", "a number"),
        (
            "# TYPE a gauge\na 1 # {} 1\n# EOF\n",
            "an exemplar of a gauge",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"1.0\"} 2\na_count 2\na_sum 1\n# EOF\n",
            "no last bucket",
        ),
    ] {
        assert!(parse(wrong).is_err(), "{why}");
    }
}

/// Whatever the API returns, through the whole program.
#[tokio::test]
async fn label_values_of_every_kind_come_through_the_whole_program() {
    let long = "x".repeat(100_000);
    let cut = format!("{}…", "x".repeat(MAX_LABEL));
    // As written in JSON, where \u{1} stands for a byte that is not UTF-8, and as expected in a label.
    let values = [
        (
            "quote \\\" backslash \\\\ newline \\n end",
            "quote \" backslash \\ newline \n end",
        ),
        ("invalid \u{1}\u{1} here", "invalid \u{fffd}\u{fffd} here"),
        ("nul \\u0000 here", "nul \0 here"),
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
        let bytes = page.into_bytes().into_iter();
        bytes
            .map(|byte| if byte == 1 { 0xff } else { byte })
            .collect::<Vec<u8>>()
    };
    // What is there at the first start is not counted, what comes above it is.
    let first = item((values.len(), &("FIRST", "")));
    let pages = [
        page(std::slice::from_ref(&first)),
        page(&[items, vec![first]].concat()),
    ];
    let polls = AtomicUsize::new(0);
    let peer = http_peer::Peer::start(move |seen, _| match seen.target() {
        target if target.contains("tickets") => http_peer::json("200 OK", http_peer::NO_TICKETS),
        target if target.contains("before=") => http_peer::json("200 OK", http_peer::NO_ENTRIES),
        _ => http_peer::json("200 OK", &pages[polls.fetch_add(1, Relaxed).min(1)]),
    })
    .await;
    let exporter = binary::exporter(&peer.url()).start();
    let url = format!("{}/metrics", exporter.url().await);
    let scrape = |accept: &'static str| {
        let request = binary::client().get(&url).header("accept", accept);
        async move {
            let body = request.send().await.unwrap().bytes().await;
            String::from_utf8(body.unwrap().to_vec()).unwrap()
        }
    };
    let text = binary::until("the events", async || {
        let text = scrape("application/openmetrics-text;version=1.0.0").await;
        text.contains("actor=\"5\"").then_some(text)
    })
    .await;
    let families = parse(&text).unwrap();
    for (name, label) in [
        ("orgdata_audit_events", "activity_type"),
        ("orgdata_audit_actor_info", "name"),
    ] {
        let family = families.iter().find(|family| family.name == name);
        let mut shown = Vec::new();
        for sample in &family.unwrap().samples {
            let value = |wanted: &str| {
                let mut labels = sample.labels.iter();
                let found = labels.find(|(name, _)| name == wanted);
                found.map_or("", |(_, value)| value.as_str())
            };
            shown.push((value("actor"), value(label)));
        }
        shown.sort_unstable();
        let shown: Vec<&str> = shown.into_iter().map(|(_, value)| value).collect();
        assert_eq!(shown, values.map(|(_, expected)| expected), "{name}");
    }
    let classic = scrape("text/plain").await;
    assert!(classic.contains(r#"activity_type="quote \" backslash \\ newline \n end""#));
}
