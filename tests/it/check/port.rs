//! The port: free, or held by the exporter that has the state file.

use std::path::Path;

use super::{check, expect, service};
use crate::support::binary::{exporter, free_address};
use crate::support::http_peer::{Peer, answer};

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

#[tokio::test]
async fn one_that_the_exporter_with_the_state_file_has_is_good() {
    let api = service().await;
    let launch = exporter(&api.base_url()).on_disk();
    let running = launch.listening().await;
    running.logs("first sync is done").await;
    let address = running.address().to_string();
    let of = |state: &Path| {
        let launch = check(&api.base_url()).state(state);
        launch.flag("--web.listen-address", &address)
    };
    let own = of(&launch.dir().join("state.db"));
    let own = expect(own, "good port: by a running exporter").await;
    own.assert("good", "state", "is in use by another process");
    expect(
        of(Path::new("other.db")),
        "bad port: Address already in use",
    )
    .await;
}
