//! Where the exporter would listen: free, its own, another exporter's, a stranger's; and the web configuration file.

use orgdata_exporter::simulator::{Running, Simulator};

use super::support::{Checked, organization};
use crate::support::binary::KEY;
use crate::support::binary::{Launch, exporter, launch};
use crate::support::http_peer::{NO_TICKETS, Peer, json};

async fn service() -> Running {
    Simulator::spawn(organization()).await.expect("a simulator")
}

fn at(sim: &Running, address: &str, state: &str) -> Launch {
    launch(&[
        "check",
        &format!("--web.listen-address={address}"),
        &format!("--state.path={state}"),
    ])
    .env("ORGDATA_API_BASE_URL", &sim.base_url())
    .env("ORGDATA_API_KEY", KEY)
}

#[tokio::test]
async fn the_port_of_the_running_exporter_is_good_and_that_of_another_one_a_warning() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state.db").display().to_string();
    let running = exporter(&sim.base_url())
        .env("ORGDATA_STATE_PATH", &file)
        .start();
    let address = running.url().await.replace("http://", "");
    let own = Checked::of(at(&sim, &address, &file)).await;
    own.assert_only(&[]);
    assert_eq!(
        own.line("listen"),
        (
            "good",
            format!("the running exporter listens on {address}").as_str()
        )
    );
    let beside = Checked::of(at(&sim, &address, ":memory:")).await;
    beside.assert_only(&[(
        "warning",
        "listen",
        &[
            "another exporter, with another state file",
            "another --web.listen-address",
        ],
    )]);
}

#[tokio::test]
async fn the_running_exporter_is_known_by_its_state_file_where_its_port_does_not_tell() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (file, config) = (
        dir.path().join("state.db").display().to_string(),
        dir.path().join("web.yml"),
    );
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");
    let text =
        format!("tls_server_config:\n  cert_file: {tls}server.pem\n  key_file: {tls}server.key\n");
    std::fs::write(&config, text).expect("writable");
    let config = format!("--web.config.file={}", config.display());
    let running = exporter(&sim.base_url())
        .env("ORGDATA_STATE_PATH", &file)
        .arg(&config)
        .start();
    let address = running.url().await.replace("http://", "");
    let own = Checked::of(at(&sim, &address, &file).arg(&config)).await;
    own.assert_only(&[]);
    assert!(
        own.line("listen")
            .1
            .contains("in use, by the running exporter as it seems"),
        "{}",
        own.text
    );
    assert_eq!(
        own.line("web-config").1,
        "the web configuration file is valid, with TLS"
    );
    let beside = Checked::of(at(&sim, &address, ":memory:").arg(&config)).await;
    beside.assert_only(&[(
        "bad",
        "listen",
        &["the port is in use", "--web.listen-address"],
    )]);
}

#[tokio::test]
async fn what_else_listens_there_is_bad_and_a_free_port_is_left_free() {
    let sim = service().await;
    let stranger = Peer::always(json("200 OK", NO_TICKETS)).await;
    let taken = Checked::of(at(&sim, &stranger.address().to_string(), ":memory:")).await;
    taken.assert_only(&[(
        "bad",
        "listen",
        &[
            "the port is in use",
            "stop what listens there",
            "--web.listen-address",
        ],
    )]);
    let nowhere = Checked::of(at(&sim, "192.0.2.1:80", ":memory:")).await;
    nowhere.assert_only(&[(
        "bad",
        "listen",
        &[
            "no interface of this machine has that address",
            "--web.listen-address",
        ],
    )]);
    let unknown = Checked::of(at(&sim, "no-such-host.invalid:80", ":memory:")).await;
    unknown.assert_only(&[(
        "bad",
        "listen",
        &["the name is not known", "give an IP address"],
    )]);
    let several = Checked::of(at(&sim, "127.0.0.1:0,[::1]:0", ":memory:")).await;
    assert_eq!(
        several
            .findings()
            .iter()
            .filter(|(_, check, _)| *check == "listen")
            .count(),
        2,
        "{}",
        several.text
    );
    // They are there only when systemd starts it.
    let handed = Checked::of(
        at(&sim, &stranger.address().to_string(), ":memory:").arg("--web.systemd-socket"),
    )
    .await;
    handed.assert_only(&[]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_not_made_and_that_of_a_dead_process_not_taken_away() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("web.sock");
    let address = format!("unix:{}", path.display());
    Checked::of(at(&sim, &address, ":memory:"))
        .await
        .assert_only(&[]);
    assert!(!path.exists());
    let live = std::os::unix::net::UnixListener::bind(&path).expect("it can be made");
    let taken = Checked::of(at(&sim, &address, ":memory:")).await;
    taken.assert_only(&[(
        "bad",
        "listen",
        &["another process listens there", "choose another path"],
    )]);
    drop(live);
    Checked::of(at(&sim, &address, ":memory:"))
        .await
        .assert_only(&[]);
    assert!(path.exists());
    let nowhere = Checked::of(at(&sim, "unix:/nonexistent/web.sock", ":memory:")).await;
    nowhere.assert_only(&[("bad", "listen", &["unix:/nonexistent/web.sock"])]);
}

#[tokio::test]
async fn a_web_configuration_file_is_read_as_the_exporter_would() {
    let sim = service().await;
    let with = |text: &str| {
        let launch = at(&sim, "127.0.0.1:0", ":memory:").arg("--web.config.file=web.yml");
        std::fs::write(launch.dir().join("web.yml"), text).expect("writable");
        launch
    };
    let broken = Checked::of(with("basic_auth_users:\n  alice: secret\n")).await;
    broken.assert_only(&[(
        "bad",
        "settings",
        &["--web.config.file", "web.yml", "basic_auth_users.alice"],
    )]);
    let valid = Checked::of(with("rate_limit:\n  interval: 1s\n  burst: 5\n")).await;
    valid.assert_only(&[]);
    assert_eq!(
        valid.line("web-config"),
        ("good", "the web configuration file is valid, without TLS")
    );
}
