//! The image's final stage, built from its Dockerfile and run as a pod runs it: read-only, without capabilities, with little memory.
//! `deploy/image/build.sh`, which the first stage runs, has compiled the program beforehand.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::organization;
use crate::support::binary::{KEY, Scrape};
use crate::support::files::{file, path};
use crate::support::parts::{client, free_ports, output, run, until};

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

/// What runs the image with the rights of a restricted pod.
const RESTRICTED: &str = "run --detach --name=exporter --read-only --cap-drop=ALL --security-opt=no-new-privileges --memory=64m \
                          --network=host --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024";

/// The image in a store of its own.
struct Image {
    store: TempDir,
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
        let (file, built, revision) = (file.display(), built.display(), &*REVISION);
        image.buildah(&format!(
            "bud --isolation=chroot --format=docker --build-arg=REVISION={revision} --build-arg=SOURCE={SOURCE} -t {NAME} -f {file} {built}"
        ));
        image
    }

    /// Runs buildah or podman on this store.
    fn run(&self, program: &str, words: &str) -> Result<String, String> {
        let mut command = Command::new(program);
        for (option, name) in [("--root", "root"), ("--runroot", "run")] {
            command.arg(option).arg(self.store.path().join(name));
        }
        command.arg("--storage-driver=vfs");
        if program == "podman" {
            command.args(["--runtime=runc", "--cgroup-manager=cgroupfs"]);
        }
        let said = output(command.args(words.split_whitespace()), "");
        said.map(|said| said.trim().to_owned())
    }

    #[track_caller]
    fn buildah(&self, words: &str) -> String {
        self.run("buildah", words).expect(words)
    }

    #[track_caller]
    fn podman(&self, words: &str) -> String {
        self.run("podman", words).expect(words)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let remove = "rm --force --ignore --volumes --time=0 exporter";
        let _ = self.run("podman", remove);
    }
}

#[test]
#[ignore = "needs hadolint"]
fn the_linter_has_no_remark_on_the_dockerfile() {
    run("hadolint", &["deploy/image/Dockerfile"], "").unwrap();
}

#[tokio::test]
#[ignore = "needs buildah and the image's program"]
async fn the_image_holds_the_program_certificates_and_licences_and_nothing_else() {
    let image = Image::build();
    let container = image.buildah(&format!("from {NAME}"));
    let tree = PathBuf::from(image.buildah(&format!("mount {container}")));
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

    let inspected = image.podman(&format!("inspect {NAME}"));
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    let config = &inspected[0]["Config"];
    for (label, value) in [
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", REVISION.as_str()),
        ("source", SOURCE),
    ] {
        let name = format!("org.opencontainers.image.{label}");
        assert_eq!(config["Labels"][name], value, "{label}");
    }
    assert_eq!(config["User"], "65532:65532");
    let check = ["HealthCheck", "Healthcheck"].map(|key| &inspected[0][key]["Test"][1]);
    assert!(check.iter().any(|word| **word == "orgdata-exporter"));
}

#[tokio::test]
#[ignore = "needs buildah, podman and the image's program"]
async fn it_runs_read_only_without_capabilities_and_keeps_its_state_on_a_volume() {
    let image = Image::build();
    let simulator = organization(1, 0).await;
    simulator.set_rate(50.0);
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("key"), KEY).unwrap();
    // Readable by everybody, as a Secret is mounted.
    let mut chmod = Command::new("chmod");
    output(chmod.args(["-R", "a+rX"]).arg(secrets.path()), "").unwrap();
    let (secrets, url, [port]) = (secrets.path().display(), simulator.base_url(), free_ports());
    let start = format!(
        "{RESTRICTED} --volume={secrets}:/run/secrets:ro --volume=orgdata-state:/var/lib/orgdata-exporter
        --env=ORGDATA_WEB_LISTEN_ADDRESS=127.0.0.1:{port} {NAME} --api.base-url={url} --api.key-file=/run/secrets/key
        --audit.poll-interval=200ms --metrics.zero-hold=0"
    );
    // Scrapes it until it has counted an event.
    let scraped = async || {
        let counted = async || {
            let page = client().get(format!("http://127.0.0.1:{port}/metrics"));
            let answer = page.send().await.map_err(|error| error.to_string())?;
            let scrape = Scrape(answer.text().await.map_err(|error| error.to_string())?);
            let is_some = scrape.sum("orgdata_audit_events_total") > 0.0;
            is_some.then_some(scrape.clone()).ok_or(scrape.0)
        };
        until(counted).await
    };
    image.podman(&start);
    let before = scraped().await;
    let revision = format!("revision=\"{}\"", *REVISION);
    let is_this = before.0.contains(&revision);
    assert!(is_this, "another build: run deploy/image/build.sh again");
    // In the working directory, which is the volume.
    image.podman("exec exporter orgdata-exporter dead-letters list");
    image.podman("exec exporter orgdata-exporter healthcheck");
    // Ends it cleanly.
    image.podman("kill --signal=TERM exporter");
    assert_eq!(image.podman("wait exporter"), "0");
    image.podman("rm exporter");

    // The counters go on in another container with the same volume.
    image.podman(&start);
    let [before, after] =
        [before, scraped().await].map(|scrape| scrape.sum("orgdata_audit_events_total"));
    assert!(after >= before, "{before}, then {after}");
}
