//! The image's final stage, built from its Dockerfile, and run as a pod would run it: read-only, without capabilities, with little
//! memory. The program in it is compiled beforehand, by the script that the Dockerfile's first stage runs.

// A test fails by panicking, also in its helpers.

use crate::support::binary;
use crate::support::parts;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use binary::{client, until};
use serde_json::Value;
use tempfile::TempDir;

const NAME: &str = "localhost/orgdata-exporter:test";

/// Largest size of the program in the image, in bytes.
const BINARY: u64 = 12 * 1024 * 1024;

/// The image, in a store of its own, which goes with it.
struct Image {
    store: TempDir,
}

/// What the Dockerfile's first stage makes, made beforehand.
fn files() -> PathBuf {
    let files = root().join("target/image");
    let program = files.join("usr/local/bin/orgdata-exporter");
    assert!(
        program.is_file(),
        "{} is missing: run deploy/image/build.sh amd64 target/image",
        program.display()
    );
    files
}

/// The commit that the program says it is built from.
static REVISION: LazyLock<String> = LazyLock::new(|| {
    succeed(
        Command::new("git")
            .args(["rev-parse", "--short=12", "HEAD"])
            .current_dir(root()),
    )
});

/// A running container, removed when it is dropped.
struct Container<'a> {
    image: &'a Image,
    name: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end, which has to be a good one.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}{err}",
        output.status
    );
    out.trim().to_owned()
}

/// A port that is free now.
fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

// === impl Image ===

impl Image {
    fn build() -> Self {
        // The last stage alone: what it takes from the first one lies in the context.
        let dockerfile = std::fs::read_to_string(root().join("deploy/image/Dockerfile")).unwrap();
        let last = &dockerfile[dockerfile.find("FROM scratch").expect("the last stage")..];
        assert_eq!(
            last.matches("COPY ").count(),
            last.matches("COPY --from=build ").count(),
            "{last}"
        );
        let last = last.replace("--from=build ", "").replace(" /out/", " ");
        let store = tempfile::tempdir().unwrap();
        let file = store.path().join("Dockerfile");
        std::fs::write(&file, last).unwrap();
        let image = Self { store };
        let revision = format!("REVISION={}", *REVISION);
        let mut bud = image.command("buildah");
        bud.args([
            "bud",
            "--isolation",
            "chroot",
            "--format",
            "docker",
            "--build-arg",
            &revision,
            "-t",
            NAME,
            "-f",
        ]);
        succeed(bud.arg(file).arg(files()));
        image
    }

    /// buildah or podman on this store.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let store = self.store.path();
        command
            .arg("--root")
            .arg(store.join("root"))
            .arg("--runroot")
            .arg(store.join("run"))
            .args(["--storage-driver", "vfs"]);
        if program == "podman" {
            command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
        }
        command
    }

    /// Starts a container with the rights that a restricted pod has; `options` come before the image.
    fn run(&self, options: &[&str], arguments: &[&str]) -> Container<'_> {
        let name = format!("orgdata-{}-{}", std::process::id(), free());
        let mut run = self.command("podman");
        run.args([
            "run",
            "--detach",
            "--name",
            &name,
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
        ]);
        // A port on this machine's loopback, for the test to ask.
        run.args([
            "--network",
            "host",
            "--memory",
            "64m",
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ]);
        succeed(run.args(options).arg(NAME).args(arguments));
        Container { image: self, name }
    }
}

// === impl Container ===

impl Container<'_> {
    /// Runs a program inside of it.
    fn exec(&self, words: &[&str]) -> Output {
        let mut exec = self.image.command("podman");
        exec.args(["exec", &self.name])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn log(&self) -> String {
        let output = self
            .image
            .command("podman")
            .args(["logs", &self.name])
            .output()
            .unwrap();
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    }

    fn inspect(&self, format: &str) -> String {
        succeed(
            self.image
                .command("podman")
                .args(["inspect", "--format", format, &self.name]),
        )
    }

    fn process(&self) -> String {
        self.inspect("{{.State.Pid}}")
    }

    fn signal(&self, name: &str) {
        succeed(
            self.image
                .command("podman")
                .args(["kill", "--signal", name, &self.name]),
        );
    }

    /// A scrape that has this in it.
    async fn scrape(&self, port: u16, part: &str) -> String {
        let what = format!(
            "{part} in a scrape of {}; it said:\n{}",
            self.name,
            self.log()
        );
        until(&what, async || {
            let text = client()
                .get(format!("http://127.0.0.1:{port}/metrics"))
                .send()
                .await
                .ok()?
                .text()
                .await
                .ok()?;
            text.contains(part).then_some(text)
        })
        .await
    }

    fn assert_healthcheck(&self, status: i32) {
        let output = self.exec(&["orgdata-exporter", "healthcheck", "--timeout=2s"]);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{output:?}\n{}",
            self.log()
        );
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self
            .image
            .command("podman")
            .args(["rm", "--force", "--volumes", "--time", "0", &self.name])
            .output();
    }
}

/// The ELF header and program headers: whether somebody else has to load it.
fn assert_static(binary: &[u8]) {
    assert_eq!(
        binary[..5],
        [0x7f, b'E', b'L', b'F', 2],
        "a 64-bit ELF file"
    );
    let number = |at: usize, bytes: usize| {
        binary[at..at + bytes]
            .iter()
            .rev()
            .fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (offset, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    assert!(count > 0);
    for header in 0..count {
        assert_ne!(
            number(offset + header * size, 4),
            3,
            "it asks for an interpreter"
        );
    }
}

#[test]
#[ignore = "needs hadolint"]
fn the_linter_finds_nothing_in_the_dockerfile() {
    parts::tool("hadolint", &["deploy/image/Dockerfile"]).unwrap();
}

#[tokio::test]
#[ignore = "needs buildah and the image's program"]
async fn the_image_holds_the_program_certificates_and_licences_and_nothing_else() {
    let image = Image::build();
    let mut mount = image.command("buildah");
    let container = succeed(mount.args(["from", NAME]));
    let tree = PathBuf::from(succeed(
        image.command("buildah").args(["mount", &container]),
    ));
    let files = succeed(
        Command::new("find")
            .arg(".")
            .args(["-type", "f"])
            .current_dir(&tree),
    );
    let files: BTreeSet<&str> = files.lines().collect();
    let wanted = [
        "./etc/ssl/certs/ca-certificates.crt",
        "./usr/local/bin/orgdata-exporter",
        "./usr/share/licenses/orgdata-exporter/LICENSE",
        "./usr/share/licenses/orgdata-exporter/THIRD-PARTY",
    ];
    assert_eq!(files, BTreeSet::from(wanted));

    let binary = std::fs::read(tree.join(wanted[1])).unwrap();
    assert_static(&binary);
    assert!(binary.len() as u64 <= BINARY, "{} bytes", binary.len());
    let home = std::env::var("HOME").unwrap();
    for path in [root().to_str().unwrap(), &format!("{home}/.cargo")] {
        assert!(
            !binary
                .windows(path.len())
                .any(|bytes| bytes == path.as_bytes()),
            "{path} is in the binary"
        );
    }
    let licences = std::fs::read_to_string(tree.join(wanted[3])).unwrap();
    for part in [
        "\nrustls 0.",
        "\nring 0.",
        "\nrusqlite 0.",
        "\nmusl\n",
        "\nSQLite\n",
        "ISC",
        "Permission is hereby granted",
    ] {
        assert!(licences.contains(part), "{part:?}");
    }
    assert!(!licences.contains("\nproptest "), "tests are not shipped");

    let inspected: Value =
        serde_json::from_str(&succeed(image.command("podman").args(["inspect", NAME]))).unwrap();
    let (config, labels) = (&inspected[0]["Config"], &inspected[0]["Config"]["Labels"]);
    for (label, value) in [
        ("title", "orgdata-exporter"),
        ("licenses", "Apache-2.0"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", REVISION.as_str()),
        ("created", "1970-01-01T00:00:00Z"),
    ] {
        assert_eq!(
            labels[format!("org.opencontainers.image.{label}")],
            value,
            "{label}"
        );
    }
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["WorkingDir"], "/var/lib/orgdata-exporter");
    assert_eq!(
        inspected[0]["HealthCheck"]
            .as_object()
            .or(inspected[0]["Healthcheck"].as_object())
            .unwrap()["Test"][1],
        "orgdata-exporter"
    );
}

#[tokio::test]
#[ignore = "needs buildah, podman and the image's program"]
async fn it_runs_read_only_without_capabilities_and_is_scraped() {
    let image = Image::build();
    let port = free();
    let demo = image.run(
        &[
            "--env",
            &format!("ORGDATA_WEB_LISTEN_ADDRESS=127.0.0.1:{port}"),
        ],
        &["demo"],
    );
    let scrape = demo.scrape(port, "orgdata_up{loop=\"tickets\"} 1").await;
    assert!(
        scrape.contains(&format!("revision=\"{}\"", *REVISION)),
        "another build: run deploy/image/build.sh anew"
    );

    let status = std::fs::read_to_string(format!("/proc/{}/status", demo.process())).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert_eq!(field("Uid:"), ["65532"; 4]);
    assert_eq!(field("Gid:"), ["65532"; 4]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(
        demo.inspect("{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Memory}}"),
        "true 67108864"
    );

    demo.assert_healthcheck(0);
    for shell in ["sh", "/bin/sh", "/bin/busybox"] {
        assert!(
            !demo.exec(&[shell, "-c", "true"]).status.success(),
            "{shell}"
        );
    }
    demo.signal("STOP");
    demo.assert_healthcheck(1);
    demo.signal("CONT");
    demo.assert_healthcheck(0);
    demo.signal("TERM");
    assert_eq!(
        succeed(image.command("podman").args(["wait", &demo.name])),
        "0"
    );
}

#[tokio::test]
#[ignore = "needs buildah, podman and the image's program"]
async fn a_real_configuration_keeps_its_state_on_a_volume() {
    let image = Image::build();
    let (upstream, port) = (free(), free());
    let simulator = image.run(
        &[],
        &[
            "simulate",
            "--listen",
            &format!("127.0.0.1:{upstream}"),
            "--rate=50",
        ],
    );
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("key"), binary::KEY).unwrap();
    // For everybody to read, as a Secret is mounted.
    succeed(
        Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(secrets.path()),
    );
    let volume = format!("{}:/run/secrets:ro", secrets.path().display());
    let listen = format!("ORGDATA_WEB_LISTEN_ADDRESS=127.0.0.1:{port}");
    let options = [
        "--volume",
        &volume,
        "--volume",
        "orgdata-state:/var/lib/orgdata-exporter",
        "--env",
        &listen,
    ];
    let base_url = format!("--api.base-url=http://127.0.0.1:{upstream}");
    let arguments = [
        &base_url,
        "--api.key-file=/run/secrets/key",
        "--audit.poll-interval=200ms",
        "--metrics.zero-hold=0",
    ];
    let counted = |scrape: &str| -> f64 {
        let lines = scrape
            .lines()
            .filter(|line| line.starts_with("orgdata_audit_events_total{"));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };

    let first = image.run(&options, &arguments);
    first.scrape(port, "orgdata_up{loop=\"audit\"} 1").await;
    let before = until("events", async || {
        Some(counted(
            &first.scrape(port, "orgdata_audit_events_total{").await,
        ))
        .filter(|sum| *sum > 0.0)
    })
    .await;
    first.assert_healthcheck(0);
    let letters = first.exec(&["orgdata-exporter", "dead-letters", "list"]);
    assert!(letters.status.success(), "{letters:?}");
    first.signal("TERM");
    assert_eq!(
        succeed(image.command("podman").args(["wait", &first.name])),
        "0",
        "{}",
        first.log()
    );
    drop(first);

    // Another container, the same volume: the counters go on.
    let second = image.run(&options, &arguments);
    let after = counted(&second.scrape(port, "orgdata_audit_events_total{").await);
    assert!(after >= before, "{before}, then {after}:\n{}", second.log());
    drop((second, simulator));
    succeed(
        image
            .command("podman")
            .args(["volume", "rm", "orgdata-state"]),
    );
}
