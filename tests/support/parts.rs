//! The programs that `.ci/setup` installs. A server listens on loopback on ports that the kernel chose, works in a temporary directory and is
//! killed when its value is dropped. When a test panics, the end of each server's output is printed.
//!
//! `ORGDATA_REAL_PARTS` names another directory than `target/real-parts/bin`.

mod collector;
mod prometheus;

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::binary::Lines;
use super::files::path;

pub(crate) use super::binary::{client, until_ok as until};

pub(crate) use collector::{Collector, VictoriaLogs};
pub(crate) use prometheus::{Prometheus, number};

/// Another process can take a port between its choice and its use; then other ports are chosen.
const PORT_CHOICES: usize = 5;

struct Process {
    command: Command,
    child: Child,
    log: Lines,
}

/// Returns the path of an installed program.
pub(crate) fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("ORGDATA_REAL_PARTS");
    let directory = directory.map_or_else(|| path("target/real-parts/bin"), PathBuf::from);
    let program = directory.join(name);
    assert!(program.is_file(), "{program:?}: run .ci/setup first");
    program
}

/// Runs an installed program in the repository with this standard input. The error is everything that it printed.
pub(crate) fn run(name: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(binary(name));
    let result = output(command.args(arguments), input);
    result.map_err(|error| format!("{name} {arguments:?}: {error}"))
}

/// Runs the promtool of the oldest supported Prometheus and the current one; both must accept the input, which is `/dev/stdin`.
#[track_caller]
pub(crate) fn promtool(arguments: &[&str], input: &str) {
    for program in ["promtool", "promtool3"] {
        run(program, arguments, input).expect("no remark");
    }
}

/// Runs a command in the repository with this standard input and returns its output. The error is everything that it printed.
pub(crate) fn output(command: &mut Command, input: &str) -> Result<String, String> {
    let command = command.current_dir(path("")).stdin(Stdio::piped());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that does not read all of it is judged by its exit status.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    });
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match output.status.success() {
        true => Ok(out),
        false => Err(format!("{}\n{out}{err}", output.status)),
    }
}

/// Returns loopback ports that are free at the moment, all different.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let bind = |_| TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listeners: [TcpListener; N] = std::array::from_fn(bind);
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Process {
    /// Starts a server on free ports and waits until its URL answers.
    async fn start<const N: usize>(
        name: &str,
        arguments: impl Fn([u16; N]) -> Vec<String>,
        url: impl Fn([u16; N]) -> String,
    ) -> (Self, [u16; N]) {
        for choice in 0.. {
            let ports = free_ports();
            let log = Lines::default();
            let mut command = Command::new(binary(name));
            command.args(arguments(ports)).stdin(Stdio::null());
            let child = command.stdout(log.file()).stderr(log.file()).spawn();
            let mut process = Self {
                child: child.unwrap(),
                command,
                log,
            };
            if process.is_ready(&url(ports)).await {
                return (process, ports);
            }
            let is_taken = process.log.text().contains("already in use");
            assert!(choice < PORT_CHOICES && is_taken, "{name} ended");
        }
        unreachable!("the loop ends only by returning")
    }

    /// Starts it again on the same ports and waits until its URL answers.
    async fn start_again(&mut self, url: &str) {
        self.stop();
        self.child = self.command.spawn().unwrap();
        assert!(self.is_ready(url).await, "it ended");
    }

    /// Waits until the URL answers with 200, or with 404 if the server has no page there; or until the process has ended.
    async fn is_ready(&mut self, url: &str) -> bool {
        until(async || {
            if self.child.try_wait().unwrap().is_some() {
                return Ok(false);
            }
            let answer = client().get(url).send().await;
            let status = answer.map(|answer| answer.status().as_u16());
            match status {
                Ok(200 | 404) => Ok(true),
                other => Err(format!("{url}: {other:?}")),
            }
        })
        .await
    }

    fn stop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let last = self.log.tail();
            eprintln!("{:?} printed at last:\n{last}", self.command);
        }
    }
}
