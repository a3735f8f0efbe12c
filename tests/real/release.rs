//! The shell steps of the release workflow, with what they make. Pushing and publishing are recorded, not done.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use crate::support::files::{array, file, path, text, yaml};
use crate::support::parts::{binary, output, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn sh(script: &str) -> String {
    let mut command = Command::new("bash");
    output(command.args(["-euo", "pipefail", "-c", script]), "")
        .unwrap_or_else(|e| panic!("{script}: {e}"))
}

/// Installs a package in an empty root, where the service would have created its state, and removes it again.
///
/// The unit stands for the user and the state directory: systemd creates both when the service starts.
fn assert_installs_and_leaves_only_the_state(root: &str, setup: &str, install: &str, remove: &str) {
    let files = "find . ! -type d ! -path './var/lib/dpkg/*' ! -path './rpmdb/*'; find . -type d -name orgdata-exporter";
    let list = format!("cd {root}; export LC_ALL=C; {{ {files}; }} | sort");
    sh(&format!("mkdir -p {root}; cd {root}; {setup}"));
    let before = sh(&list);
    sh(&format!("cd {root}; {install}"));
    // The unit starts the installed program with the installed settings.
    sh(&format!(
        "cd {root}; usr/bin/orgdata-exporter --version; test -s etc/orgdata-exporter/orgdata-exporter.env
        grep -qx ExecStart=/usr/bin/orgdata-exporter usr/lib/systemd/system/orgdata-exporter.service
        mkdir -p var/lib/orgdata-exporter; echo state >var/lib/orgdata-exporter/state.db; {remove}"
    ));
    let after = sh(&list);
    let is_new = |line: &&str| !before.lines().any(|other| other == *line);
    let left: Vec<&str> = after.lines().filter(is_new).collect();
    let state = "./var/lib/orgdata-exporter";
    assert_eq!(left, [state, &format!("{state}/state.db")]);
}

#[test]
#[ignore = "needs helm, dpkg, rpm and the image's program"]
fn a_tag_makes_archives_packages_chart_checksums_and_image() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let (out, calls, temp) = (place("release"), place("calls"), place(""));
    fs::create_dir(place("bin")).unwrap();
    let helm = binary("helm").display().to_string();
    let digest = format!("sha256:{}", "0".repeat(64));
    for (name, answer) in [
        ("cosign", String::new()),
        ("gh", String::new()),
        (
            "docker",
            format!(
                "for word; do case $word in --metadata-file=*)
                    echo '{{\"containerimage.digest\": \"{digest}\"}}' >\"${{word#*=}}\" ;; esac; done"
            ),
        ),
        (
            "helm",
            format!("case $1 in push) echo Digest: {digest} >&2 ;; package) {helm} \"$@\" ;; esac"),
        ),
    ] {
        let script = format!("#!/bin/sh\necho {name} \"$@\" >>{calls}\n{answer}\n");
        fs::write(place(&format!("bin/{name}")), script).unwrap();
    }
    sh(&format!("chmod +x {}/*", place("bin")));
    let changelog =
        file("CHANGELOG.md").replace("[Unreleased]", &format!("[{VERSION}] - 2026-01-31"));
    fs::write(place("CHANGELOG.md"), changelog).unwrap();
    for name in ["deploy", "Cargo.toml"] {
        symlink(path(name), place(name)).unwrap();
    }
    let arch = sh("dpkg --print-architecture").trim().to_owned();
    let (bin, built) = (place("bin"), place("built"));
    let export = format!(
        "export PATH='{bin}':\"$PATH\" BUILT='{built}' OUT='{out}' ARCH={arch}
        export IMAGE=registry.example.com/Orgdata-Exporter SOURCE=https://example.com/orgdata-exporter
        export CHARTS=registry.example.com/Orgdata-Exporter/charts RUNNER_TEMP='{temp}' GITHUB_OUTPUT='{temp}/output'
        export GITHUB_REF_NAME=v{VERSION} GITHUB_ACTOR=someone ORGDATA_BUILDER=urn:example TOKEN=secret\n"
    );
    let workflow = yaml(".github/workflows/release.yaml");
    for job in ["program", "packages", "image", "chart", "release"] {
        for step in array(&workflow["jobs"][job]["steps"]) {
            let run = text(&step["run"]);
            // The section of the version is written when it is released.
            let at = match run.contains("CHANGELOG.md") {
                true => dir.path().to_owned(),
                false => path(""),
            };
            // Another revision would compile the program again.
            let revision = match job {
                "image" => "export ORGDATA_BUILD_REVISION=abc",
                _ => "",
            };
            sh(&format!("{export}{revision}\ncd {}\n{run}", at.display()));
        }
    }

    let name = format!("orgdata-exporter-{VERSION}-linux-{arch}");
    let package = format!("orgdata-exporter_{VERSION}_{arch}.deb");
    let cpu = std::env::consts::ARCH;
    let rpm = format!("orgdata-exporter-{VERSION}-1.{cpu}.rpm");
    let wanted = [
        &*format!("orgdata-exporter-{VERSION}.tgz"),
        &format!("{name}.provenance.json"),
        &format!("{name}.sbom.cdx.json"),
        &format!("{name}.tar.gz"),
        &package,
        &rpm,
        "SHA256SUMS",
    ];
    let made = sh(&format!("ls {out}"));
    let made: BTreeSet<&str> = made.lines().collect();
    assert_eq!(made, wanted.into());
    let calls = fs::read_to_string(calls).unwrap();
    for call in [
        "--platform linux/amd64,linux/arm64 --push",
        &format!("cosign sign --yes registry.example.com/orgdata-exporter@{digest}\n"),
        "oci://registry.example.com/orgdata-exporter/charts\n",
        &format!(
            "cosign sign --yes registry.example.com/orgdata-exporter/charts/orgdata-exporter@{digest}\n"
        ),
    ] {
        assert!(calls.contains(call), "{call}: {calls}");
    }
    let published = calls.lines().last().unwrap();
    let is_whole = wanted.iter().all(|name| published.contains(name));
    assert!(is_whole, "{published}");

    sh(&format!(
        "dpkg-deb --extract {out}/{package} {out}/deb && mkdir {out}/tar && tar -xzf {out}/{name}.tar.gz -C {out}/tar"
    ));
    sh(&format!(
        "cd {out}/deb/usr/share; test -s bash-completion/completions/orgdata-exporter; test -s man/man1/orgdata-exporter-check.1.gz"
    ));

    assert_installs_and_leaves_only_the_state(
        &place("debian"),
        "mkdir -p var/lib/dpkg/updates var/lib/dpkg/info; touch var/lib/dpkg/status",
        &format!("dpkg --root=$PWD --install {out}/{package}"),
        "dpkg --root=$PWD --purge orgdata-exporter",
    );
    // The script after a removal needs these two. This machine's package manager does not know them, so rpm would miss them.
    let requires = sh(&format!("rpm -qp --requires {out}/{rpm} | sort -u"));
    let others = requires.lines().filter(|line| !line.contains('('));
    assert_eq!(others.collect::<Vec<_>>(), ["/bin/sh"], "{requires}");
    assert_installs_and_leaves_only_the_state(
        &place("rpm"),
        "for program in /bin/sh /bin/rmdir; do cp --parents -L $(ldd $program | grep -o '/[^ ]*') $program .; done",
        &format!("rpm --root $PWD --dbpath /rpmdb --install --nodeps {out}/{rpm}"),
        "rpm --root $PWD --dbpath /rpmdb --erase orgdata-exporter",
    );

    let document = |kind: &str| -> Value {
        let read = fs::read(format!("{out}/{name}.{kind}.json")).unwrap();
        serde_json::from_slice(&read).unwrap()
    };
    let sbom = document("sbom.cdx");
    let components = array(&sbom["components"]);
    let has = |name: &str| components.iter().any(|part| part["name"] == name);
    // proptest is listed, although nothing of it is linked: an optional dependency of const-hex.
    assert!(has("tokio") && has("libsqlite3-sys") && !has("tempfile"));
    let unit = format!("{out}/tar/{name}/systemd/*.service");
    sh(&format!(
        "grep -qx ExecStart=/usr/local/bin/orgdata-exporter {unit}"
    ));
    let digests = sh(&format!(
        "sha256sum {out}/deb/usr/bin/orgdata-exporter {out}/tar/{name}/orgdata-exporter | cut -d' ' -f1"
    ));
    let stated = text(&document("provenance")["subject"][0]["digest"]["sha256"]);
    assert_eq!(digests, format!("{stated}\n{stated}\n"));
}

#[test]
#[ignore = "needs actionlint"]
fn the_linter_has_no_remark_on_the_workflows() {
    let workflows = ["ci", "release"].map(|name| format!(".github/workflows/{name}.yaml"));
    let [ci, release] = &workflows;
    run("actionlint", &["-shellcheck=", ci, release], "").unwrap();
}
