//! The unit of `deploy/systemd`, checked by systemd's own program, and the exporter with its settings.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::organization;
use crate::support::binary::{KEY, launch};
use crate::support::files::file;
use crate::support::parts::output;

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
    let simulator = organization(5, 5).await;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("orgdata-exporter")).unwrap();
    fs::write(dir.path().join("api-key"), KEY).unwrap();
    let here = dir.path().to_str().unwrap();
    let mut launch = launch(&["--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_API_BASE_URL", &simulator.base_url());
    let unit = file(&format!("deploy/systemd/{SERVICE}"));
    for line in unit.lines() {
        if let Some(variable) = line.strip_prefix("Environment=") {
            let (name, value) = variable.split_once('=').unwrap();
            launch = launch.env(name, &value.replace("%d", here).replace("%S", here));
        }
    }
    let mut exporter = launch.listening().await;
    exporter.synced().await;
    let tickets = "orgdata_up{loop=\"tickets\"}";
    exporter.until_value(tickets, 1.0).await;
    assert!(dir.path().join("orgdata-exporter/state.db").exists());
    // `ExecReload`.
    exporter.signal("HUP").await;
    assert_eq!(exporter.get("/-/ready").await.0, 200);
    assert_eq!(exporter.stop().await, Some(0));
}
