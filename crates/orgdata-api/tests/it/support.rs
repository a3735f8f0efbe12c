//! A client with a key, what it reported, and a clock that can be fast.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use orgdata_api::{
    ApiError, AuditPage, BaseUrl, Client, ClientSettings, Endpoint, FailureReason, Filters,
    KeySource, Observer,
};

use crate::peer::Clock;

/// The key of every test, long enough to be removed from messages.
pub(crate) const KEY: &str = "demo-key";

/// What a client reported.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) bytes: u64,
    pub(crate) throttled: f64,
    failures: BTreeMap<&'static str, usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Reported>>);

/// A client and what it reported.
pub(crate) struct Subject {
    pub(crate) client: Client,
    recorder: Recorder,
}

/// ClientSettings for an API, with a budget that is never used up.
pub(crate) fn settings(base_url: &str) -> ClientSettings {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    ClientSettings {
        base_url: BaseUrl::parse(base_url).expect("a base address"),
        key: KeySource::Value(KEY.into()),
        timeout: Duration::from_secs(10),
        max_requests_per_second: 1000.0,
        ca_file: None,
        read_file: |path| std::fs::read(path),
        filters: Filters::default(),
    }
}

/// Runs a future on a runtime with a paused clock.
pub(crate) async fn fast<F: Future>(future: F) -> F::Output {
    Clock::hold().run(future).await
}

// === impl Recorder ===

impl Observer for Recorder {
    fn response(&self, _: Endpoint, _: Duration, bytes: u64) {
        self.0.lock().unwrap().bytes += bytes;
    }

    fn failure(&self, _: Endpoint, reason: FailureReason) {
        let failures = &mut self.0.lock().unwrap().failures;
        *failures.entry(reason.into()).or_default() += 1;
    }

    fn throttled(&self, waited: Duration) {
        self.0.lock().unwrap().throttled += waited.as_secs_f64();
    }
}

// === impl Subject ===

impl Subject {
    pub(crate) fn new(base_url: &str) -> Self {
        Self::with(settings(base_url))
    }

    pub(crate) fn with(settings: ClientSettings) -> Self {
        let recorder = Recorder::default();
        let client = Client::new(settings, recorder.clone()).expect("a client");
        Self { client, recorder }
    }

    /// Requests the newest audit log page.
    pub(crate) async fn audit(&self) -> Result<AuditPage, ApiError> {
        self.client.audit_page(100, None).await
    }

    /// Requests an audit log page that fails.
    pub(crate) async fn failed(&self) -> ApiError {
        self.audit().await.expect_err("no page")
    }

    pub(crate) fn reported(&self) -> MutexGuard<'_, Reported> {
        self.recorder.0.lock().unwrap()
    }

    /// The number of failures with this reason.
    pub(crate) fn failures(&self, reason: &str) -> usize {
        self.reported().failures.get(reason).copied().unwrap_or(0)
    }
}
