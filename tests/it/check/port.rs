//! The port: free, or held by an exporter that answers.

use std::path::Path;

use super::{check, expect, service};
use crate::support::binary::{exporter, free_address};
use crate::support::http_peer::{Peer, answer};
use crate::web_config;

#[tokio::test]
async fn one_that_another_program_has_is_wrong() {
    let api = service().await;
    // Prometheus has the same address for its health.
    let healthy = Peer::always(answer("200 OK", &[], "Prometheus Server is Healthy.")).await;
    let twice = free_address();
    let in_use = "Address already in use | --web.listen-address";
    for (address, words) in [
        (healthy.address().to_string(), in_use),
        (format!("{twice},{twice}"), in_use),
        (
            "192.0.2.1:10917".to_owned(),
            "give an IP address of this machine",
        ),
    ] {
        let launch = check(&api.base_url()).flag("--web.listen-address", &address);
        expect(launch, &format!("bad port: {words}")).await;
    }
}

/// Also if it asks for a password.
#[tokio::test]
async fn one_that_an_exporter_has_is_good_if_it_is_the_one_with_the_state_file() {
    let api = service().await;
    let dir = web_config::directory(&web_config::users(&[("ada", "x")]));
    let web = format!("--web.config.file={}", dir.path().join("web.yml").display());
    let launch = exporter(&api.base_url()).on_disk().arg(&web);
    let running = launch.listening().await;
    running.logs("first sync is done").await;
    let address = running.address().to_string();
    let of = |state: &Path| {
        let launch = check(&api.base_url()).state(state);
        launch.flag("--web.listen-address", &address)
    };
    let own = of(&launch.dir().join("state.db"));
    let own = expect(own, "good port: held by an exporter that answers").await;
    own.assert("good", "state", "is in use by another process");
    let other = "warning port: does not use this state file | --state.path | --web.listen-address";
    expect(of(Path::new("other.db")), other).await;
}
