//! The programs that `.ci/setup` installs. A server listens on loopback on ports that the kernel chose, works in a temporary directory and is
//! killed when its value is dropped. When a test panics, the end of each server's output is printed.
//!
//! `ORGDATA_REAL_PARTS` names another directory than `target/real-parts/bin`.

#![allow(dead_code, reason = "each test uses the parts it needs")]

mod collector;
mod prometheus;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::files::path;

pub(crate) use super::binary::client;

pub(crate) use collector::{Collector, LogRecordJson, Rotel};
pub(crate) use prometheus::{Alertmanager, Prometheus, number};

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Another process can take a port between its choice and its use; then other ports are chosen.
const PORT_CHOICES: usize = 5;

/// The number of lines of a server's output that are printed when a test fails.
const SHOWN_LINES: usize = 60;

/// A running server.
struct Process {
    command: Command,
    child: Child,
    log: PathBuf,
}

/// Returns the path of an installed program.
pub(crate) fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("ORGDATA_REAL_PARTS");
    let directory = directory.map_or_else(|| path("target/real-parts/bin"), PathBuf::from);
    let program = directory.join(name);
    assert!(
        program.is_file(),
        "{} is missing: run .ci/setup first",
        program.display()
    );
    program
}

/// Runs an installed program in the repository with this standard input. The error is everything that it printed.
pub(crate) fn run(name: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(binary(name));
    command.args(arguments);
    output(&mut command, input)
}

/// Runs a command in the repository with this standard input and returns its output. The error is everything that it printed.
pub(crate) fn output(command: &mut Command, input: &str) -> Result<String, String> {
    let command = command.current_dir(path("")).stdin(Stdio::piped());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that does not read all of it is judged by its exit status.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    });
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!(
            "{}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )),
    }
}

/// Runs an installed program in the repository. The error is everything that it printed.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> Result<(), String> {
    run(name, arguments, "")
        .map(drop)
        .map_err(|error| format!("{name}: {error}"))
}

/// Runs the promtool of the oldest supported Prometheus and the current one.
pub(crate) fn promtool(arguments: &[&str]) -> Result<(), String> {
    tool("promtool", arguments)?;
    tool("promtool3", arguments)
}

/// Lints a scrape in the classic text format with both promtools.
pub(crate) fn promtool_check_metrics(text: &str) -> Result<(), String> {
    run("promtool", &["check", "metrics"], text)?;
    run("promtool3", &["check", "metrics"], text).map(drop)
}

/// Looks until there is something, for two minutes.
///
/// # Panics
///
/// With the last error if there is nothing until then.
pub(crate) async fn until<T, E: Display>(mut look: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(error) => assert!(
                begun.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {error}"
            ),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns loopback ports that are free at the moment, all different.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let bind = |_| TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listeners: [TcpListener; N] = std::array::from_fn(bind);
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Returns the last lines of a log file.
pub(crate) fn tail(log: &Path) -> String {
    let log = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

// === impl Process ===

impl Process {
    /// Starts a server on free ports and waits until its URL answers.
    ///
    /// # Panics
    ///
    /// If the program is missing or does not become ready.
    async fn start<const N: usize>(
        name: &str,
        dir: &Path,
        arguments: impl Fn([u16; N]) -> Vec<String>,
        url: impl Fn([u16; N]) -> String,
    ) -> (Self, [u16; N]) {
        for choice in 0.. {
            let ports = free_ports();
            let log = dir.join(format!("{name}-{choice}.log"));
            let mut command = Command::new(binary(name));
            command.args(arguments(ports)).stdin(Stdio::null());
            let mut process = Self {
                child: Self::spawn(&mut command, &log),
                command,
                log,
            };
            match process.ready(&url(ports)).await {
                Ok(()) => return (process, ports),
                Err(_) if choice < PORT_CHOICES && process.log().contains("already in use") => {}
                Err(why) => panic!("{name}: {why}"),
            }
        }
        unreachable!("the loop ends only by returning")
    }

    fn spawn(command: &mut Command, log: &Path) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let errors = log.try_clone().unwrap();
        command.stdout(log).stderr(errors).spawn().unwrap()
    }

    /// Starts it again on the same ports and waits until its URL answers.
    async fn start_again(&mut self, url: &str) {
        self.stop();
        self.child = Self::spawn(&mut self.command, &self.log);
        self.ready(url).await.unwrap();
    }

    /// Waits until the URL answers with 200, or with 404 if the server has no page there.
    async fn ready(&mut self, url: &str) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Err(format!("ended before it was ready: {status}"));
            }
            let answer = client().get(url).send().await.map(|answer| answer.status());
            if answer.is_ok_and(|code| [StatusCode::OK, StatusCode::NOT_FOUND].contains(&code)) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("not ready within {PATIENCE:?}: no 200 from {url}"))
    }

    /// Kills it and waits until it is gone.
    fn stop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns everything that it has printed.
    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("{:?} printed at last:\n{}", self.command, tail(&self.log));
        }
    }
}
