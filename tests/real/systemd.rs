//! The units of `deploy/systemd`, judged and carried out by systemd's own programs.

use crate::support::binary;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use binary::{KEY, client, until};
use orgdata_exporter::simulator::{Config, Simulator};

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/systemd");
const SERVICE: &str = "orgdata-exporter.service";
const SOCKET: &str = "orgdata-exporter.socket";
const PROGRAM: &str = "/usr/local/bin/orgdata-exporter";

/// The exposure that the README speaks of, in tenths: a unit that grows weaker fails.
const EXPOSURE: &str = "--threshold=11";

/// The units with the built program in the place of the installed one.
fn units(dir: &Path) {
    for name in [SERVICE, SOCKET] {
        let unit = fs::read_to_string(format!("{UNITS}/{name}")).expect("the unit is there");
        fs::write(
            dir.join(name),
            unit.replace(PROGRAM, env!("CARGO_BIN_EXE_orgdata-exporter")),
        )
        .expect("it can be written");
    }
}

fn analyze(arguments: &[&str], dir: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("systemd-analyze is installed");
    (
        output.status.success(),
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    )
}

/// What a unit sets in its environment, with systemd's directories in `dir`.
fn environment(dir: &Path) -> Vec<(String, String)> {
    let unit = fs::read_to_string(format!("{UNITS}/{SERVICE}")).expect("the unit is there");
    let dir = dir.to_str().expect("a path of letters");
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
    lines
        .map(|(name, value)| (name.to_owned(), value.replace("%d", dir).replace("%S", dir)))
        .collect()
}

#[test]
#[ignore = "needs systemd-analyze"]
fn the_units_are_sound_and_hardened() {
    let dir = tempfile::tempdir().expect("a directory");
    units(dir.path());
    let (sound, said) = analyze(
        &[
            "verify",
            "--man=no",
            &format!("./{SERVICE}"),
            &format!("./{SOCKET}"),
        ],
        dir.path(),
    );
    assert!(sound && said.trim().is_empty(), "{said}");
    let (hardened, said) = analyze(
        &[
            "security",
            "--offline=true",
            "--no-pager",
            EXPOSURE,
            &format!("./{SERVICE}"),
        ],
        dir.path(),
    );
    println!("{}", said.lines().last().unwrap_or_default());
    assert!(hardened, "{said}");
}

#[tokio::test]
#[ignore = "needs systemd-socket-activate"]
async fn the_exporter_serves_the_sockets_that_systemd_hands_over() {
    let sim = Simulator::spawn(Config {
        history: 5,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("orgdata-exporter")).expect("a state directory");
    fs::write(dir.path().join("api-key"), KEY).expect("a key");
    // Free at this moment; systemd-socket-activate cannot be told to choose.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port")
        .port();
    let address = format!("127.0.0.1:{port}");

    let mut command = tokio::process::Command::new("systemd-socket-activate");
    command.args(["--listen", &address]);
    let base = ("ORGDATA_API_BASE_URL".to_owned(), sim.base_url());
    for (name, value) in environment(dir.path()).into_iter().chain([base]) {
        command.arg(format!("--setenv={name}={value}"));
    }
    command
        .arg(env!("CARGO_BIN_EXE_orgdata-exporter"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .expect("systemd-socket-activate is installed");

    // The first connection starts it, and waits for it.
    let url = format!("http://{address}");
    let scraped = until("a scrape with both loops at work", async || {
        let metrics = client()
            .get(format!("{url}/metrics"))
            .send()
            .await
            .ok()?
            .text()
            .await
            .ok()?;
        let well = ["audit", "tickets"]
            .iter()
            .all(|which| metrics.contains(&format!("orgdata_up{{loop=\"{which}\"}} 1")));
        well.then_some(metrics)
    });
    assert!(scraped.await.contains("process_start_time_seconds"));
    assert!(
        dir.path().join("orgdata-exporter/state.db").exists(),
        "the state is where the service keeps it"
    );

    let pid = child.id().expect("it runs").to_string();
    let signal = |name: &str| {
        Command::new("kill")
            .args([name, &pid])
            .status()
            .expect("kill is there")
    };
    assert!(signal("-HUP").success(), "ExecReload");
    let ready = client()
        .get(format!("{url}/-/ready"))
        .send()
        .await
        .expect("it goes on after a reload");
    assert_eq!(ready.status(), 200);
    assert!(signal("-TERM").success());
    let status = tokio::time::timeout(binary::PATIENCE, child.wait())
        .await
        .expect("in time")
        .expect("it ends");
    assert_eq!(status.code(), Some(0));
}
