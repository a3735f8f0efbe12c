//! The unit of `deploy/systemd`, checked by systemd's own program, and the exporter with its settings.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::organization;
use crate::support::binary::{KEY, PATIENCE};
use crate::support::files::file;
use crate::support::parts::{client, free_ports, output, until};

const SERVICE: &str = "orgdata-exporter.service";

/// The exposure that the README names, in tenths: a weaker unit fails.
const EXPOSURE: &str = "--threshold=11";

/// Writes the unit with the built program in the place of the installed one.
fn unit(dir: &Path) -> String {
    let unit = file(&format!("deploy/systemd/{SERVICE}"));
    let built = env!("CARGO_BIN_EXE_orgdata-exporter");
    let path = dir.join(SERVICE);
    fs::write(
        &path,
        unit.replace("/usr/local/bin/orgdata-exporter", built),
    )
    .unwrap();
    path.display().to_string()
}

#[test]
#[ignore = "needs systemd-analyze"]
fn the_unit_is_sound_and_hardened() {
    let dir = tempfile::tempdir().unwrap();
    let service = unit(dir.path());
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        output(command.args(arguments), "").unwrap_or_else(|error| panic!("{error}"))
    };
    let remarks = analyze(&["verify", "--man=no", &service]);
    assert_eq!(remarks.trim(), "");
    analyze(&[
        "security",
        "--offline=true",
        "--no-pager",
        EXPOSURE,
        &service,
    ]);
}

#[tokio::test]
#[ignore = "with the other tests of the unit"]
async fn the_exporter_runs_with_the_settings_of_the_unit() {
    let simulator = organization(5, 0).await;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("orgdata-exporter")).unwrap();
    fs::write(dir.path().join("api-key"), KEY).unwrap();
    let [port] = free_ports();
    let address = format!("127.0.0.1:{port}");

    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"));
    command.env("ORGDATA_API_BASE_URL", simulator.base_url());
    command.env("ORGDATA_WEB_LISTEN_ADDRESS", &address);
    let unit = file(&format!("deploy/systemd/{SERVICE}"));
    let here = dir.path().to_str().unwrap();
    for line in unit.lines() {
        if let Some(variable) = line.strip_prefix("Environment=") {
            let (name, value) = variable.split_once('=').unwrap();
            command.env(name, value.replace("%d", here).replace("%S", here));
        }
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().unwrap();

    let url = format!("http://{address}");
    until(async || {
        let answer = client().get(format!("{url}/metrics")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let metrics = answer.text().await.unwrap_or_default();
        let up = |name: &str| metrics.contains(&format!("orgdata_up{{loop=\"{name}\"}} 1"));
        let all = up("audit") && up("tickets");
        all.then_some(()).ok_or(metrics)
    })
    .await;
    assert!(dir.path().join("orgdata-exporter/state.db").exists());

    let pid = child.id().unwrap().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(signal("-HUP").success(), "ExecReload");
    let ready = client().get(format!("{url}/-/ready")).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    assert!(signal("-TERM").success());
    let status = tokio::time::timeout(PATIENCE, child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(0));
}
