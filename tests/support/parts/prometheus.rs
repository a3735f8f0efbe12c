//! Prometheus, VictoriaMetrics and vmagent.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Process, client, until};
use crate::support::files::{array, text};

/// A server that scrapes and answers PromQL.
pub(crate) struct Prometheus {
    process: Process,
    /// What scrapes for it.
    agent: Option<(Process, TempDir)>,
    base: String,
    victoria_metrics: bool,
    dir: TempDir,
}

/// Parses a sample's value, which Prometheus writes as a string.
pub(crate) fn number(value: &Value) -> f64 {
    let number = value.as_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("not a sample: {value}"))
}

impl Prometheus {
    /// Starts `prometheus` (2.42, the oldest supported), `prometheus3` (the current one), `victoria-metrics`, or `vmagent` or `otelcol-scrape` in front of that, on targets given as
    /// `host:port`, with an interval such as `1s`.
    pub(crate) async fn start(program: &str, targets: &[&str], interval: &str) -> Self {
        let targets = json!([{ "targets": targets }]);
        let jobs = json!([{ "job_name": "orgdata-exporter", "static_configs": targets }]);
        Self::start_jobs(program, jobs, interval).await
    }

    pub(crate) async fn start_jobs(program: &str, jobs: Value, interval: &str) -> Self {
        let global = json!({ "scrape_interval": interval });
        Self::start_with(program, json!({ "global": global, "scrape_configs": jobs })).await
    }

    /// Starts VictoriaMetrics, and in front of it what scrapes and sends it the samples: vmagent, or a collector.
    async fn start_agent(program: &str, config: &Value) -> Self {
        let nothing = json!({ "scrape_configs": [] });
        let mut store = Box::pin(Self::start_with("victoria-metrics", nothing)).await;
        let to = format!("{}/api/v1/write", store.base);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.yml");
        let arguments = |[port]: [u16; 1]| {
            let listen = format!("127.0.0.1:{port}");
            let mut arguments = vec![format!("--config=file:{}", file.display())];
            let mut config = json!({
                "extensions": { "health_check": { "endpoint": &listen } },
                "receivers": { "prometheus": { "config": config } },
                "exporters": { "prometheusremotewrite": { "endpoint": &to } },
                "service": {
                    "extensions": ["health_check"], "telemetry": { "metrics": { "level": "none" } },
                    "pipelines": { "metrics": { "receivers": ["prometheus"], "exporters": ["prometheusremotewrite"] } },
                },
            });
            if program == "vmagent" {
                config = config["receivers"]["prometheus"]["config"].take();
                arguments = vec![
                    format!("-promscrape.config={}", file.display()),
                    format!("-remoteWrite.url={to}"),
                    format!("-remoteWrite.tmpDataPath={}", dir.path().display()),
                    format!("-httpListenAddr={listen}"),
                ];
            }
            fs::write(&file, config.to_string()).unwrap();
            arguments
        };
        let ready = |[port]: [u16; 1]| format!("http://127.0.0.1:{port}/health");
        let (agent, _) = Process::start(program, arguments, ready).await;
        store.agent = Some((agent, dir));
        store
    }

    pub(crate) async fn start_with(program: &str, config: Value) -> Self {
        if ["vmagent", "otelcol-scrape"].contains(&program) {
            return Self::start_agent(program, &config).await;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prometheus.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).unwrap();
        let (file, data) = (file.display().to_string(), dir.path().join("data"));
        let data = data.display().to_string();
        let victoria_metrics = program == "victoria-metrics";
        let options = match victoria_metrics {
            // By default answers are half a minute behind.
            true => {
                "-promscrape.config=FILE -storageDataPath=DATA -httpListenAddr=127.0.0.1:PORT -search.latencyOffset=0s -search.disableCache"
            }
            // Only the debug level says why a scrape failed.
            false => {
                "--config.file=FILE --storage.tsdb.path=DATA --storage.tsdb.retention.time=60d --web.listen-address=127.0.0.1:PORT --log.level=debug"
            }
        };
        let arguments = |[port]: [u16; 1]| {
            let options = options.replace("FILE", &file).replace("DATA", &data);
            let options = options.replace("PORT", &port.to_string());
            options.split(' ').map(str::to_owned).collect()
        };
        let ready = |[port]: [u16; 1]| format!("http://127.0.0.1:{port}/-/ready");
        let (process, [port]) = Process::start(program, arguments, ready).await;
        let base = format!("http://127.0.0.1:{port}");
        Self {
            process,
            agent: None,
            base,
            victoria_metrics,
            dir,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts it again, so that it reads what another program has written to its directory.
    pub(crate) async fn restart(&mut self) {
        let ready = format!("{}/-/ready", self.base);
        self.process.start_again(&ready).await;
    }

    /// Runs an instant query and returns the `result` array: one element for each series.
    pub(crate) async fn query(&self, promql: &str) -> Value {
        self.api("query", &[("query", promql)]).await["result"].take()
    }

    /// Runs an instant query until its result is accepted.
    pub(crate) async fn query_until(&self, promql: &str, accept: impl Fn(&Value) -> bool) -> Value {
        until(async || {
            let result = self.query(promql).await;
            match accept(&result) {
                true => Ok(result),
                false => Err(format!("`{promql}`; at last: {result}")),
            }
        })
        .await
    }

    pub(crate) async fn shows(&self, promql: &str, value: f64) {
        let is_it =
            |result: &Value| array(result).len() == 1 && number(&result[0]["value"][1]) == value;
        self.query_until(promql, is_it).await;
    }

    /// Runs an instant query, now or at a time in seconds, and returns the value of each series by the values of these labels.
    pub(crate) async fn by(
        &self,
        labels: &[&str],
        promql: &str,
        time: Option<&str>,
    ) -> BTreeMap<Vec<String>, f64> {
        let time = time.map(|time| ("time", time));
        let parameters: Vec<_> = [("query", promql)].into_iter().chain(time).collect();
        let answer = self.api("query", &parameters).await;
        let mut series = BTreeMap::new();
        for one in array(&answer["result"]) {
            let key = labels.iter().map(|label| text(&one["metric"][label]));
            let twice = series.insert(key.collect(), number(&one["value"][1]));
            assert!(twice.is_none(), "{promql}: two series for {one}");
        }
        series
    }

    /// Asks `/api/v1/<path>` and returns the `data` of the answer.
    pub(crate) async fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        if self.victoria_metrics {
            // It answers from what it has flushed.
            let flush = client().get(format!("{}/internal/force_flush", self.base));
            flush.send().await.unwrap();
        }
        let request = client().get(format!("{}/api/v1/{path}", self.base));
        let answer = request.query(parameters).send().await.unwrap();
        let mut answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        answer["data"].take()
    }
}
