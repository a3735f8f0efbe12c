//! Settings of the parts that tests and benchmarks put together by themselves; what matters to one of them it sets itself.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::api::{self, BaseUrl, Client, Filters, KeySource};
use orgdata_exporter::audit;
use orgdata_exporter::ledger::{
    self, ActorPrivacy, Encode, OutboxRecord, RawRecord, RecordKind, SharedText,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::simulator::Simulator;
use orgdata_exporter::util::ThisMachine;

/// Of a client with the simulator's key, which is not held back.
pub(crate) fn api(base_url: &str) -> api::Settings {
    api::Settings {
        base_url: BaseUrl::parse(base_url).expect("a base address"),
        key: KeySource::Value("demo-key".into()),
        timeout: Duration::from_secs(10),
        max_requests_per_second: 1e6,
        ca_file: None,
        read_file: exporter_web::read_file,
        filters: Filters::default(),
    }
}

/// A client whose requests are answered in this process.
pub(crate) fn in_process<F>(
    timeout: Duration,
    answer: impl Fn(reqwest::Request) -> F + Send + Sync + 'static,
) -> Client
where
    F: Future<Output = Option<http::Response<reqwest::Body>>> + Send + 'static,
{
    let answers = Arc::new(move |request| {
        let answer = answer(request);
        let response = async { answer.await.map(reqwest::Response::from) };
        Box::pin(response) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    let settings = api::Settings {
        timeout,
        ..api("http://127.0.0.1:1")
    };
    let metrics = Metrics::new(Duration::ZERO).api;
    Client::simulated(answers, settings, metrics)
}

/// A client whose requests a simulator answers in this process.
pub(crate) fn simulated(sim: &Arc<Simulator>) -> Client {
    let sim = Arc::clone(sim);
    in_process(Duration::from_secs(10), move |request| {
        let (sim, url) = (Arc::clone(&sim), request.url());
        let mut copy = http::Request::new(axum::body::Body::empty());
        *copy.uri_mut() = url[url::Position::BeforePath..].parse().expect("a path");
        copy.headers_mut().clone_from(request.headers());
        async move {
            let response = sim.answer(copy).await?;
            Some(response.map(|body| reqwest::Body::wrap_stream(body.into_data_stream())))
        }
    })
}

/// Of a ledger that keeps records for a collector, as the flags have it unless they are given.
pub(crate) fn ledger(path: Option<PathBuf>, base_url: impl Into<String>) -> ledger::LedgerOptions {
    ledger::LedgerOptions {
        path,
        max_size: 256 << 20,
        base_url: base_url.into(),
        outbox: true,
        actor_label: ActorPrivacy::Id,
        max_actors: 1000,
        encoder: Arc::new(PlainRecords),
        max_dead_letters: 1000,
        machine: Arc::new(ThisMachine),
    }
}

/// Of a tail with the intervals of the flags.
pub(crate) fn tail(page_size: u32) -> audit::Settings {
    audit::Settings {
        poll_interval: Duration::from_secs(15),
        start: audit::Start::Now,
        reread_interval: Duration::from_secs(300),
        reread_window: Duration::from_secs(3600),
        page_size,
        excluded: audit::Excluded::default(),
    }
}

/// An entry that is not part of a page.
pub(crate) fn alone(raw: impl Into<String>) -> SharedText {
    let raw = raw.into();
    let all = 0..raw.len();
    SharedText::new(Arc::new(raw), all)
}

/// Log records that are nothing but their JSON, behind a byte for their kind.
#[derive(Debug)]
pub(crate) struct PlainRecords;

impl Encode for PlainRecords {
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>) {
        out.push(0x12);
        let mut length = record.json.len() + 1;
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.push(record.kind as u8);
        out.extend_from_slice(record.json.as_bytes());
    }

    fn redact(&self, json: &str) -> String {
        json.to_owned()
    }

    fn decode(&self, record: &[u8]) -> (RecordKind, String) {
        let head = 1 + record[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let kind = if record[head] == RecordKind::Gap as u8 {
            RecordKind::Gap
        } else {
            RecordKind::Entry
        };
        let json = String::from_utf8(record[head + 1..].to_vec()).expect("JSON");
        (kind, json)
    }
}

/// The JSON of the audit entries among records.
pub(crate) fn entries(records: &[OutboxRecord]) -> Vec<String> {
    let decoded = records
        .iter()
        .map(|record| PlainRecords.decode(&record.bytes));
    let entries = decoded.filter(|(kind, _)| *kind == RecordKind::Entry);
    entries.map(|(_, json)| json).collect()
}
