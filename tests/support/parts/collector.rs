//! The OpenTelemetry Collector, and a store that takes OTLP itself.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Process, client, until};
use crate::support::files::{array, text};

/// An OpenTelemetry Collector that writes every record to a file before it acknowledges it.
pub(crate) struct Collector {
    process: Process,
    ports: [u16; 3],
    dir: TempDir,
}

/// A store for log records.
pub(crate) struct VictoriaLogs {
    _process: Process,
    base: String,
    _dir: TempDir,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::start_with("otelcol", |_| {}).await
    }

    /// Starts `otelcol` (the current version) or `otelcol-old` with a changed configuration.
    pub(crate) async fn start_with(program: &str, change: impl Fn(&mut Value)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("otelcol.yaml");
        let arguments = |ports: [u16; 3]| {
            let mut config = Self::config(dir.path(), ports);
            change(&mut config);
            // JSON is YAML.
            fs::write(&file, config.to_string()).unwrap();
            vec![format!("--config=file:{}", file.display())]
        };
        let (process, ports) = Process::start(program, arguments, Self::health).await;
        Self {
            process,
            ports,
            dir,
        }
    }

    fn health([_, _, health]: [u16; 3]) -> String {
        format!("http://127.0.0.1:{health}/")
    }

    fn config(dir: &Path, [grpc, http, health]: [u16; 3]) -> Value {
        let listen = |port| json!({ "endpoint": format!("127.0.0.1:{port}") });
        // A file that may rotate is written without a buffer, so a record is in it when it is acknowledged.
        let file = |name| json!({ "path": dir.join(name), "rotation": { "max_megabytes": 4096 } });
        let pipeline = |name| json!({ "receivers": ["otlp"], "exporters": ["debug", name] });
        json!({
            "extensions": { "health_check": listen(health) },
            "receivers": { "otlp": { "protocols": { "grpc": listen(grpc), "http": listen(http) } } },
            "exporters": {
                "debug": { "verbosity": "basic" },
                "file/logs": file("logs.jsonl"),
                "file/traces": file("traces.jsonl"),
            },
            "service": {
                "extensions": ["health_check"],
                // Its own metrics would listen on a fixed port.
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": { "logs": pipeline("file/logs"), "traces": pipeline("file/traces") },
            },
        })
    }

    /// Returns the endpoint for `grpc` or `http/protobuf`.
    pub(crate) fn endpoint(&self, protocol: &str) -> String {
        let [grpc, http, _] = self.ports;
        let port = if protocol == "grpc" { grpc } else { http };
        format!("http://127.0.0.1:{port}")
    }

    /// Returns the path of the file with the log records: requests in OTLP's JSON form.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("logs.jsonl")
    }

    /// Returns the log records acknowledged so far but for checkpoints, in the order in which they came: as in OTLP's JSON form, with their resource and scope;
    /// attributes, body and resource are plain JSON.
    pub(crate) fn records(&self) -> Vec<Value> {
        let mut records = Vec::new();
        for request in lines(&self.file()) {
            for resource in array(&request["resourceLogs"]) {
                for scope in array(&resource["scopeLogs"]) {
                    for record in array(&scope["logRecords"]) {
                        let mut record = record.clone();
                        record["attributes"] = attributes(&record["attributes"]);
                        record["body"] = plain(&record["body"]);
                        record["resource"] = attributes(&resource["resource"]["attributes"]);
                        record["scope"] = scope["scope"].clone();
                        if record["eventName"] != "orgdata.exporter.checkpoint" {
                            records.push(record);
                        }
                    }
                }
            }
        }
        records
    }

    /// Returns the ids of the records acknowledged so far, in the order in which they came.
    pub(crate) fn ids(&self) -> Vec<String> {
        let id = |record: &Value| text(&record["attributes"]["log.record.uid"]);
        self.records().iter().map(id).collect()
    }

    /// Waits until at least `count` log records were acknowledged and returns all of them.
    pub(crate) async fn records_at_least(&self, count: usize) -> Vec<Value> {
        until(async || {
            let records = self.records();
            let missing = format!("{} of {count} records", records.len());
            (records.len() >= count).then_some(records).ok_or(missing)
        })
        .await
    }

    /// Returns the spans acknowledged so far, as in OTLP's JSON form.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let requests = lines(&self.dir.path().join("traces.jsonl"));
        let resources = requests.iter().flat_map(|one| array(&one["resourceSpans"]));
        let scopes = resources.flat_map(|one| array(&one["scopeSpans"]));
        let spans = scopes.flat_map(|one| array(&one["spans"]));
        spans.cloned().collect()
    }

    /// Returns how many lines of its output contain these words.
    pub(crate) fn printed(&self, words: &str) -> usize {
        self.process.log.count(words)
    }

    /// Kills the collector; what it has written stays.
    pub(crate) fn stop(&mut self) {
        self.process.stop();
    }

    pub(crate) async fn start_again(&mut self) {
        self.process.start_again(&Self::health(self.ports)).await;
    }
}

impl VictoriaLogs {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let arguments = |[port]: [u16; 1]| {
            vec![
                format!("-storageDataPath={}", dir.path().display()),
                format!("-httpListenAddr=127.0.0.1:{port}"),
                // By default it drops what is older than a week.
                "-retentionPeriod=100y".to_owned(),
            ]
        };
        let ready = |[port]: [u16; 1]| format!("http://127.0.0.1:{port}/health");
        let (process, [port]) = Process::start("victoria-logs", arguments, ready).await;
        Self {
            _process: process,
            base: format!("http://127.0.0.1:{port}"),
            _dir: dir,
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("{}/insert/opentelemetry/v1/logs", self.base)
    }

    /// Returns the log records that a query finds, once there are as many as there should be.
    pub(crate) async fn finds(&self, query: &str, count: usize) -> Vec<Value> {
        until(async || {
            let request = client().get(format!("{}/select/logsql/query", self.base));
            let request = request.query(&[("query", query), ("limit", "10000")]);
            let answer = request.send().await.unwrap().text().await.unwrap();
            let found = answer.lines().map(serde_json::from_str);
            let found: Vec<Value> = found.collect::<Result<_, _>>().unwrap();
            let wrong = format!("{query}: {} of {count}", found.len());
            (found.len() == count).then_some(found).ok_or(wrong)
        })
        .await
    }
}

/// Returns the JSON values of a file with one on each line; a line that is still being written is left out. A collector that was killed while
/// it wrote leaves the beginning of a line, which it has not acknowledged; the next one continues on that line.
fn lines(file: &Path) -> Vec<Value> {
    let log = fs::read_to_string(file).unwrap_or_default();
    let lines = log.split_inclusive('\n');
    let whole = lines.filter(|line| line.ends_with('\n'));
    let parsed = whole.map(|line| {
        let starts = ["{\"resourceLogs\"", "{\"resourceSpans\""].map(|start| line.rfind(start));
        let start = starts.into_iter().flatten().max().unwrap_or(0);
        let value = serde_json::from_str(line);
        value.unwrap_or_else(|_| serde_json::from_str(&line[start..]).unwrap())
    });
    parsed.collect()
}

/// Returns a list of `KeyValue` as a map. The protocol wants the keys to be unique.
fn attributes(list: &Value) -> Value {
    let mut map = Map::new();
    for pair in array(list) {
        let twice = map.insert(text(&pair["key"]), plain(&pair["value"]));
        assert!(twice.is_none(), "{} comes twice: {list}", pair["key"]);
    }
    map.into()
}

/// Returns the value that an `AnyValue` stands for; bytes, which JSON does not have, stay as they are.
fn plain(any: &Value) -> Value {
    let Some((kind, value)) = any.as_object().and_then(|any| any.iter().next()) else {
        return Value::Null;
    };
    match (kind.as_str(), value) {
        ("intValue", Value::String(digits)) => digits.parse::<i64>().unwrap().into(),
        ("arrayValue", _) => array(&value["values"]).iter().map(plain).collect(),
        ("kvlistValue", _) => attributes(&value["values"]),
        // Whole doubles are written without a fraction.
        ("doubleValue", _) => value.as_f64().into(),
        ("bytesValue", _) => any.clone(),
        _ => value.clone(),
    }
}
