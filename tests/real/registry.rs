//! Debian's registry for images and charts, on a port of loopback that the kernel chooses.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

/// A registry without TLS, killed when it is dropped.
pub(crate) struct Registry {
    pub(crate) address: String,
    process: Child,
    _store: TempDir,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let store = tempfile::tempdir().unwrap();
        let config = store.path().join("config.yml");
        let about = json!({
            "version": "0.1",
            "log": { "fields": {} },
            "storage": { "filesystem": { "rootdirectory": store.path().join("data") } },
            "http": { "addr": "127.0.0.1:0" },
        });
        // JSON is YAML.
        fs::write(&config, about.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).stdin(Stdio::null());
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("run .ci/setup first");
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = log.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split('"').next()?.to_owned())
        });
        // It would end if nobody read its log.
        std::thread::spawn(move || log.for_each(drop));
        Self {
            address: address.expect("the registry ended"),
            process,
            _store: store,
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
