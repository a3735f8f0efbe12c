//! The built binary as a child process: how it ends, what it prints, where it listens. It is killed when its value is dropped.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The simulator's key.
pub(crate) const KEY: &str = "demo-key";

/// A command line with an environment of its own, in a directory of its own.
pub(crate) struct Launch {
    command: Command,
    dir: TempDir,
}

/// A process that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process that runs.
pub(crate) struct Exporter {
    child: Child,
    out: Lines,
    err: Lines,
    _dir: TempDir,
}

/// Lines as they arrive.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

/// The binary with these arguments and nothing in its environment.
pub(crate) fn launch(arguments: &[&str]) -> Launch {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"));
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    command
        .args(arguments)
        .env_clear()
        .current_dir(dir.path())
        .kill_on_drop(true)
        .stdin(Stdio::null());
    Launch { command, dir }
}

/// The exporter beside a service, with the simulator's key, quick loops, a free port and nothing on disk.
pub(crate) fn exporter(base_url: &str) -> Launch {
    launch(&[
        "--web.listen-address=127.0.0.1:0",
        "--audit.poll-interval=100ms",
        "--tickets.scan-interval=200ms",
        "--api.max-requests-per-second=100",
        "--metrics.zero-hold=0",
    ])
    .env("ORGDATA_API_BASE_URL", base_url)
    .env("ORGDATA_API_KEY", KEY)
    .env("ORGDATA_STATE_PATH", ":memory:")
}

/// One HTTP client for all tests, which keeps no connection: each test has a runtime of its own.
pub(crate) fn client() -> &'static reqwest::Client {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client can be built")
    });
    &CLIENT
}

/// Looks again and again until there is something.
///
/// # Panics
///
/// When there is nothing for too long; `what` says what was waited for.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

// === impl Launch ===

impl Launch {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn os_env(mut self, name: &str, value: &std::ffi::OsStr) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// The directory that the process starts in.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts it with pipes that the test itself reads, or closes.
    pub(crate) fn spawn(mut self) -> (Child, TempDir) {
        let child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be run");
        (child, self.dir)
    }

    /// Runs it to its own end.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub(crate) async fn run(mut self) -> Finished {
        let output = tokio::time::timeout(PATIENCE, self.command.output())
            .await
            .expect("it ends by itself")
            .expect("it can be run");
        Finished {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Exporter {
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be run");
        let out = Lines::read(child.stdout.take().expect("piped"));
        let err = Lines::read(child.stderr.take().expect("piped"));
        Exporter {
            child,
            out,
            err,
            _dir: self.dir,
        }
    }
}

// === impl Finished ===

impl Finished {
    /// The message of a refusal: the status is that one, nothing is on standard output, and there is one line.
    ///
    /// # Panics
    ///
    /// When it ended in another way.
    pub(crate) fn refusal(&self, status: i32) -> &str {
        assert_eq!(
            (self.status, self.stdout.as_str()),
            (Some(status), ""),
            "{}",
            self.stderr
        );
        let line = self.stderr.strip_suffix('\n').expect("a whole line");
        assert!(!line.contains('\n'), "one line is enough:\n{line}");
        line.strip_prefix("orgdata-exporter: ")
            .expect("the line says who speaks")
    }
}

impl Finished {
    /// The same where log lines stand before the message.
    ///
    /// # Panics
    ///
    /// When it ended in another way.
    pub(crate) fn refusal_with_log(&self, status: i32) -> &str {
        assert_eq!(
            (self.status, self.stdout.as_str()),
            (Some(status), ""),
            "{}",
            self.stderr
        );
        let line = self.stderr.lines().last().expect("a line");
        line.strip_prefix("orgdata-exporter: ")
            .expect("the line says who speaks")
    }
}

// === impl Exporter ===

impl Exporter {
    pub(crate) fn stdout(&self) -> &Lines {
        &self.out
    }

    pub(crate) fn stderr(&self) -> &Lines {
        &self.err
    }

    /// Where it listens, once it says so.
    ///
    /// # Panics
    ///
    /// When it never does.
    pub(crate) async fn url(&self) -> String {
        let line = self
            .err
            .until("a line that says where it listens", |line| {
                line.contains("listening")
            })
            .await;
        let (_, rest) = line
            .split_once("addresses=")
            .unwrap_or_else(|| panic!("no addresses in: {line}"));
        format!("http://{}", rest.split([' ', ',']).next().unwrap_or(rest))
    }

    /// A page of it: status and text.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = client()
            .get(format!("{}{path}", self.url().await))
            .send()
            .await
            .expect("it answers");
        (
            response.status().as_u16(),
            response.text().await.expect("the answer is whole"),
        )
    }

    /// A scrape in the classic format.
    pub(crate) async fn metrics(&self) -> String {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        text
    }

    /// The value of a series, written as in the exposition; `None` where it is absent.
    pub(crate) async fn value(&self, series: &str) -> Option<f64> {
        let metrics = self.metrics().await;
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// The sum over all label sets of a family.
    pub(crate) async fn sum(&self, family: &str) -> f64 {
        let metrics = self.metrics().await;
        let of_family = metrics.lines().filter(|line| {
            line.strip_prefix(family)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        of_family
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a series has this value.
    pub(crate) async fn until_value(&self, series: &str, value: f64) {
        let what = format!("{series} {value}, standard error:\n{}", self.err.text());
        until(&what, async || {
            (self.value(series).await == Some(value)).then_some(())
        })
        .await;
    }

    /// Sends it a signal by its name, as `TERM`.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs");
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {id}")])
            .status()
            .await
            .expect("there is a shell");
        assert!(sent.success(), "{name}");
    }

    /// As [`signal`](Self::signal), and no failure when it has just ended.
    pub(crate) async fn signal_if_it_runs(&self, name: &str) {
        if let Some(id) = self.child.id() {
            let sent = Command::new("sh")
                .args(["-c", &format!("kill -{name} {id} 2>&-")])
                .status()
                .await;
            sent.expect("there is a shell");
        }
    }

    /// Its exit status; `None` where a signal ended it.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("it does not end:\n{}", self.err.text()))
            .expect("it can be waited for")
            .code()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to stop and waits for that.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        self.signal("TERM").await;
        self.ended().await
    }
}

// === impl Lines ===

impl Lines {
    pub(crate) fn read(source: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Self::default();
        let into = lines.clone();
        tokio::spawn(async move {
            let mut source = BufReader::new(source).lines();
            while let Ok(Some(line)) = source.next_line().await {
                into.0.lock().expect("not poisoned").push(line);
            }
        });
        lines
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("not poisoned").join("\n")
    }

    /// The first line that is wanted, once it is there.
    ///
    /// # Panics
    ///
    /// When it never comes.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self
                .0
                .lock()
                .expect("not poisoned")
                .iter()
                .find(|line| wanted(line))
                .cloned();
            if let Some(line) = found {
                return line;
            }
            assert!(
                Instant::now() < deadline,
                "not within {PATIENCE:?}: {what}, in:\n{}",
                self.text()
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}
