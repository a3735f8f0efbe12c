//! The built exporter as a user runs it, with flags, variables and signals, and its answers on `/metrics`.
//!
//! A child is killed when its value is dropped. When a test panics, the end of every child's log is printed.

#![allow(dead_code, reason = "each test program uses what it needs")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use orgdata_simulator::{Running, Truth};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use tempfile::TempDir;

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the exporter may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The number of lines of an exporter's log that are printed when a test fails.
const SHOWN_LINES: usize = 40;

/// Flags and variables; processes can be started with them one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    program: PathBuf,
    /// A shell command that prepares the namespace of mounts the program runs in.
    mount: Option<String>,
}

/// A running exporter.
pub(crate) struct Exporter {
    child: Child,
    client: Client,
    address: SocketAddr,
    dir: TempDir,
}

/// A scrape in the classic text format.
#[derive(Clone, Debug)]
pub(crate) struct Scrape(pub(crate) String);

/// Returns the series of `orgdata_audit_events_total` by `activity_type` and `actor`, with their true values.
pub(crate) fn event_counts(truth: &Truth) -> BTreeMap<Vec<String>, f64> {
    let actor = |id: &Option<i64>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let counts = truth.counts.iter();
    counts
        .map(|((kind, id), count)| (vec![kind.clone(), actor(id)], *count as f64))
        .collect()
}

// === impl Setup ===

impl Setup {
    /// An exporter of this simulator that polls quickly, keeps its state in memory and shows every increase at once.
    pub(crate) fn new(simulator: &Running) -> Self {
        let setup = Self {
            flags: BTreeMap::new(),
            variables: BTreeMap::new(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_orgdata-exporter")),
            mount: None,
        };
        [
            ("--api.base-url", simulator.base_url().as_str()),
            ("--api.max-requests-per-second", "1000"),
            ("--audit.poll-interval", "100ms"),
            ("--tickets.scan-interval", "1s"),
            ("--metrics.zero-hold", "0"),
            ("--state.path", ":memory:"),
            ("--web.listen-address", "127.0.0.1:0"),
            ("--log.format", "json"),
        ]
        .into_iter()
        .fold(setup, |setup, (name, value)| setup.flag(name, value))
        .variable("ORGDATA_API_KEY", "demo-key")
    }

    /// Sets a flag.
    pub(crate) fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Keeps the state in a file.
    pub(crate) fn state(self, file: &Path) -> Self {
        self.flag("--state.path", file.to_str().unwrap())
    }

    /// Sends log records to an endpoint.
    pub(crate) fn otlp(self, protocol: &str, endpoint: &str) -> Self {
        self.flag("--otlp.protocol", protocol)
            .flag("--otlp.endpoint", endpoint)
    }

    /// Runs the image's program, for tests of what a debug build does differently.
    pub(crate) fn shipped(mut self) -> Self {
        let target = self.program.ancestors().nth(2).unwrap();
        self.program = target.join("image/usr/local/bin/orgdata-exporter");
        assert!(self.program.is_file(), "run deploy/image/build.sh first");
        self
    }

    /// Mounts a file system in memory over a directory for the exporter alone; [`Exporter::inside`] reaches it. Needs to be root or user
    /// namespaces.
    pub(crate) fn mount(mut self, directory: &Path, options: &str) -> Self {
        let directory = directory.display();
        self.mount = Some(format!("mount -t tmpfs -o {options} tmpfs {directory}"));
        self
    }

    /// Starts the exporter and waits until it listens.
    ///
    /// # Panics
    ///
    /// If it ends before it listens.
    pub(crate) async fn start(&self) -> Exporter {
        let mut exporter = self.spawn();
        exporter.address = poll("it listens", async || {
            let ended = exporter.status();
            assert!(ended.is_none(), "ended before it listened: {ended:?}");
            let line = exporter.said("listening").pop()?;
            line["addresses"].as_str()?.parse().ok()
        })
        .await;
        exporter
    }

    /// Starts the exporter without waiting. It inherits no variables of this process.
    pub(crate) fn spawn(&self) -> Exporter {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new(&self.program);
        if let Some(mount) = &self.mount {
            let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
            let namespace = if root { "-m" } else { "-rm" };
            command = Command::new("unshare");
            let script = format!("{mount} && exec \"$0\" \"$@\"");
            command.args([namespace, "sh", "-c", &script]);
            command.arg(&self.program);
        }
        command.env_clear().envs(&self.variables);
        if self.mount.is_some() {
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        }
        for (name, value) in &self.flags {
            command.arg(format!("{name}={value}"));
        }
        command.current_dir(dir.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        // It fails only if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(ANSWER).build();
        let client = client.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Exporter {
            child,
            client,
            address,
            dir,
        }
    }
}

/// Looks until there is something.
///
/// # Panics
///
/// If there is nothing within two minutes.
async fn poll<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

// === impl Exporter ===

impl Exporter {
    /// Returns the address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a request to it.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    /// Scrapes it, in the format that a client without `Accept` gets.
    pub(crate) async fn scrape(&self) -> Scrape {
        let response = self.get("/metrics").send().await.unwrap();
        assert_eq!(response.status(), 200);
        Scrape(response.text().await.unwrap())
    }

    /// Scrapes it until the answer is accepted, for two minutes.
    pub(crate) async fn until(&self, wanted: &str, accept: impl Fn(&Scrape) -> bool) -> Scrape {
        let begun = Instant::now();
        loop {
            let scrape = self.scrape().await;
            if accept(&scrape) {
                return scrape;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {wanted}:\n{}",
                scrape.0
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until its first sync is done: what happens from now on is counted.
    pub(crate) async fn synced(&self) -> Scrape {
        let up = "orgdata_up{loop=\"audit\"}";
        self.until("the first sync", |scrape| scrape.value(up) == Some(1.0))
            .await
    }

    /// The old name of [`synced`](Self::synced).
    pub(crate) async fn born(&self) -> Scrape {
        self.synced().await
    }

    /// Waits until this number of events is counted and every record is delivered.
    pub(crate) async fn settled(&self, events: u64) -> Scrape {
        let wanted = format!("{events} events, nothing to send");
        let settled = |scrape: &Scrape| {
            scrape.sum("orgdata_audit_events_total") == events as f64
                && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
        };
        // A scrape is not a snapshot of all families: one that began before the last commit can show its events without its records.
        self.until(&wanted, settled).await;
        self.until(&wanted, settled).await
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits until it has ended.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        // The standard library can send no other signal than SIGKILL.
        let script = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(sent.success(), "no process to send a signal to");
        poll("it ends", async || self.status()).await
    }

    /// Waits until it has ended by itself; returns its exit status and its log.
    pub(crate) async fn ended(&mut self) -> (Option<i32>, String) {
        let status = poll("it ends", async || self.status()).await;
        (status.code(), self.text())
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns a path as the exporter itself sees it, also below what is mounted for it alone.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// Waits until it has logged `times` times that it listens.
    pub(crate) async fn listens_again(&self, times: usize) {
        poll("it listens again", async || {
            (self.said("listening").len() >= times).then_some(())
        })
        .await;
    }

    /// Returns its memory in MiB, now and at the peak.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap();
        let of = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            let kib = line.trim_matches(|c: char| !c.is_ascii_digit());
            kib.parse::<f64>().unwrap() / 1024.0
        };
        (of("VmRSS"), of("VmHWM"))
    }

    fn text(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns everything it has logged, a JSON object for each line.
    pub(crate) fn log(&self) -> Vec<Value> {
        let lines = self.text();
        lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Returns the log lines with this message.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter(|line| line["message"] == message)
            .collect()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.text();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            eprintln!("the exporter logged at last:\n{}", shown.join("\n"));
        }
    }
}

// === impl Scrape ===

impl Scrape {
    /// Returns the value of a series, written as in the scrape.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Returns the sum over all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let values = self
            .of(name)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// Returns whether there is a series of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let is_series = move |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        };
        self.0.lines().filter(is_series)
    }
}
