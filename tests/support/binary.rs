//! The built binary as a user runs it: flags, variables, signals, how it ends, what it prints and what it shows on `/metrics`.
//!
//! A process is killed when its value is dropped. When a test panics, the end of its log is printed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, TempDir};
use tokio::process::ChildStdout;

pub(crate) use super::scrape::{Scrape, assert_complete, event_counts};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(20);

pub(crate) const KEY: &str = "demo-key";

/// The number of lines of a log that are printed when a test fails.
const SHOWN_LINES: usize = 60;

/// A command line with an environment and a directory of its own; several processes can be started with it.
#[derive(Clone)]
pub(crate) struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    variables: BTreeMap<String, OsString>,
    /// What runs the program in a namespace of mounts.
    wrapper: Vec<String>,
    dir: Arc<TempDir>,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) struct Exporter {
    child: Child,
    out: Lines,
    err: Lines,
    _dir: Arc<TempDir>,
}

/// What a process has printed so far.
#[derive(Clone)]
pub(crate) struct Lines(Arc<NamedTempFile>);

/// Returns the binary with these arguments and nothing in its environment.
pub(crate) fn launch(arguments: &[&str]) -> Launch {
    let launch = Launch {
        program: env!("CARGO_BIN_EXE_orgdata-exporter").into(),
        arguments: Vec::new(),
        variables: BTreeMap::new(),
        wrapper: Vec::new(),
        dir: Arc::new(tempfile::tempdir().unwrap()),
    };
    launch.args(arguments)
}

/// Returns an exporter of a service, with the simulator's key, quick loops, a free port and nothing on disk.
pub(crate) fn exporter(base_url: &str) -> Launch {
    launch(&[
        "--web.listen-address=127.0.0.1:0",
        "--audit.poll-interval=100ms",
        "--tickets.scan-interval=200ms",
        "--api.max-requests-per-second=1000",
        "--metrics.zero-hold=0",
    ])
    .env("ORGDATA_API_BASE_URL", base_url)
    .env("ORGDATA_API_KEY", KEY)
    .env("ORGDATA_STATE_PATH", ":memory:")
}

/// Returns an address on which nothing listens.
pub(crate) fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Returns a client that connects directly, whatever proxy the environment names. It keeps no connection: each test has its own runtime.
pub(crate) fn client() -> &'static reqwest::Client {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
        // It fails only if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy();
        let client = client.pool_max_idle_per_host(0).timeout(PATIENCE / 4);
        client.build().unwrap()
    });
    &CLIENT
}

/// Looks again and again until there is something.
pub(crate) async fn until_ok<T, E: Display>(mut look: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(error) if begun.elapsed() > PATIENCE => panic!("not within {PATIENCE:?}: {error}"),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The same if there is nothing more to say than `what` was waited for.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    until_ok(async || look().await.ok_or(what)).await
}

impl Launch {
    /// Sets a variable; an empty one is unset.
    pub(crate) fn env(mut self, name: &str, value: &(impl AsRef<OsStr> + ?Sized)) -> Self {
        let value = value.as_ref().to_owned();
        self.variables.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn arg(self, argument: &str) -> Self {
        self.args(&[argument])
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Sets a flag, or changes it.
    pub(crate) fn flag(mut self, name: &str, value: &str) -> Self {
        let is_other = |argument: &String| argument.split('=').next() != Some(name);
        self.arguments.retain(is_other);
        self.arg(&format!("{name}={value}"))
    }

    /// Keeps its state in `state.db` of its directory.
    pub(crate) fn on_disk(self) -> Self {
        self.state(Path::new("state.db"))
    }

    pub(crate) fn state(self, file: &Path) -> Self {
        self.flag("--state.path", file.to_str().unwrap())
    }

    pub(crate) fn otlp(self, protocol: &str, endpoint: &str) -> Self {
        self.flag("--otlp.protocol", protocol)
            .flag("--otlp.endpoint", endpoint)
    }

    /// Runs another program.
    pub(crate) fn program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Runs the image's program, for tests of what a debug build does differently.
    pub(crate) fn shipped(self) -> Self {
        let target = self.program.ancestors().nth(2).unwrap();
        let program = target.join("image/usr/local/bin/orgdata-exporter");
        assert!(program.is_file(), "run deploy/image/build.sh first");
        self.program(program)
    }

    /// Mounts a file system in memory over a directory for the exporter alone; [`Exporter::inside`] reaches it. Needs to be root or user
    /// namespaces.
    pub(crate) fn mount(self, directory: &Path, options: &str) -> Self {
        let directory = directory.display();
        let script = format!("mount -t tmpfs -o {options} tmpfs {directory} && exec \"$0\" \"$@\"");
        let namespace = if is_root() { "-m" } else { "-rm" };
        self.wrapped(&["unshare", namespace, "sh", "-c", &script])
    }

    /// Runs it from a shell script, in which `"$0" "$@"` is its command line.
    pub(crate) fn script(self, script: &str) -> Self {
        self.wrapped(&["sh", "-c", script])
    }

    /// Runs it from a shell script in a network of its own. Needs to be root or user namespaces.
    pub(crate) fn in_network(self, script: &str) -> Self {
        let namespace = if is_root() { "-n" } else { "-rn" };
        self.wrapped(&["unshare", namespace, "sh", "-c", script])
    }

    /// Runs it as a user without privileges.
    pub(crate) fn unprivileged(self) -> Self {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        match is_root() {
            true => self.wrapped(&[&["setpriv"], &user[..]].concat()),
            false => self,
        }
    }

    /// Runs it where another one has its mounted file system.
    pub(crate) fn beside(self, other: &Exporter) -> Self {
        let pid = other.child.id().to_string();
        let namespaces = if is_root() { "-m" } else { "-Um" };
        self.wrapped(&["nsenter", "--preserve-credentials", namespaces, "-t", &pid])
    }

    fn wrapped(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(ToString::to_string).collect();
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self) -> Command {
        let words = self.wrapper.iter().map(OsStr::new);
        let mut words = words.chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env_clear();
        if !self.wrapper.is_empty() {
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        }
        command.args(&self.arguments).envs(&self.variables);
        command.current_dir(self.dir()).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self) -> Exporter {
        let out = Lines::default();
        self.start_to(out.file().into(), out)
    }

    /// Starts it with a pipe for standard output that the test itself reads, or closes.
    pub(crate) fn piped(&self) -> (Exporter, ChildStdout) {
        let mut exporter = self.start_to(Stdio::piped(), Lines::default());
        let pipe = exporter.child.stdout.take().unwrap();
        (exporter, ChildStdout::from_std(pipe).unwrap())
    }

    fn start_to(&self, stdout: Stdio, out: Lines) -> Exporter {
        let err = Lines::default();
        let mut command = self.command();
        command.stdout(stdout).stderr(err.file());
        Exporter {
            child: command.spawn().unwrap(),
            out,
            err,
            _dir: self.dir.clone(),
        }
    }

    pub(crate) async fn listening(&self) -> Exporter {
        let mut exporter = self.start();
        until("it listens", async || {
            let ended = exporter.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended before it listened: {ended:?}");
            exporter.err.text().contains("addresses").then_some(())
        })
        .await;
        exporter
    }

    /// Runs it and asserts that it refuses with this status and a line with all of these words, which are separated by ` | `.
    pub(crate) async fn refused(self, status: i32, words: &str) -> String {
        let finished = self.run().await;
        let line = finished.refusal(status);
        for words in words.split(" | ") {
            assert!(line.contains(words), "{words:?} is missing in: {line}");
        }
        line.to_owned()
    }

    pub(crate) async fn run(self) -> Finished {
        let mut process = self.start();
        Finished {
            status: process.ended().await,
            stdout: process.out.text(),
            stderr: process.err.text(),
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

impl Finished {
    /// Returns the message of a refusal: the status is this one, nothing is on standard output, and there is one line.
    pub(crate) fn refusal(&self, status: i32) -> &str {
        let lines = self.stderr.lines().count();
        assert_eq!(lines, 1, "one line is enough:\n{}", self.stderr);
        self.refusal_with_log(status)
    }

    /// Returns the same if log lines come before the message.
    pub(crate) fn refusal_with_log(&self, status: i32) -> &str {
        let said = (self.status, self.stdout.as_str());
        assert_eq!(said, (Some(status), ""), "{}", self.stderr);
        assert!(self.stderr.ends_with('\n'), "a whole line: {}", self.stderr);
        let message = self.stderr.lines().last();
        let message = message.and_then(|line| line.strip_prefix("orgdata-exporter: "));
        message.unwrap_or_else(|| panic!("no message: {}", self.stderr))
    }
}

impl Exporter {
    pub(crate) fn stdout(&self) -> &Lines {
        &self.out
    }

    pub(crate) fn stderr(&self) -> &Lines {
        &self.err
    }

    /// Waits for a line of its log with all of these words, which are separated by ` | `.
    pub(crate) async fn logs(&self, words: &str) {
        let is_it = |line: &str| words.split(" | ").all(|words| line.contains(words));
        self.err.until(words, is_it).await;
    }

    /// Returns the address that it has logged.
    pub(crate) fn address(&self) -> SocketAddr {
        let log = self.err.text();
        let (_, rest) = log.split_once("addresses").expect("it listens");
        let rest = rest.trim_start_matches(['=', '"', ':']);
        let address = rest.split([' ', ',', '"']).next().unwrap();
        address.parse().expect(address)
    }

    /// Waits until it listens and returns its URL.
    pub(crate) async fn url(&self) -> String {
        let listens = |line: &str| line.contains("addresses");
        self.err.until("where it listens", listens).await;
        format!("http://{}", self.address())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let request = client().get(format!("{}{path}", self.url().await));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub(crate) async fn is_healthy(&self) -> bool {
        self.get("/-/healthy").await.0 == 200
    }

    /// Scrapes it, in the format that a client without `Accept` gets.
    pub(crate) async fn scrape(&self) -> Scrape {
        Scrape(self.metrics().await)
    }

    pub(crate) async fn metrics(&self) -> String {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        text
    }

    /// Returns the value of a series, written as in the scrape.
    pub(crate) async fn value(&self, series: &str) -> Option<f64> {
        self.scrape().await.value(series)
    }

    pub(crate) async fn sum(&self, family: &str) -> f64 {
        self.scrape().await.sum(family)
    }

    pub(crate) async fn until(&self, wanted: &str, accept: impl Fn(&Scrape) -> bool) -> Scrape {
        until_ok(async || {
            let scrape = self.scrape().await;
            let is_it = accept(&scrape);
            is_it
                .then(|| scrape.clone())
                .ok_or_else(|| format!("{wanted}:\n{}", scrape.0))
        })
        .await
    }

    pub(crate) async fn until_value(&self, series: &str, value: f64) {
        let is_so = |scrape: &Scrape| scrape.value(series) == Some(value);
        self.until(&format!("{series} {value}"), is_so).await;
    }

    /// Waits until its first sync is done: what happens from now on is counted.
    pub(crate) async fn synced(&self) {
        self.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
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

    /// Sends it a signal by its name, such as `TERM`, if it still runs.
    pub(crate) async fn signal(&self, name: &str) {
        // The standard library can send no other signal than SIGKILL.
        let script = format!("kill -{name} {} 2>&-", self.child.id());
        Command::new("sh").args(["-c", &script]).status().unwrap();
    }

    pub(crate) fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it ends and returns its exit status; `None` if a signal ended it.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let status = until("it ends", async || self.child.try_wait().unwrap());
        status.await.code()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to stop, and returns its exit status.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        self.signal("TERM").await;
        self.ended().await
    }

    /// Returns a path as the exporter itself sees it, also below what is mounted for it alone.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        self.proc("root").join(path.strip_prefix("/").unwrap())
    }

    /// Returns the path of a file of `/proc` about it.
    pub(crate) fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// Returns its memory in MiB, now and at the peak.
    pub(crate) fn memory(&self) -> [f64; 2] {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        ["VmRSS:", "VmHWM:"].map(|name| {
            let mut lines = status.lines();
            let kib = lines.find_map(|line| line.strip_prefix(name)).unwrap();
            let kib = kib.trim_end_matches("kB").trim();
            kib.parse::<f64>().unwrap() / 1024.0
        })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the exporter logged at last:\n{}", self.err.tail());
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self(Arc::new(NamedTempFile::new().unwrap()))
    }
}

impl Lines {
    /// Returns the file for a process to append to.
    pub(crate) fn file(&self) -> fs::File {
        let file = fs::File::options().append(true).open(self.0.path());
        file.unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.0.path()).unwrap()).into_owned()
    }

    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    pub(crate) fn count(&self, words: &str) -> usize {
        let text = self.text();
        text.lines().filter(|line| line.contains(words)).count()
    }

    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        until_ok(async || {
            let text = self.text();
            let lines = text.split_inclusive('\n');
            let mut lines = lines.filter_map(|line| line.strip_suffix('\n'));
            let line = lines.find(|line| wanted(line)).map(str::to_owned);
            line.ok_or_else(|| format!("{what}, in:\n{text}"))
        })
        .await
    }
}
