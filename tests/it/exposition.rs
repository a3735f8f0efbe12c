//! A scrape as a whole: the same lines in the same order every time, in both formats, and nothing that a strict parser would refuse.

use crate::support::binary;
use crate::support::busy;
use crate::support::http_peer;
use crate::support::openmetrics;

use std::time::Duration;

use busy::{busy, encode};
use jiff::Timestamp;
use openmetrics::{parse, series};
use orgdata_exporter::ledger::MAX_LABEL;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::{Delta, EventLabels};
use orgdata_exporter::metrics::exposition::Format;

/// What differs from process to process and from run to run. A family's name stands for all its series.
const VARYING: [&str; 10] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "orgdata_last_success_timestamp_seconds",
    "orgdata_tickets_snapshot_timestamp_seconds",
    "orgdata_tickets_snapshot_duration_seconds",
];

/// The scrape with a word in place of what differs from run to run.
fn masked(scrape: &str) -> String {
    let mut out = String::new();
    for line in scrape.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let line = match line.split_once(" # {") {
            _ if line.starts_with('#') => line.to_owned(),
            _ if VARYING.contains(&name) => {
                format!("{} VARIES", line.rsplit_once(' ').expect("a value").0)
            }
            _ if name == "orgdata_exporter_build_info" => {
                "orgdata_exporter_build_info{VARIES} 1".to_owned()
            }
            // The time of an exemplar.
            Some((_, exemplar)) if exemplar.contains("trace_id") => {
                format!("{} VARIES", line.rsplit_once(' ').expect("a time").0)
            }
            _ => line.to_owned(),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Compares with `tests/golden/NAME`; `UPDATE_GOLDEN=1` writes it instead.
fn golden(name: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("it can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("a golden");
    for (number, (actual, expected)) in actual.lines().zip(expected.lines()).enumerate() {
        assert_eq!(
            actual,
            expected,
            "{} line {}; UPDATE_GOLDEN=1 writes it anew",
            path.display(),
            number + 1
        );
    }
    assert_eq!(
        actual,
        expected,
        "{}; UPDATE_GOLDEN=1 writes it anew",
        path.display()
    );
}

#[tokio::test]
async fn the_whole_scrape_in_openmetrics() {
    golden(
        "scrape-openmetrics.txt",
        &masked(&encode(&busy().await, Format::OpenMetrics)),
    );
}

#[tokio::test]
async fn the_whole_scrape_in_the_classic_form() {
    golden(
        "scrape-text.txt",
        &masked(&encode(&busy().await, Format::Text)),
    );
}

#[tokio::test]
async fn a_strict_parser_takes_the_scrape_from_the_first_moment_on() {
    for metrics in [
        Metrics::new(Duration::ZERO),
        Metrics::new(Duration::from_secs(60)),
        busy().await,
    ] {
        parse(&encode(&metrics, Format::OpenMetrics)).expect("strict OpenMetrics");
    }
}

#[tokio::test]
async fn both_forms_have_the_same_series_and_only_one_has_exemplars() {
    let metrics = busy().await;
    let (openmetrics, text) = (
        encode(&metrics, Format::OpenMetrics),
        encode(&metrics, Format::Text),
    );
    let families = parse(&openmetrics).expect("strict OpenMetrics");
    let exemplars: Vec<_> = families
        .iter()
        .flat_map(|family| &family.samples)
        .filter_map(|sample| sample.exemplar.as_ref())
        .collect();
    assert_eq!(exemplars.len(), 2, "the series that rose with a trace");
    assert!(exemplars.iter().all(|(labels, _)| {
        labels
            .iter()
            .map(|(name, _)| name.as_str())
            .eq(["trace_id", "span_id"])
    }));
    assert!(!text.contains("trace_id"));
    // The samples of the classic form, under descriptors that the strict reader takes.
    let mut same = String::new();
    for line in text.lines().filter(|line| !line.starts_with("# HELP")) {
        let line = line.strip_prefix("# TYPE ").map_or_else(
            || line.to_owned(),
            |family| {
                format!(
                    "# TYPE {}",
                    family
                        .strip_suffix("_total counter")
                        .map_or(family.to_owned(), |name| format!("{name} counter"))
                )
            },
        );
        same.push_str(&line);
        same.push('\n');
    }
    same.push_str("# EOF\n");
    let values = |families| {
        series(families)
            .into_iter()
            .filter(|((name, _), _)| !name.starts_with("process_"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        values(&families),
        values(&parse(&same).expect("the same samples"))
    );
}

/// A scrape lets the tail go on in the middle of a family: what was there at its beginning is in it once, whatever comes and goes.
#[test]
fn a_scrape_beside_a_tail_that_never_rests_is_whole() {
    let metrics = Metrics::new(Duration::ZERO);
    let set = |actor: u32| EventLabels {
        activity_type: "A".into(),
        actor: Some(format!("{actor:04}").into()),
    };
    let stays = || (0..4000).step_by(2);
    metrics.audit.publish(Delta {
        introduced: stays().map(|actor| (set(actor), 1)).collect(),
        ..Delta::default()
    });
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for actor in (1..4000)
                .step_by(2)
                .cycle()
                .take_while(|_| !done.load(std::sync::atomic::Ordering::Relaxed))
            {
                metrics.audit.publish(Delta {
                    events: vec![(set(actor), 1)],
                    ..Delta::default()
                });
                if actor % 400 == 399 {
                    let retired = (1..actor)
                        .step_by(2)
                        .filter_map(|actor| set(actor).actor)
                        .collect();
                    metrics.audit.publish(Delta {
                        retired,
                        ..Delta::default()
                    });
                }
            }
        });
        for _ in 0..10 {
            let shown =
                series(&parse(&encode(&metrics, Format::OpenMetrics)).expect("strict OpenMetrics"));
            for actor in stays() {
                let labels = vec![
                    ("activity_type".to_owned(), "A".to_owned()),
                    ("actor".to_owned(), format!("{actor:04}")),
                ];
                assert_eq!(
                    shown.get(&("orgdata_audit_events_total".to_owned(), labels)),
                    Some(&1.0),
                    "{actor}"
                );
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// What a stranger reads in a graph's tooltip: a sentence or two, and a unit where the name has one.
#[tokio::test]
async fn every_family_explains_itself() {
    for family in parse(&encode(&busy().await, Format::OpenMetrics)).expect("strict OpenMetrics") {
        let help = &family.help;
        assert!(
            help.ends_with('.')
                && help.split(' ').count() >= 4
                && help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()),
            "{}: {help}",
            family.name
        );
        if family.name.ends_with("_timestamp_seconds")
            || family.name == "process_start_time_seconds"
        {
            assert!(help.contains("since the epoch"), "{}: {help}", family.name);
        }
    }
}

#[test]
fn the_strict_parser_is_strict() {
    let right = "# TYPE a counter\n# HELP a Help.\na_total{x=\"1\"} 1 # {t=\"x\"} 1.0 12.5\n# TYPE b gauge\nb 1e3\n# EOF\n";
    assert_eq!(parse(right).expect("right").len(), 2);
    for (wrong, why) in [
        ("# TYPE a gauge\na 1\n", "no end"),
        ("# TYPE a gauge\na 1\n# EOF\n\n", "after the end"),
        ("# TYPE a gauge\n\na 1\n# EOF\n", "an empty line"),
        (
            "# TYPE a counter\na 1\n# EOF\n",
            "a counter without its suffix",
        ),
        (
            "# TYPE a counter\na_total -1\n# EOF\n",
            "a negative counter",
        ),
        ("# TYPE a gauge\na 1\na 2\n# EOF\n", "twice"),
        (
            "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\n# EOF\n",
            "twice in another order",
        ),
        (
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\n# EOF\n",
            "interleaved",
        ),
        (
            "# TYPE a gauge\n# HELP a say \"no\"\na 1\n# EOF\n",
            "a quote in HELP",
        ),
        ("# TYPE a gauge\na{x=\"\\t\"} 1\n# EOF\n", "an escape"),
        ("# TYPE a gauge\na{x=\"1\",} 1\n# EOF\n", "a comma"),
        ("# TYPE a gauge\na  1\n# EOF\n", "two spaces"),
        ("# TYPE a gauge\na 0x1\n# EOF\n", "a number"),
        (
            "# TYPE a gauge\na 1 # {} 1\n# EOF\n",
            "an exemplar of a gauge",
        ),
        (
            "# TYPE a counter\na_total 1 # {t=\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"} 1\n# EOF\n",
            "a long exemplar",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"1.0\"} 2\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum 1\n# EOF\n",
            "buckets that fall",
        ),
        (
            "# TYPE a histogram\na_bucket{le=\"1.0\"} 2\na_count 2\na_sum 1\n# EOF\n",
            "no last bucket",
        ),
        (
            "# UNIT a seconds\n# TYPE a gauge\na 1\n# EOF\n",
            "a unit that the name has not",
        ),
        ("# a comment\n# EOF\n", "a comment"),
        (
            "# TYPE a histogram\n# TYPE a_count gauge\na_count 1\n# EOF\n",
            "two families with one name",
        ),
    ] {
        assert!(parse(wrong).is_err(), "{why}");
    }
}

/// Whatever the service writes, the scrape stays one: through the whole program.
#[tokio::test]
async fn label_values_of_every_kind_come_through_the_whole_program() {
    let odd = [
        "quote \\\" backslash \\\\ newline \\n end",
        "invalid \u{1}\u{1} here",
        "nul \\u0000 here",
        "} # {a=\\\"b\\\"} 1",
        "é ☃ 𝄞",
    ];
    let long = "x".repeat(100_000);
    let mut items = Vec::new();
    for (index, kind) in odd.iter().copied().chain([long.as_str()]).enumerate() {
        items.push(format!(
            r#"{{"id":"{index}","type":"{kind}","occurredAt":"TIME","createdAt":"TIME","updatedAt":"TIME","organizationId":1,"actorUserId":{index},"actorUser":{{"id":{index},"firstName":"{kind}","lastName":null,"profileImageUrl":null}}}}"#
        ));
    }
    let now = Timestamp::now() - Duration::from_secs(60);
    let body = format!(
        r#"{{"items":[{}],"startCursor":"s","endCursor":"e","hasPrevious":false,"hasMore":false}}"#,
        items.join(",")
    );
    // No string of Rust's holds what is no UTF-8.
    let body: Vec<u8> = body
        .replace("TIME", &format!("{now:.3}"))
        .into_bytes()
        .into_iter()
        .map(|byte| if byte == 1 { 0xff } else { byte })
        .collect();
    let peer = http_peer::Peer::start(move |seen, _| match seen.target() {
        target if target.contains("tickets") => http_peer::json("200 OK", http_peer::NO_TICKETS),
        target if target.contains("before=") || target.contains("after=") => {
            http_peer::json("200 OK", http_peer::NO_ENTRIES)
        }
        _ => http_peer::json("200 OK", &body),
    })
    .await;
    let exporter = binary::exporter(&peer.url())
        .arg("--audit.start=oldest")
        .start();
    let url = exporter.url().await;
    let scrape = |accept: &'static str| {
        let request = binary::client()
            .get(format!("{url}/metrics"))
            .header("accept", accept);
        async move {
            request
                .send()
                .await
                .expect("an answer")
                .bytes()
                .await
                .expect("a body")
                .to_vec()
        }
    };
    let text = binary::until("the events", async || {
        let text = String::from_utf8(scrape("application/openmetrics-text;version=1.0.0").await)
            .expect("UTF-8, whatever came");
        text.contains("actor=\"5\"").then_some(text)
    })
    .await;
    let families = parse(&text).expect("strict OpenMetrics");
    let values = |name: &str, label: &str| -> Vec<String> {
        let family = families
            .iter()
            .find(|family| family.name == name)
            .expect("the family");
        let mut values: Vec<(String, String)> = family
            .samples
            .iter()
            .map(|sample| {
                let of = |wanted: &str| {
                    sample
                        .labels
                        .iter()
                        .find(|(name, _)| name == wanted)
                        .map(|(_, value)| value.clone())
                        .unwrap_or_default()
                };
                (of("actor"), of(label))
            })
            .collect();
        values.sort();
        values.into_iter().map(|(_, value)| value).collect()
    };
    let cut = format!("{}…", "x".repeat(MAX_LABEL));
    let expected = [
        "quote \" backslash \\ newline \n end",
        "invalid \u{fffd}\u{fffd} here",
        "nul \0 here",
        "} # {a=\"b\"} 1",
        "é ☃ 𝄞",
        &cut,
    ];
    assert_eq!(values("orgdata_audit_events", "activity_type"), expected);
    assert_eq!(values("orgdata_audit_actor_info", "name"), expected);
    let classic = String::from_utf8(scrape("text/plain").await).expect("UTF-8");
    assert!(classic.contains(r#"activity_type="quote \" backslash \\ newline \n end""#));
}
