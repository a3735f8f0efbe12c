//! Real servers read both formats of a scrape: every series of a busy exporter arrives with its value, whatever its labels contain.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use serde_json::Value;

use crate::support::busy::{busy, encode};
use crate::support::files::{array, text};
use crate::support::http_peer::{Peer, answer};
use crate::support::openmetrics::{Labels, parse, series};
use crate::support::parts::{Prometheus, number, promtool};

type Series = BTreeMap<(String, Labels), f64>;

/// Returns what a server has of a target, without what it adds itself.
fn shown(answer: &Value) -> Series {
    let mut series = Series::new();
    for one in array(answer) {
        let name = text(&one["metric"]["__name__"]);
        let mut labels: Labels = Vec::new();
        for (name, value) in one["metric"].as_object().unwrap() {
            // The collector names the receiver, and writes whole bounds without a fraction.
            let is_whole = name == "le" && text(value).parse::<u64>().is_ok();
            let value = text(value) + if is_whole { ".0" } else { "" };
            if !["__name__", "instance", "job"].contains(&&**name)
                && !name.starts_with("otel_scope_")
            {
                labels.push((name.clone(), value));
            }
        }
        labels.sort();
        if !["up", "target_info"].contains(&&*name) && !name.starts_with("scrape_") {
            series.insert((name, labels), number(&one["value"][1]));
        }
    }
    series
}

async fn both_formats_arrive(program: &str) {
    let metrics = busy();
    let openmetrics = encode(&metrics, Format::OpenMetrics);
    let families = parse(&openmetrics).unwrap();
    let mut expected = series(&families);
    let scrapes = [
        (Format::OpenMetrics, openmetrics),
        (Format::Text, encode(&metrics, Format::Text)),
    ];
    let serve = |(format, scrape): (Format, String)| {
        let content_type = format!("content-type: {}", format.content_type());
        Peer::always(answer("200 OK", &[&content_type], scrape))
    };
    let peers = join_all(scrapes.map(serve)).await;
    let targets = [&peers[0], &peers[1]].map(|peer| peer.address().to_string());
    let server = Prometheus::start(program, &[&targets[0], &targets[1]], "1s").await;
    let count = expected.len();
    // They differ between two scrapes.
    let passing = ["process_", "orgdata_audit_behind_since_timestamp_seconds"];
    let is_passing =
        |(name, _): &(String, Labels)| passing.iter().any(|start| name.starts_with(start));
    expected.retain(|series, _| !is_passing(series));
    for target in &targets {
        let query = format!("{{__name__=~\".+\",instance=\"{target}\"}}");
        let is_whole = |answer: &Value| shown(answer).len() >= count;
        let mut shown = shown(&server.query_until(&query, is_whole).await);
        shown.retain(|series, _| !is_passing(series));
        assert!(shown.keys().eq(expected.keys()), "{target}: {shown:#?}");
        for (series, value) in &expected {
            // VictoriaMetrics keeps fifteen digits.
            let difference = (shown[series] - value).abs();
            assert!(difference <= value.abs() * 1e-14, "{target}: {series:?}");
        }
    }
    if program.starts_with("prometheus") {
        let known = server.api("metadata", &[]).await;
        for family in families.iter().filter(|family| !family.samples.is_empty()) {
            // The classic format names the family of a counter like its samples.
            let names = ["", "_total"].map(|suffix| format!("{}{suffix}", family.name));
            let found = names.iter().filter_map(|name| known[name].as_array());
            let found: Vec<String> = found.flatten().map(|one| text(&one["type"])).collect();
            let is_right = found.iter().all(|kind| *kind == family.kind);
            assert!(is_right && !found.is_empty(), "{}: {found:?}", family.name);
        }
    }
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3, VictoriaMetrics and vmagent"]
async fn every_server_reads_both_formats() {
    for program in ["prometheus", "prometheus3", "victoria-metrics", "vmagent"] {
        both_formats_arrive(program).await;
    }
}

/// It takes longer to compile than a run of all tests may take, so it is not a part of each run.
#[tokio::test]
#[ignore = "needs the collector's Prometheus receiver"]
async fn otelcol_scrape_reads_both_formats() {
    both_formats_arrive("otelcol-scrape").await;
}

#[tokio::test]
#[ignore = "needs promtool"]
async fn promtool_has_no_remark_on_any_family() {
    // One shows every family; in a new one most are absent or 0.
    for metrics in [busy(), Metrics::new(Duration::ZERO)] {
        promtool(&["check", "metrics"], &encode(&metrics, Format::Text));
    }
}
