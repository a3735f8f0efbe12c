//! A simulated API that is probed in this process, with a clock that follows the paused one of tokio.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use http::{HeaderMap, Response};
use orgdata_api::{
    BaseUrl, Client, Endpoint, FailureReason, Filters, KeySource, Observer, Settings, Transport,
};
use orgdata_probe::{Options, Report, probe};
use orgdata_simulator::{ClockSource, Config, Fault, Readings, Simulator};
use tokio::time::Instant;

/// A service and how it is probed.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) config: Config,
    /// How long a request takes.
    pub(crate) step: Duration,
    pub(crate) watch: bool,
    /// The beginning of a parameter that is ignored, and whether only the first of several is.
    pub(crate) without: (&'static str, bool),
}

#[derive(Debug)]
struct Unobserved;

impl Observer for Unobserved {
    fn response(&self, _: Endpoint, _: Duration, _: u64) {}
    fn failure(&self, _: Endpoint, _: FailureReason) {}
    fn throttled(&self, _: Duration) {}
}

impl Case {
    /// A service in which nothing happens.
    pub(crate) fn quiet(history: u64, tickets: u64) -> Self {
        Self {
            config: Config {
                history,
                tickets,
                clock: ClockSource::Manual(jiff::Timestamp::now()),
                ..Config::quiet()
            },
            step: Duration::ZERO,
            watch: false,
            without: ("", false),
        }
    }

    pub(crate) fn readings(mut self, readings: Readings) -> Self {
        self.config.readings = readings;
        self
    }

    pub(crate) fn fault(mut self, fault: Fault) -> Self {
        self.config.faults.push(fault);
        self
    }

    /// Probes it. `change` may change each response.
    pub(crate) fn run_with(
        &self,
        change: impl Fn(&mut HeaderMap, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> (Report, Arc<Simulator>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let sim = Simulator::new(self.config.clone());
            let options = Options {
                audit: true,
                tickets: true,
                watch: self.watch.then_some(Duration::from_secs(30)),
            };
            let report = probe(self.client(&sim, change), options).await;
            (report, sim)
        })
    }

    pub(crate) fn run(&self) -> (Report, Arc<Simulator>) {
        self.run_with(|_, body| body)
    }

    fn client(
        &self,
        sim: &Arc<Simulator>,
        change: impl Fn(&mut HeaderMap, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Client {
        let (sim, step, change) = (Arc::clone(sim), self.step, Arc::new(change));
        let (ignored, only_first) = self.without;
        let clock = Arc::new(Mutex::new(Instant::now()));
        let transport = Transport(Arc::new(move |request| {
            let (sim, clock, change) = (Arc::clone(&sim), Arc::clone(&clock), Arc::clone(&change));
            Box::pin(async move {
                tokio::time::sleep(step).await;
                let last = std::mem::replace(&mut *clock.lock().unwrap(), Instant::now());
                sim.advance(last.elapsed());
                let mut copy = http::Request::new(axum::body::Body::empty());
                let (path, query) = (request.url().path(), request.url().query().unwrap());
                let mut left = if only_first { 1 } else { usize::MAX };
                let is_kept = |pair: &&str| {
                    let is_ignored = !ignored.is_empty() && pair.starts_with(ignored) && left > 0;
                    left -= usize::from(is_ignored);
                    !is_ignored
                };
                let query: Vec<&str> = query.split('&').filter(is_kept).collect();
                *copy.uri_mut() = format!("{path}?{}", query.join("&")).parse().unwrap();
                copy.headers_mut().clone_from(request.headers());
                let (mut parts, body) = sim.answer(copy).await?.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.ok()?;
                let body = change(&mut parts.headers, body.to_vec());
                Some(Response::from_parts(parts, body).into())
            })
        }));
        let settings = Settings {
            base_url: BaseUrl::parse("http://127.0.0.1:1").unwrap(),
            key: KeySource::Value("demo-key".into()),
            timeout: Duration::from_secs(10),
            max_requests_per_second: 1e6,
            ca_file: None,
            read_file: |path| std::fs::read(path),
            filters: Filters::default(),
        };
        static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
            rustls::crypto::ring::default_provider()
                .install_default()
                .ok();
            reqwest::Client::new()
        });
        Client::with(HTTP.clone(), Some(transport), settings, Unobserved)
    }
}

/// Returns the answer to a question; `None` if it is not known.
pub(crate) fn answer(report: &Report, question: &str) -> Option<String> {
    let mut answers = report.answers.iter();
    let answer = answers.find(|answer| answer.question == question);
    answer
        .unwrap_or_else(|| panic!("no {question}"))
        .answer
        .clone()
}
