//! The built binary, run as a user runs it: flags, variables, signals; and what it says of itself on `/metrics`.
//!
//! A child is killed when its value is dropped. When a test panics, the end of what every running child logged is printed.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use orgdata_exporter::simulator::{Running, Truth};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use tempfile::TempDir;

/// How often a condition is looked at before it is given up: 60 seconds with [`PAUSE`].
const TRIES: usize = 1_200;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The lines of an exporter's log that are shown when a test fails.
const SHOWN_LINES: usize = 40;

/// Flags and variables; any number of processes can be started with them, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    /// What is run instead of the built binary.
    program: PathBuf,
    /// What runs it.
    wrapper: Vec<String>,
}

/// A running exporter.
pub(crate) struct Exporter {
    child: Child,
    client: Client,
    address: SocketAddr,
    dir: TempDir,
}

/// One scrape in the classic text form.
#[derive(Clone, Debug)]
pub(crate) struct Scrape(pub(crate) String);

/// The label sets of `orgdata_audit_events_total` and their true values, as `activity_type`, `actor`.
pub(crate) fn event_counts(truth: &Truth) -> BTreeMap<Vec<String>, f64> {
    let actor = |id: &Option<i64>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
    truth
        .counts
        .iter()
        .map(|((kind, id), count)| (vec![kind.clone(), actor(id)], *count as f64))
        .collect()
}

// === impl Setup ===

impl Setup {
    /// An exporter of this simulator that polls quickly, keeps its ledger in memory and shows every rise at once.
    pub(crate) fn new(simulator: &Running) -> Self {
        let flags = [
            ("--api.base-url", simulator.base_url().as_str()),
            ("--api.max-requests-per-second", "1000"),
            ("--audit.poll-interval", "100ms"),
            ("--tickets.scan-interval", "1s"),
            ("--metrics.zero-hold", "0"),
            ("--state.path", ":memory:"),
            ("--web.listen-address", "127.0.0.1:0"),
            ("--log.format", "json"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = [("ORGDATA_API_KEY".to_owned(), "demo-key".to_owned())];
        let program = PathBuf::from(env!("CARGO_BIN_EXE_orgdata-exporter"));
        Self {
            flags: flags.into(),
            variables: variables.into(),
            program,
            wrapper: Vec::new(),
        }
    }

    /// Gives a flag, or another value to one that was given.
    pub(crate) fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Keeps the ledger in a file.
    pub(crate) fn state(self, file: &Path) -> Self {
        self.flag(
            "--state.path",
            file.to_str().expect("a temporary path is text"),
        )
    }

    /// Runs the program of the image, which has to be there: for tests of which a debug build would make something else.
    pub(crate) fn shipped(mut self) -> Self {
        let target = self
            .program
            .ancestors()
            .nth(2)
            .expect("a build is in a directory of its profile");
        self.program = target
            .join("image/usr/local/bin")
            .join(self.program.file_name().expect("a file"));
        assert!(
            self.program.is_file(),
            "{} is missing: run deploy/image/build.sh amd64 target/image first",
            self.program.display()
        );
        self
    }

    /// Mounts a file system in memory over a directory, for the exporter alone: [`Exporter::inside`] reaches it. It needs to be root, or
    /// user namespaces.
    pub(crate) fn mount(mut self, directory: &Path, options: &str) -> Self {
        use std::os::unix::fs::MetadataExt;
        let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let script = format!(
            "mount -t tmpfs -o {options} tmpfs {} && exec \"$0\" \"$@\"",
            directory.display()
        );
        self.wrapper = [
            "unshare",
            if root { "-m" } else { "-rm" },
            "sh",
            "-c",
            &script,
        ]
        .map(ToOwned::to_owned)
        .into();
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Starts the exporter and waits until it listens.
    ///
    /// # Panics
    ///
    /// When it ends before it listens.
    pub(crate) async fn start(&self) -> Exporter {
        let mut exporter = self.spawn();
        for _ in 0..TRIES {
            if let Some(address) = exporter
                .said("listening")
                .first()
                .and_then(|line| line["addresses"].as_str()?.parse().ok())
            {
                exporter.address = address;
                return exporter;
            }
            assert!(
                exporter
                    .child
                    .try_wait()
                    .expect("a child can be waited for")
                    .is_none(),
                "the exporter ended before it listened"
            );
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the exporter never said where it listens");
    }

    /// Starts the exporter and waits for nothing: it can only be ended. Nothing of this process's environment reaches it.
    pub(crate) fn spawn(&self) -> Exporter {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let log =
            File::create(dir.path().join("log")).expect("the temporary directory is writable");
        let mut line = self
            .wrapper
            .iter()
            .map(OsStr::new)
            .chain([self.program.as_os_str()]);
        let mut command = Command::new(line.next().expect("at least the program"));
        command.args(line).env_clear();
        if !self.wrapper.is_empty() {
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        }
        let child = command
            .args(
                self.flags
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )
            .envs(&self.variables)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the built binary can be run");
        // It fails only when a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10))
            .build()
            .expect("a client without special settings");
        Exporter {
            child,
            client,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            dir,
        }
    }
}

// === impl Exporter ===

impl Exporter {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request to it.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    /// Scrapes it, in the form that a client without wishes gets.
    pub(crate) async fn scrape(&self) -> Scrape {
        let response = self
            .get("/metrics")
            .send()
            .await
            .expect("the exporter answers");
        assert_eq!(response.status(), 200);
        Scrape(
            response
                .text()
                .await
                .expect("the exporter answers with a body"),
        )
    }

    /// Scrapes it until the answer is accepted.
    ///
    /// # Panics
    ///
    /// When none was accepted within a minute.
    pub(crate) async fn until(&self, wanted: &str, accept: impl Fn(&Scrape) -> bool) -> Scrape {
        let mut scrape = self.scrape().await;
        for _ in 0..TRIES {
            if accept(&scrape) {
                return scrape;
            }
            tokio::time::sleep(PAUSE).await;
            scrape = self.scrape().await;
        }
        panic!("never came to: {wanted}; at last:\n{}", scrape.0);
    }

    /// Waits until the exporter has begun its ledger: what happens from now on is counted.
    pub(crate) async fn born(&self) -> Scrape {
        self.until("a ledger", |scrape| {
            scrape.value("orgdata_up{loop=\"audit\"}") == Some(1.0)
        })
        .await
    }

    /// Waits until so many events are counted and nothing is left to be sent. History goes first, so it is sent by then.
    pub(crate) async fn settled(&self, events: u64) -> Scrape {
        let wanted = format!("{events} events, nothing to send");
        let settled = |scrape: &Scrape| {
            scrape.sum("orgdata_audit_events_total") == events as f64
                && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
        };
        // A scrape is no snapshot of all families: one that began before the last commit can show its events and not yet its records.
        self.until(&wanted, settled).await;
        self.until(&wanted, settled).await
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        // Both fail only when it has ended already and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, with SIGTERM, and waits until it has.
    ///
    /// # Panics
    ///
    /// When it is still there after a minute.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        // The standard library has no way to send a signal but that of `kill`.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status()
            .expect("there is a shell");
        assert!(sent.success(), "no process to send a signal to");
        for _ in 0..TRIES {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the exporter does not end");
    }

    /// A path as the exporter itself sees it, also below what is mounted for it alone.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").expect("an absolute path"))
    }

    /// Waits until it has said so many times that it listens.
    ///
    /// # Panics
    ///
    /// When it has not after a minute.
    pub(crate) async fn listens_again(&self, times: usize) {
        for _ in 0..TRIES {
            if self.said("listening").len() >= times {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("it never listens again");
    }

    /// Its memory in MiB: what it has now, and the most it ever had.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let of = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect("a line of its own");
            line.trim_start_matches(':')
                .trim()
                .trim_end_matches(" kB")
                .parse::<f64>()
                .expect("a number")
                / 1024.0
        };
        (of("VmRSS"), of("VmHWM"))
    }

    /// Waits until it has ended by itself; how, and what it said.
    ///
    /// # Panics
    ///
    /// When it still runs after a minute.
    pub(crate) async fn ended(&mut self) -> (Option<i32>, String) {
        for _ in 0..TRIES {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return (
                    status.code(),
                    fs::read_to_string(self.dir.path().join("log")).expect("text"),
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the exporter does not end");
    }

    /// Everything it has logged, a JSON object a line.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text =
            String::from_utf8_lossy(&fs::read(self.dir.path().join("log")).unwrap_or_default())
                .into_owned();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The log lines with this message.
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
            let log =
                String::from_utf8_lossy(&fs::read(self.dir.path().join("log")).unwrap_or_default())
                    .into_owned();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "the exporter logged at last:\n{}",
                lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
            );
        }
    }
}

// === impl Scrape ===

impl Scrape {
    /// The value of a series, written as in the scrape.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The sum over all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let of_name = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        };
        self.0
            .lines()
            .filter(of_name)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Whether there is a series of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.lines().any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        })
    }
}
