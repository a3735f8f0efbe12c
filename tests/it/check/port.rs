//! The port of another program. `state.rs` has that of the exporter with the state file.

use super::{check, expect, service};
use crate::support::binary::free_address;
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
