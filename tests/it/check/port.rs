//! The port: free, or held by an exporter that answers.

use super::{check, expect, service};
use crate::support::binary::{exporter, free_address};
use crate::support::http_peer::{Peer, Reply, answer};
use crate::web_config;

#[tokio::test]
async fn one_that_another_program_has_is_wrong() {
    let api = service().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closing = Peer::always(Reply::Bytes(Vec::new())).await;
    // Prometheus has the same address for its health.
    let healthy = Peer::always(answer("200 OK", &[], "Prometheus Server is Healthy.")).await;
    for address in [
        silent.local_addr().unwrap(),
        closing.address(),
        healthy.address(),
    ] {
        let launch = check(&api.base_url());
        let launch = launch.flag("--web.listen-address", &address.to_string());
        let words = format!("bad port: {address} | Address already in use | --web.listen-address");
        expect(launch, &words).await;
    }
    let twice = free_address().to_string();
    let launch = check(&api.base_url());
    let launch = launch.flag("--web.listen-address", &format!("{twice},{twice}"));
    expect(
        launch,
        &format!("bad port: {twice} | Address already in use"),
    )
    .await;
    for (address, words) in [
        ("192.0.2.1:10917", "give an IP address of this machine"),
        (
            "no-such-host.invalid:10917",
            "give an IP address of this machine",
        ),
    ] {
        let launch = check(&api.base_url()).flag("--web.listen-address", address);
        expect(launch, &format!("bad port: {words}")).await;
    }
}

#[tokio::test]
async fn one_that_an_exporter_has_is_good_if_it_is_the_one_with_the_state_file() {
    let api = service().await;
    let launch = exporter(&api.base_url()).on_disk();
    let running = launch.start();
    running.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
    let address = running.address().to_string();
    let of = |state: &str| {
        let launch = check(&api.base_url()).flag("--web.listen-address", &address);
        launch.arg(&format!("--state.path={state}"))
    };
    let file = launch.dir().join("state.db");
    let own = expect(of(file.to_str().unwrap()), "").await;
    own.assert_good("port", "held by an exporter that answers");
    own.assert_good("state", "is in use by another process");
    let other = "warning port: does not use this state file | --state.path | --web.listen-address";
    expect(of("other.db"), other).await;
    expect(of(":memory:"), "")
        .await
        .assert_good("port", "answers");
}

#[tokio::test]
async fn an_exporter_that_asks_for_a_password_or_a_certificate_is_one() {
    let api = service().await;
    let users = format!(
        "basic_auth_users:\n  ada: {}\n",
        bcrypt::hash("x", 4).unwrap()
    );
    let clients = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
    for config in [
        users,
        format!("{}{clients}", web_config::TLS),
        web_config::TLS.to_owned(),
    ] {
        let dir = web_config::directory(&config);
        let web = format!("--web.config.file={}", dir.path().join("web.yml").display());
        let launch = exporter(&api.base_url()).on_disk().arg(&web);
        let running = launch.listening().await;
        let address = running.address().to_string();
        let file = launch.dir().join("state.db");
        let own = check(&api.base_url())
            .flag("--web.listen-address", &address)
            .arg(&format!("--state.path={}", file.display()))
            .arg(&web);
        let own = expect(own, "").await;
        own.assert_good("port", "held by an exporter that answers");
    }
}
