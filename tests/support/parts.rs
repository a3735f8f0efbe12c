//! The real servers that the tests in `tests/real_*.rs` run against: each is started on loopback with ports the kernel
//! chose, in a temporary directory of its own, and killed when its value is dropped.
//!
//! `.ci/setup` installs them; `ORGDATA_REAL_PARTS` names another directory than the one it installs into. When a test
//! panics, the end of every running part's output is printed.
//!
//! Everything here waits in real time: not for tests with paused time.

#![allow(dead_code, reason = "each test crate uses the parts it needs")]

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use reqwest::{Client, StatusCode};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// How often a condition is looked at before it is given up: 30 seconds with [`PAUSE`].
const TRIES: usize = 600;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Between the choice of a port and its use another process can take it; then other ports are chosen.
const PORT_CHOICES: usize = 5;

/// The lines of a part's output that are shown when a test fails.
const SHOWN_LINES: usize = 60;

/// A Prometheus server that scrapes the given targets.
pub(crate) struct Prometheus {
    process: Process,
    client: Client,
    base: String,
    /// Asked for before each query, where the server answers from what it has written away.
    flush: Option<String>,
    _dir: TempDir,
}

/// An OpenTelemetry Collector with an OTLP receiver, gRPC and HTTP, that writes every record it acknowledges to a file
/// before it does so.
pub(crate) struct Collector {
    process: Process,
    client: Client,
    ports: [u16; 3],
    dir: TempDir,
}

/// rotel, a collector of another house, that prints every record it takes.
pub(crate) struct Rotel {
    process: Process,
    ports: [u16; 2],
    _dir: TempDir,
}

/// A log record as a collector received it, with what its resource and scope say about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogRecordJson {
    /// The record's attributes as plain JSON values.
    pub(crate) attributes: Map<String, Value>,

    /// The body as a plain JSON value; null when there is none.
    pub(crate) body: Value,

    /// The attributes of the resource.
    pub(crate) resource: Map<String, Value>,

    /// The name of the instrumentation scope.
    pub(crate) scope_name: String,

    /// The version of the instrumentation scope.
    pub(crate) scope_version: String,

    /// The event name; empty when there is none.
    pub(crate) event_name: String,

    /// When it happened, in nanoseconds since the Unix epoch; 0 when unknown.
    pub(crate) time_unix_nano: u64,

    /// When it was observed, in nanoseconds since the Unix epoch.
    pub(crate) observed_time_unix_nano: u64,

    /// The severity as OpenTelemetry numbers it; 0 when unspecified.
    pub(crate) severity_number: u64,

    /// The severity in the words of its source; empty when there are none.
    pub(crate) severity_text: String,

    /// The trace id in lower-case hex; empty when there is none.
    pub(crate) trace_id: String,

    /// The span id in lower-case hex; empty when there is none.
    pub(crate) span_id: String,
}

/// A running part.
struct Process {
    child: Child,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
}

/// Lints a scrape in the classic text format with the promtool of the oldest supported Prometheus and with the current
/// one; the error is what the first of them that complains printed.
pub(crate) fn promtool_check_metrics(text: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let file = dir.path().join("metrics");
    fs::write(&file, text).expect("the temporary directory is writable");

    for name in ["promtool", "promtool3"] {
        let output = Command::new(binary(name))
            .args(["check", "metrics"])
            .stdin(File::open(&file).expect("the file was just written"))
            .output()
            .expect("promtool can be run");
        if !output.status.success() {
            return Err(format!(
                "{name}: {}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    Ok(())
}

/// One job over these targets.
fn jobs(targets: &[&str]) -> Value {
    json!([{ "job_name": "orgdata-exporter", "static_configs": [{ "targets": targets }] }])
}

// === impl Prometheus ===

impl Prometheus {
    /// Starts the oldest supported Prometheus (2.42) on targets given as `host:port`, with an interval such as `1s`.
    ///
    /// # Panics
    ///
    /// When the binary is missing or the server does not become ready.
    pub(crate) async fn start(targets: &[&str], scrape_interval: &str) -> Self {
        Self::start_jobs("prometheus", jobs(targets), scrape_interval).await
    }

    /// Starts the current Prometheus (3.x), otherwise as [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// When the binary is missing or the server does not become ready.
    pub(crate) async fn start_current(targets: &[&str], scrape_interval: &str) -> Self {
        Self::start_jobs("prometheus3", jobs(targets), scrape_interval).await
    }

    /// Starts VictoriaMetrics, which answers the same queries in its own way; otherwise as [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// When the binary is missing or the server does not become ready.
    pub(crate) async fn start_victoria_metrics(targets: &[&str], scrape_interval: &str) -> Self {
        let server = Self::start_with(
            "victoria-metrics",
            jobs(targets),
            scrape_interval,
            |config, data, port| {
                vec![
                    format!("-promscrape.config={config}"),
                    format!("-storageDataPath={data}"),
                    format!("-httpListenAddr=127.0.0.1:{port}"),
                    // Answers are about the present: by default they are half a minute behind.
                    "-search.latencyOffset=0s".to_owned(),
                    "-search.disableCache".to_owned(),
                ]
            },
        )
        .await;
        Self {
            flush: Some(format!("{}/internal/force_flush", server.base)),
            ..server
        }
    }

    /// Starts `prometheus` or `prometheus3` with jobs of one's own, as in `scrape_configs`; otherwise as [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// When the binary is missing or the server does not become ready.
    pub(crate) async fn start_jobs(program: &str, jobs: Value, scrape_interval: &str) -> Self {
        Self::start_with(program, jobs, scrape_interval, |config, data, port| {
            vec![
                format!("--config.file={config}"),
                format!("--storage.tsdb.path={data}"),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--enable-feature=exemplar-storage".to_owned(),
                // Why a scrape failed is said at this level only.
                "--log.level=debug".to_owned(),
            ]
        })
        .await
    }

    async fn start_with(
        program: &str,
        jobs: Value,
        scrape_interval: &str,
        arguments: impl Fn(std::path::Display<'_>, std::path::Display<'_>, u16) -> Vec<String>,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = json!({
            "global": { "scrape_interval": scrape_interval },
            "scrape_configs": jobs,
        });
        // JSON is YAML.
        let config_file = dir.path().join("prometheus.yml");
        fs::write(&config_file, config.to_string()).expect("the temporary directory is writable");

        let client = client();
        let data = dir.path().join("data");
        let (process, [port]) = start(
            &client,
            program,
            dir.path(),
            |[port]| arguments(config_file.display(), data.display(), port),
            |[port]| format!("http://127.0.0.1:{port}/-/ready"),
        )
        .await;
        Self {
            process,
            client,
            base: format!("http://127.0.0.1:{port}"),
            flush: None,
            _dir: dir,
        }
    }

    /// The server's own address, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// Its `--storage.tsdb.path`.
    pub(crate) fn data(&self) -> PathBuf {
        self._dir.path().join("data")
    }

    /// Runs an instant query and gives the `result` array of the answer: one element for each series.
    ///
    /// # Panics
    ///
    /// When the server refuses the query.
    pub(crate) async fn query(&self, promql: &str) -> Value {
        if let Some(flush) = &self.flush {
            self.client
                .get(flush)
                .send()
                .await
                .expect("the server writes away what it has");
        }
        self.api("query", &[("query", promql)]).await["result"].take()
    }

    /// Runs an instant query again and again until its result is accepted, and gives that result.
    ///
    /// # Panics
    ///
    /// When the server refuses the query, or no result was accepted within 30 seconds.
    pub(crate) async fn query_until(&self, promql: &str, accept: impl Fn(&Value) -> bool) -> Value {
        let mut result = Value::Null;
        for _ in 0..TRIES {
            result = self.query(promql).await;
            if accept(&result) {
                return result;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("`{promql}` never gave what was waited for; at last: {result}");
    }

    /// Asks for the exemplars of a query's series, of any time, again and again until they are accepted.
    ///
    /// # Panics
    ///
    /// When the server refuses the query, or none were accepted within 30 seconds.
    pub(crate) async fn exemplars_until(
        &self,
        promql: &str,
        accept: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let mut exemplars = Vec::new();
        for _ in 0..TRIES {
            let mut series = self
                .api(
                    "query_exemplars",
                    &[("query", promql), ("start", "0"), ("end", "9999999999")],
                )
                .await;
            exemplars.clear();
            for one in series.as_array_mut().into_iter().flatten() {
                exemplars.extend(one["exemplars"].as_array().cloned().unwrap_or_default());
            }
            if accept(&exemplars) {
                return exemplars;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("`{promql}` never had the exemplars that were waited for; at last: {exemplars:?}");
    }

    /// Runs an instant query and gives the value of each series under the values of these labels.
    ///
    /// # Panics
    ///
    /// When the server refuses the query, or two series have the same values there.
    pub(crate) async fn by(&self, labels: &[&str], promql: &str) -> BTreeMap<Vec<String>, f64> {
        let result = self.query(promql).await;
        let mut series = BTreeMap::new();
        for one in array(&result) {
            let key: Vec<String> = labels
                .iter()
                .map(|label| text(&one["metric"][label]))
                .collect();
            let twice = series.insert(key, number(&one["value"][1]));
            assert!(
                twice.is_none(),
                "`{promql}` has two series for {}",
                one["metric"]
            );
        }
        series
    }

    /// Asks `/api/v1/<path>` with query parameters and gives the `data` of the answer.
    ///
    /// # Panics
    ///
    /// When the server does not answer with success.
    pub(crate) async fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let response = self
            .client
            .get(format!("{}/api/v1/{path}", self.base))
            .query(parameters)
            .send()
            .await
            .expect("Prometheus answers");
        let text = response
            .text()
            .await
            .expect("Prometheus answers with a body");
        let mut answer: Value = serde_json::from_str(&text).expect("Prometheus answers with JSON");
        assert_eq!(answer["status"], "success", "{path} {parameters:?}: {text}");
        answer["data"].take()
    }
}

// === impl Collector ===

impl Collector {
    /// Starts a collector that takes everything.
    ///
    /// # Panics
    ///
    /// When the binary is missing or the collector does not become ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a collector that refuses every record for want of memory: 503 over HTTP, `UNAVAILABLE` over gRPC.
    ///
    /// # Panics
    ///
    /// When the binary is missing or the collector does not become ready.
    pub(crate) async fn start_refusing() -> Self {
        let collector = Self::start_with(|config| {
            config["processors"] = json!({
                "memory_limiter": { "check_interval": "50ms", "limit_mib": 1, "spike_limit_mib": 0 },
            });
            config["service"]["pipelines"]["logs"]["processors"] = json!(["memory_limiter"]);
        })
        .await;
        // Until its first look at the memory it takes records.
        for _ in 0..TRIES {
            if collector.process.log().contains("Refusing data") {
                return collector;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the collector never began to refuse");
    }

    /// Starts a collector whose configuration was changed first: TLS, authentication, limits, processors.
    ///
    /// # Panics
    ///
    /// When the binary is missing or the collector does not become ready.
    pub(crate) async fn start_with(change: impl Fn(&mut Value)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let client = client();
        let (process, ports) = start(
            &client,
            "otelcol",
            dir.path(),
            |ports| {
                let mut config = Self::config(dir.path(), ports);
                change(&mut config);
                let file = dir.path().join("otelcol.yaml");
                // JSON is YAML.
                fs::write(&file, config.to_string()).expect("the temporary directory is writable");
                vec![format!("--config=file:{}", file.display())]
            },
            |[_, _, health]| format!("http://127.0.0.1:{health}/"),
        )
        .await;
        Self {
            process,
            client,
            ports,
            dir,
        }
    }

    fn config(dir: &Path, [grpc, http, health]: [u16; 3]) -> Value {
        // A file that may rotate is written without a buffer, so a record is in it when it is acknowledged.
        let file = |name| json!({ "path": dir.join(name), "rotation": { "max_megabytes": 4096 } });
        json!({
            "extensions": { "health_check": { "endpoint": format!("127.0.0.1:{health}") } },
            "receivers": { "otlp": { "protocols": {
                "grpc": { "endpoint": format!("127.0.0.1:{grpc}") },
                "http": { "endpoint": format!("127.0.0.1:{http}") },
            } } },
            "exporters": {
                "debug": { "verbosity": "basic" },
                "file/logs": file("logs.jsonl"),
                "file/traces": file("traces.jsonl"),
            },
            "service": {
                "extensions": ["health_check"],
                // Its own metrics would listen on a fixed port.
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": {
                    "logs": { "receivers": ["otlp"], "exporters": ["debug", "file/logs"] },
                    "traces": { "receivers": ["otlp"], "exporters": ["debug", "file/traces"] },
                },
            },
        })
    }

    /// The endpoint for OTLP over gRPC: `http://127.0.0.1:<port>`.
    pub(crate) fn grpc_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// The endpoint for OTLP over HTTP, without the signal's path: `http://127.0.0.1:<port>`.
    pub(crate) fn http_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }

    /// The log records acknowledged so far, in the order they came.
    ///
    /// # Panics
    ///
    /// When the collector wrote something that is not OTLP, or an attribute's key comes twice.
    pub(crate) fn records(&self) -> Vec<LogRecordJson> {
        lines(&self.dir.path().join("logs.jsonl"))
            .iter()
            .flat_map(LogRecordJson::from_request)
            .collect()
    }

    /// Waits until at least `count` log records were acknowledged and gives all of them.
    ///
    /// # Panics
    ///
    /// When there are fewer after 30 seconds, and as [`records`](Self::records).
    pub(crate) async fn records_at_least(&self, count: usize) -> Vec<LogRecordJson> {
        let mut records = Vec::new();
        for _ in 0..TRIES {
            records = self.records();
            if records.len() >= count {
                return records;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!(
            "the collector has {} records instead of {count}; the last one: {:#?}",
            records.len(),
            records.last()
        );
    }

    /// The requests with spans acknowledged so far, as OTLP JSON.
    pub(crate) fn traces(&self) -> Vec<Value> {
        lines(&self.dir.path().join("traces.jsonl"))
    }

    /// Kills the collector; its ports refuse connections from then on, and what it has written stays.
    pub(crate) fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts a stopped collector on the ports it had.
    ///
    /// # Panics
    ///
    /// When the collector does not become ready.
    pub(crate) async fn start_again(&mut self) {
        self.process.stop();
        self.process.spawn();
        let health = format!("http://127.0.0.1:{}/", self.ports[2]);
        if let Err(why) = self.process.ready(&self.client, &health).await {
            panic!("{why}");
        }
    }
}

// === impl Rotel ===

impl Rotel {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// When the binary is missing or it does not become ready.
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let file = |name| dir.path().join(name).display().to_string();
        let (process, ports) = start(
            &client(),
            "rotel-agent",
            dir.path(),
            |[grpc, http]| {
                [
                    "start",
                    "--otlp-grpc-endpoint",
                    &format!("127.0.0.1:{grpc}"),
                    "--otlp-http-endpoint",
                    &format!("127.0.0.1:{http}"),
                    "--exporter",
                    "blackhole",
                    "--debug-log",
                    "logs",
                    "--debug-log-verbosity",
                    "detailed",
                    "--pid-file",
                    &file("pid"),
                    "--log-file",
                    &file("log"),
                ]
                .map(str::to_owned)
                .to_vec()
            },
            // Nothing is there, which is an answer.
            |[_, http]| format!("http://127.0.0.1:{http}/"),
        )
        .await;
        Self {
            process,
            ports,
            _dir: dir,
        }
    }

    /// The endpoint for OTLP over gRPC: `http://127.0.0.1:<port>`.
    pub(crate) fn grpc_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// The endpoint for OTLP over HTTP, without the signal's path: `http://127.0.0.1:<port>`.
    pub(crate) fn http_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }

    /// Waits until it has printed so many records, and gives them: each as the lines about it.
    ///
    /// # Panics
    ///
    /// When there are fewer after 30 seconds.
    pub(crate) async fn printed_at_least(&self, count: usize) -> Vec<String> {
        let mut printed = Vec::new();
        for _ in 0..TRIES {
            printed = self
                .process
                .log()
                .split("\nLogRecord #")
                .skip(1)
                .map(str::to_owned)
                .collect();
            // The last line of a record.
            if printed.len() >= count && printed[printed.len() - 1].contains("\nFlags: ") {
                return printed;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!(
            "rotel printed {} records instead of {count}; the last one: {:?}",
            printed.len(),
            printed.last()
        );
    }
}

// === impl LogRecordJson ===

impl LogRecordJson {
    /// Every record of one `ExportLogsServiceRequest` in OTLP's JSON form.
    fn from_request(request: &Value) -> Vec<Self> {
        let mut records = Vec::new();
        for resource in array(&request["resourceLogs"]) {
            for scope in array(&resource["scopeLogs"]) {
                for record in array(&scope["logRecords"]) {
                    records.push(Self {
                        attributes: attributes(&record["attributes"]),
                        body: plain(&record["body"]),
                        resource: attributes(&resource["resource"]["attributes"]),
                        scope_name: text(&scope["scope"]["name"]),
                        scope_version: text(&scope["scope"]["version"]),
                        event_name: text(&record["eventName"]),
                        time_unix_nano: integer(&record["timeUnixNano"]),
                        observed_time_unix_nano: integer(&record["observedTimeUnixNano"]),
                        severity_number: integer(&record["severityNumber"]),
                        severity_text: text(&record["severityText"]),
                        trace_id: text(&record["traceId"]),
                        span_id: text(&record["spanId"]),
                    });
                }
            }
        }
        records
    }
}

/// The JSON values of a file with one on each line; a line that is still being written is left out.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(line)
        .collect()
}

/// One line. A collector that was killed while it wrote leaves the beginning of a line, which it has not acknowledged, and the
/// next one writes its first line behind it.
fn line(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| {
        let whole = ["{\"resourceLogs\"", "{\"resourceSpans\""]
            .iter()
            .filter_map(|beginning| text.rfind(beginning))
            .max();
        let whole = whole
            .filter(|start| *start > 0)
            .unwrap_or_else(|| panic!("the collector writes JSON: {error}"));
        serde_json::from_str(&text[whole..]).expect("the collector writes JSON behind what it left")
    })
}

/// The elements of a repeated field, which the JSON form leaves out when it is empty.
fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string field, which the JSON form leaves out when it is empty.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A number, which the JSON form writes as a string when it has 64 bits, and leaves out when it is zero.
fn integer(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::String(digits) => digits
            .parse()
            .expect("a 64-bit number is a string of digits"),
        number => number.as_u64().expect("a number field holds a number"),
    }
}

/// A sample's value, which Prometheus writes as a string.
pub(crate) fn number(value: &Value) -> f64 {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a sample is a number in a string")
}

/// A list of `KeyValue` as a map of plain values. The protocol wants the keys to be unique, so a second one is a fault.
fn attributes(list: &Value) -> Map<String, Value> {
    let mut map = Map::new();
    for pair in array(list) {
        let key = text(&pair["key"]);
        let twice = map.insert(key.clone(), plain(&pair["value"]));
        assert!(twice.is_none(), "the attribute {key} comes twice: {list}");
    }
    map
}

/// An `AnyValue` as the value it stands for; bytes, which JSON does not have, stay as they are.
fn plain(any: &Value) -> Value {
    let Some((kind, value)) = any.as_object().and_then(|any| any.iter().next()) else {
        return Value::Null;
    };
    match kind.as_str() {
        "intValue" => match value {
            Value::String(digits) => {
                let number: i64 = digits.parse().expect("an integer is a string of digits");
                number.into()
            }
            number => number.clone(),
        },
        "arrayValue" => array(&value["values"]).iter().map(plain).collect(),
        "kvlistValue" => attributes(&value["values"]).into(),
        // Whole doubles are written without a fraction.
        "doubleValue" => value.as_f64().into(),
        "bytesValue" => any.clone(),
        _ => value.clone(),
    }
}

// === impl Process ===

impl Process {
    /// Runs the program, again if it ran before; its output is added to the log.
    fn spawn(&mut self) {
        self.child = Self::run(&self.program, &self.arguments, &self.log);
    }

    fn run(program: &Path, arguments: &[String], log: &Path) -> Child {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("the temporary directory is writable");
        let errors = log.try_clone().expect("a file can be opened twice");
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    /// Waits until the URL answers with 200, or with 404 where there is nothing to ask for; the error says why that will not happen.
    async fn ready(&mut self, client: &Client, url: &str) -> Result<(), String> {
        for _ in 0..TRIES {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Err(format!(
                    "{} ended before it was ready: {status}",
                    self.program.display()
                ));
            }
            let answer = client.get(url).send().await;
            if answer.is_ok_and(|answer| {
                [StatusCode::OK, StatusCode::NOT_FOUND].contains(&answer.status())
            }) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!(
            "{} never became ready: no 200 from {url}",
            self.program.display()
        ))
    }

    /// Kills it, if it still runs, and waits until it is gone.
    fn stop(&mut self) {
        // Both fail only when it has ended already and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Everything it has printed.
    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of what it has printed, under its name.
    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        format!(
            "{} printed at last:\n{}",
            self.program.display(),
            shown.join("\n")
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
    }
}

/// Starts a part on free ports and waits until it is ready.
async fn start<const N: usize>(
    client: &Client,
    name: &str,
    dir: &Path,
    arguments: impl Fn([u16; N]) -> Vec<String>,
    ready: impl Fn([u16; N]) -> String,
) -> (Process, [u16; N]) {
    let program = binary(name);
    let mut choice = 0;
    loop {
        choice += 1;
        let ports = free_ports();
        let arguments = arguments(ports);
        let log = dir.join(format!("output-{choice}.log"));
        let mut process = Process {
            child: Process::run(&program, &arguments, &log),
            program: program.clone(),
            arguments,
            log,
        };
        match process.ready(client, &ready(ports)).await {
            Ok(()) => return (process, ports),
            Err(_) if choice < PORT_CHOICES && process.log().contains("address already in use") => {
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// Ports of loopback that nothing listens on, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    // All are held until the last one is chosen.
    let listeners: [TcpListener; N] = std::array::from_fn(|_| {
        TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port")
    });
    listeners.map(|listener| {
        listener
            .local_addr()
            .expect("a bound socket has an address")
            .port()
    })
}

/// A client that goes straight to loopback, whatever proxy the environment names.
fn client() -> Client {
    // It fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .expect("a client without special settings can be built")
}

/// Where a part's program is.
pub(crate) fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("ORGDATA_REAL_PARTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-parts/bin"),
        PathBuf::from,
    );
    let program = directory.join(name);
    assert!(
        program.is_file(),
        "{} is missing: run .ci/setup first",
        program.display()
    );
    program
}

/// Runs the promtool of the oldest supported Prometheus and the current one in the repository; the error is what the first of them that
/// finds fault printed.
pub(crate) fn promtool(arguments: &[&str]) -> Result<(), String> {
    ["promtool", "promtool3"]
        .into_iter()
        .try_for_each(|name| tool(name, arguments))
}

/// Runs a program in the repository; the error is what it printed when it did not succeed.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(binary(name))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("it can be run");
    if output.status.success() {
        return Ok(());
    }
    let said =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Err(format!("{name}: {}\n{}", output.status, said.concat()))
}

/// An Alertmanager that sends every alert to one address at once.
pub(crate) struct Alertmanager {
    _process: Process,
    port: u16,
    _dir: TempDir,
}

// === impl Alertmanager ===

impl Alertmanager {
    /// Starts it; `webhook` is the URL that it posts to.
    ///
    /// # Panics
    ///
    /// When the binary is missing or it does not become ready.
    pub(crate) async fn start(webhook: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = json!({
            "route": { "receiver": "webhook", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h" },
            "receivers": [{ "name": "webhook", "webhook_configs": [{ "url": webhook }] }],
        });
        let file = dir.path().join("alertmanager.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).expect("the temporary directory is writable");
        let (process, [port]) = start(
            &client(),
            "alertmanager",
            dir.path(),
            |[port]| {
                vec![
                    format!("--config.file={}", file.display()),
                    format!("--storage.path={}", dir.path().join("data").display()),
                    format!("--web.listen-address=127.0.0.1:{port}"),
                    // It is alone.
                    "--cluster.listen-address=".to_owned(),
                ]
            },
            |[port]| format!("http://127.0.0.1:{port}/-/ready"),
        )
        .await;
        Self {
            _process: process,
            port,
            _dir: dir,
        }
    }
}

impl Prometheus {
    /// Starts the current Prometheus with rules, looked at every second, that tell an Alertmanager; otherwise as [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// When the binary is missing or the server does not become ready.
    pub(crate) async fn start_alerting(
        target: &str,
        rules: &Path,
        alertmanager: &Alertmanager,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "scrape_configs": [{ "job_name": "orgdata-exporter", "static_configs": [{ "targets": [target] }] }],
            "rule_files": [rules],
            "alerting": { "alertmanagers": [{ "static_configs": [{ "targets": [format!("127.0.0.1:{}", alertmanager.port)] }] }] },
        });
        let file = dir.path().join("prometheus.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).expect("the temporary directory is writable");
        let client = client();
        let (process, [port]) = start(
            &client,
            "prometheus3",
            dir.path(),
            |[port]| {
                vec![
                    format!("--config.file={}", file.display()),
                    format!("--storage.tsdb.path={}", dir.path().join("data").display()),
                    format!("--web.listen-address=127.0.0.1:{port}"),
                ]
            },
            |[port]| format!("http://127.0.0.1:{port}/-/ready"),
        )
        .await;
        Self {
            process,
            client,
            base: format!("http://127.0.0.1:{port}"),
            flush: None,
            _dir: dir,
        }
    }
}
