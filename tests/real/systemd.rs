//! The unit of `deploy/systemd`, checked by systemd's own program, and the exporter with its settings.

use std::fs;
use std::process::Command;

use crate::organization;
use crate::support::binary::{KEY, launch};
use crate::support::files::file;
use crate::support::parts::output;

const SERVICE: &str = "orgdata-exporter.service";

/// The exposure that the README names, in tenths: a weaker unit fails.
const EXPOSURE: &str = "--threshold=11";

#[test]
#[ignore = "needs systemd-analyze"]
fn the_unit_is_sound_and_hardened() {
    // With the built program in the place of the installed one.
    let unit = file(&format!("deploy/systemd/{SERVICE}"));
    let built = env!("CARGO_BIN_EXE_orgdata-exporter");
    let unit = unit.replace("/usr/local/bin/orgdata-exporter", built);
    let directory = tempfile::tempdir().unwrap();
    let service = directory.path().join(SERVICE);
    fs::write(&service, unit).unwrap();
    let analyze = |arguments: &str| {
        let mut analyze = Command::new("systemd-analyze");
        output(analyze.args(arguments.split(' ')).arg(&service), "").unwrap()
    };
    assert_eq!(analyze("verify --man=no").trim(), "");
    analyze(&format!("security --offline=true --no-pager {EXPOSURE}"));
}

#[tokio::test]
#[ignore = "with the other tests of the unit"]
async fn the_exporter_runs_with_the_settings_of_the_unit() {
    let simulator = organization(5, 5).await;
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("orgdata-exporter")).unwrap();
    fs::write(directory.path().join("api-key"), KEY).unwrap();
    let here = directory.path().to_str().unwrap();
    let mut launch = launch(&["--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_API_BASE_URL", &simulator.base_url());
    for line in file(&format!("deploy/systemd/{SERVICE}")).lines() {
        if let Some(variable) = line.strip_prefix("Environment=") {
            let (name, value) = variable.split_once('=').unwrap();
            launch = launch.env(name, &value.replace("%d", here).replace("%S", here));
        }
    }
    let mut exporter = launch.start();
    exporter.synced().await;
    assert!(directory.path().join("orgdata-exporter/state.db").exists());
    // `ExecReload`.
    exporter.signal("HUP").await;
    assert_eq!(exporter.get("/-/ready").await.0, 200);
    assert_eq!(exporter.stop().await, Some(0));
}
