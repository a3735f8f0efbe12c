//! The image's final stage, built from its Dockerfile and run as a pod runs it: read-only, without capabilities, with little memory.
//! `deploy/image/build.sh`, which the first stage runs, has compiled the program beforehand.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::binary::{KEY, Scrape};
use crate::support::files::{file, path};
use crate::support::parts::{client, free_ports, output, tool, until};

const NAME: &str = "localhost/orgdata-exporter:test";

const SOURCE: &str = "https://example.com/orgdata-exporter";

/// The maximum size of the program in the image, in bytes.
const BINARY: u64 = 12 * 1024 * 1024;

/// The commit that the program reports.
static REVISION: LazyLock<String> = LazyLock::new(|| {
    let mut git = Command::new("git");
    let revision = output(git.args(["rev-parse", "--short=12", "HEAD"]), "");
    revision.unwrap().trim().to_owned()
});

/// The image in a store of its own.
struct Image {
    store: TempDir,
}

/// A running container, removed when it is dropped.
struct Container<'a> {
    image: &'a Image,
    name: String,
}

impl Image {
    fn build() -> Self {
        let built = path("target/image");
        assert!(built.is_dir(), "run deploy/image/build.sh first");
        // The last stage alone: what it copies from the first one is in the context.
        let dockerfile = file("deploy/image/Dockerfile");
        let last = &dockerfile[dockerfile.find("FROM scratch").unwrap()..];
        let copies = |from: &str| last.matches(from).count();
        assert_eq!(copies("COPY "), copies("COPY --from=build "), "{last}");
        let last = last.replace("--from=build ", "").replace(" /out/", " ");
        let image = Self {
            store: tempfile::tempdir().unwrap(),
        };
        let file = image.store.path().join("Dockerfile");
        std::fs::write(&file, last).unwrap();
        let (file, built) = (file.display().to_string(), built.display().to_string());
        let revision = format!("--build-arg=REVISION={}", *REVISION);
        let source = format!("--build-arg=SOURCE={SOURCE}");
        let arguments = ["bud", "--isolation=chroot", "--format=docker", &revision];
        let more = [&source, "-t", NAME, "-f", &file, &built];
        image.run("buildah", &[&arguments[..], &more].concat());
        image
    }

    /// Returns buildah or podman on this store.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, name) in [("--root", "root"), ("--runroot", "run")] {
            command.arg(option).arg(self.store.path().join(name));
        }
        command.arg("--storage-driver=vfs");
        if program == "podman" {
            command.args(["--runtime=runc", "--cgroup-manager=cgroupfs"]);
        }
        command
    }

    /// Runs buildah or podman, which has to succeed, and returns its output.
    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let said = output(self.command(program).args(arguments), "");
        let said = said.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        said.trim().to_owned()
    }

    /// Starts a container with the rights of a restricted pod; `options` come before the image.
    fn start(&self, options: &[&str], arguments: &[&str]) -> Container<'_> {
        let [number] = free_ports();
        let name = format!("orgdata-{}-{number}", std::process::id());
        let restricted = "run --detach --read-only --cap-drop=ALL --security-opt=no-new-privileges --memory=64m \
                          --network=host --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 --name";
        let restricted: Vec<&str> = restricted.split_whitespace().collect();
        let arguments = [options, &[NAME], arguments].concat();
        let arguments = [&restricted, &[name.as_str()][..], &arguments].concat();
        self.run("podman", &arguments);
        Container { image: self, name }
    }
}

impl Container<'_> {
    /// Runs podman on it and returns the output.
    fn podman(&self, arguments: &[&str]) -> String {
        let arguments = [arguments, &[self.name.as_str()]].concat();
        self.image.run("podman", &arguments)
    }

    /// Runs a program inside it.
    fn exec(&self, words: &[&str]) -> Result<String, String> {
        let mut exec = self.image.command("podman");
        output(exec.args(["exec", &self.name]).args(words), "")
    }

    /// Scrapes it until the scrape contains `part`.
    async fn scrape(&self, port: u16, part: &str) -> Scrape {
        until(async || {
            let page = client().get(format!("http://127.0.0.1:{port}/metrics"));
            let answer = page.send().await.map_err(|error| error.to_string())?;
            let scrape = answer.text().await.map_err(|error| error.to_string())?;
            match scrape.contains(part) {
                true => Ok(Scrape(scrape)),
                false => Err(format!("{part} in {scrape}")),
            }
        })
        .await
    }

    fn assert_healthy(&self, healthy: bool) {
        let check = self.exec(&["orgdata-exporter", "healthcheck", "--timeout=2s"]);
        assert_eq!(check.is_ok(), healthy, "{check:?}");
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut podman = self.image.command("podman");
        let remove = ["rm", "--force", "--volumes", "--time=0", &self.name];
        let _ = podman.args(remove).output();
    }
}

#[test]
#[ignore = "needs hadolint"]
fn the_linter_has_no_remark_on_the_dockerfile() {
    tool("hadolint", &["deploy/image/Dockerfile"]).unwrap();
}

#[tokio::test]
#[ignore = "needs buildah and the image's program"]
async fn the_image_holds_the_program_certificates_and_licences_and_nothing_else() {
    let image = Image::build();
    let container = image.run("buildah", &["from", NAME]);
    let tree = PathBuf::from(image.run("buildah", &["mount", &container]));
    let mut find = Command::new("find");
    let files = output(find.arg(&tree).args(["-type", "f", "-printf", "%P\n"]), "").unwrap();
    let wanted = [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/local/bin/orgdata-exporter",
        "usr/share/licenses/orgdata-exporter/LICENSE",
        "usr/share/licenses/orgdata-exporter/THIRD-PARTY",
        "usr/share/doc/orgdata-exporter/provenance.json",
        "usr/share/doc/orgdata-exporter/sbom.cdx.json",
    ];
    assert_eq!(files.lines().collect::<BTreeSet<_>>(), wanted.into());

    let binary = std::fs::read(tree.join(wanted[1])).unwrap();
    let mut readelf = Command::new("readelf");
    let headers = output(readelf.arg("-l").arg(tree.join(wanted[1])), "").unwrap();
    let is_static = headers.contains("LOAD") && !headers.contains("INTERP");
    assert!(is_static, "{headers}");
    assert!(binary.len() as u64 <= BINARY, "{} bytes", binary.len());
    let home = format!("{}/.cargo", std::env::var("HOME").unwrap());
    for place in [env!("CARGO_MANIFEST_DIR"), &home] {
        let mut windows = binary.windows(place.len());
        let is_clean = windows.all(|bytes| bytes != place.as_bytes());
        assert!(is_clean, "{place} is in the binary");
    }
    let licences = std::fs::read_to_string(tree.join(wanted[3])).unwrap();
    let parts = "\nrustls 0.|\nring 0.|\nmusl\n|\nSQLite\n|Permission is hereby granted";
    for part in parts.split('|') {
        assert!(licences.contains(part), "{part}");
    }
    assert!(!licences.contains("\nproptest "), "tests are not shipped");

    let inspected = image.run("podman", &["inspect", NAME]);
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    let config = &inspected[0]["Config"];
    for (label, value) in [
        ("title", "orgdata-exporter"),
        ("licenses", "Apache-2.0"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", REVISION.as_str()),
        ("created", "1970-01-01T00:00:00Z"),
        ("source", SOURCE),
        ("url", SOURCE),
        ("base.name", "scratch"),
    ] {
        let name = format!("org.opencontainers.image.{label}");
        assert_eq!(config["Labels"][name], value, "{label}");
    }
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["WorkingDir"], "/var/lib/orgdata-exporter");
    let check = ["HealthCheck", "Healthcheck"].map(|key| &inspected[0][key]["Test"][1]);
    assert!(check.contains(&&json!("orgdata-exporter")), "{check:?}");
}

#[tokio::test]
#[ignore = "needs buildah, podman and the image's program"]
async fn it_runs_read_only_without_capabilities_and_keeps_its_state_on_a_volume() {
    let image = Image::build();
    let [upstream, port] = free_ports();
    let listen = format!("--listen=127.0.0.1:{upstream}");
    let simulator = image.start(&[], &["simulate", &listen, "--rate=50"]);
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("key"), KEY).unwrap();
    // Readable by everybody, as a Secret is mounted.
    let mut chmod = Command::new("chmod");
    output(chmod.args(["-R", "a+rX"]).arg(secrets.path()), "").unwrap();
    let secret = format!("--volume={}:/run/secrets:ro", secrets.path().display());
    let listen = format!("--env=ORGDATA_WEB_LISTEN_ADDRESS=127.0.0.1:{port}");
    let volume = "--volume=orgdata-state:/var/lib/orgdata-exporter";
    let options = [&secret, &listen, volume];
    let base_url = format!("--api.base-url=http://127.0.0.1:{upstream}");
    let key = "--api.key-file=/run/secrets/key";
    let quick = ["--audit.poll-interval=200ms", "--metrics.zero-hold=0"];
    let arguments = [&base_url, key, quick[0], quick[1]];
    let first = image.start(&options, &arguments);
    let scrape = first.scrape(port, "orgdata_audit_events_total{").await;
    let revision = format!("revision=\"{}\"", *REVISION);
    let is_this = scrape.0.contains(&revision);
    assert!(is_this, "another build: run deploy/image/build.sh again");
    let before = scrape.sum("orgdata_audit_events_total");
    let list = first.exec(&["orgdata-exporter", "dead-letters", "list"]);
    list.unwrap();
    first.assert_healthy(true);
    first.podman(&["kill", "--signal=STOP"]);
    first.assert_healthy(false);
    first.podman(&["kill", "--signal=CONT"]);
    first.assert_healthy(true);
    // Ends it cleanly.
    first.podman(&["kill", "--signal=TERM"]);
    assert_eq!(first.podman(&["wait"]), "0");
    drop(first);

    // The counters go on in another container with the same volume.
    let second = image.start(&options, &arguments);
    let scrape = second.scrape(port, "orgdata_audit_events_total{").await;
    let after = scrape.sum("orgdata_audit_events_total");
    assert!(after >= before && before > 0.0, "{before}, then {after}");
    drop((second, simulator));
    image.run("podman", &["volume", "rm", "orgdata-state"]);
}
