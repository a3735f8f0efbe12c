//! Both forms of a scrape, read by real servers: every series of a busy exporter arrives with its value, whatever is in its labels.

use crate::support::busy;
use crate::support::openmetrics;
use crate::support::parts;

use std::collections::BTreeMap;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use busy::{busy, encode};
use openmetrics::{Labels, parse, series};
use orgdata_exporter::metrics::exposition::Format;
use parts::{Prometheus, number, promtool_check_metrics};
use serde_json::Value;

type Series = BTreeMap<(String, Labels), f64>;

/// A scrape that stands still, under the content type that belongs to it, whatever is asked for; the address that it is served at.
async fn serve(format: Format, scrape: String) -> String {
    let router = Router::new().route(
        "/metrics",
        get(move || async move { ([(CONTENT_TYPE, format.content_type())], scrape) }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// What a server has of a target, less what it adds itself.
fn shown(answer: &Value) -> Series {
    let mut series = Series::new();
    for one in answer.as_array().expect("a vector") {
        let labels = one["metric"].as_object().expect("labels").iter();
        let labels: BTreeMap<String, String> = labels
            .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
            .collect();
        let name = labels["__name__"].clone();
        if name == "up" || name.starts_with("scrape_") {
            continue;
        }
        let labels = labels
            .into_iter()
            .filter(|(name, _)| !["__name__", "instance", "job"].contains(&name.as_str()))
            .collect();
        series.insert((name, labels), number(&one["value"][1]));
    }
    series
}

async fn both_forms_arrive_whole(start: impl AsyncFn(&[&str]) -> Prometheus, exemplars: bool) {
    let metrics = busy();
    let openmetrics = encode(&metrics, Format::OpenMetrics);
    let expected = series(&parse(&openmetrics).expect("strict OpenMetrics"));
    let text = encode(&metrics, Format::Text);
    // A reading of the process is another one in each scrape.
    let process = |series: &Series| -> Series {
        series
            .iter()
            .filter(|((name, _), _)| !name.starts_with("process_"))
            .map(|(key, value)| (key.clone(), *value))
            .collect()
    };
    let targets = [
        serve(Format::OpenMetrics, openmetrics).await,
        serve(Format::Text, text).await,
    ];
    let server = start(&[&targets[0], &targets[1]]).await;
    for target in &targets {
        let answer = server
            .query_until(
                &format!("{{__name__=~\".+\",instance=\"{target}\"}}"),
                |answer| shown(answer).len() >= expected.len(),
            )
            .await;
        let (shown, expected) = (process(&shown(&answer)), process(&expected));
        // VictoriaMetrics keeps fifteen digits of a time.
        let agree = |key| matches!((shown.get(key), expected.get(key)), (Some(a), Some(b)) if (a - b).abs() <= b.abs() * 1e-14);
        let differing: Vec<_> = shown
            .keys()
            .chain(expected.keys())
            .filter(|key| !agree(*key))
            .collect();
        assert!(
            differing.is_empty(),
            "{target}: {:?}",
            differing
                .iter()
                .map(|key| (key, shown.get(key), expected.get(key)))
                .collect::<Vec<_>>()
        );
    }
    if exemplars {
        let of = |target: &str| {
            format!("orgdata_audit_events_total{{actor=\"9\",instance=\"{target}\"}}")
        };
        let found = server
            .exemplars_until(&of(&targets[0]), |found| !found.is_empty())
            .await;
        assert_eq!(found[0]["labels"]["trace_id"], "0a".repeat(16));
    }
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42"]
async fn the_oldest_supported_prometheus_reads_both_forms() {
    both_forms_arrive_whole(async |targets| Prometheus::start(targets, "1s").await, true).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 3"]
async fn the_current_prometheus_reads_both_forms() {
    both_forms_arrive_whole(
        async |targets| Prometheus::start_current(targets, "1s").await,
        true,
    )
    .await;
}

#[tokio::test]
#[ignore = "needs VictoriaMetrics"]
async fn victoriametrics_reads_both_forms() {
    both_forms_arrive_whole(
        async |targets| Prometheus::start_victoria_metrics(targets, "1s").await,
        false,
    )
    .await;
}

#[tokio::test]
#[ignore = "needs promtool"]
async fn promtool_has_no_remark_on_every_family() {
    promtool_check_metrics(&encode(&busy(), Format::Text)).expect("no remark");
}
