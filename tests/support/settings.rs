//! Settings of the parts that tests and benchmarks put together by themselves; what matters to one of them it sets itself.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::api::{self, BaseUrl, Client, Filters, KeySource};
use orgdata_exporter::audit;
use orgdata_exporter::ledger::{self, ActorPrivacy, Disposition, EventId, NewEntry};
use orgdata_exporter::machine::ThisMachine;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::simulator::Simulator;

/// Of a client with the simulator's key, which is not held back.
pub(crate) fn api(base_url: &str) -> api::ClientSettings {
    api::ClientSettings {
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
    let settings = api::ClientSettings {
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
        max_dead_letters: 1000,
        machine: Arc::new(ThisMachine),
    }
}

/// A live entry of type X, created at the beginning of 1970 by nobody.
pub(crate) fn entry(id: u64, text: String) -> NewEntry {
    NewEntry {
        id: EventId(id),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        disposition: Disposition::Live,
        activity_type: Some("X".to_owned()),
        actor: None,
        problem: None,
        is_uncounted: false,
        is_unsent: false,
        hash: None,
        text: text.into(),
    }
}

/// Of a tail with the intervals of the flags.
pub(crate) fn tail(page_size: u32) -> audit::TailSettings {
    audit::TailSettings {
        poll_interval: Duration::from_secs(15),
        start: audit::Start::Now,
        reread_interval: Duration::from_secs(300),
        reread_window: Duration::from_secs(3600),
        page_size,
        excluded: audit::Excluded::default(),
        privacy: audit::Privacy::default(),
    }
}
