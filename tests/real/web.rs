//! Real Prometheus servers scrape over TLS, with passwords and with client certificates; who is kept out, `tests/it/web_config` tests. And a
//! network in which IPv6 and IPv4 are separate.

use serde_json::{Value, json};

use crate::organization;
use crate::support::binary::exporter;
use crate::support::files::{array, tls as file};
use crate::support::parts::Prometheus;

const PASSWORD: &str = "s3cret";

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn prometheus_scrapes_over_tls_with_passwords_and_certificates() {
    let simulator = organization(1, 0).await;
    let web = json!({
        "tls_server_config": {
            "cert_file": file("server.pem"), "key_file": file("server.key"),
            "client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": file("ca.pem"),
        },
        "basic_auth_users": { "prometheus": bcrypt::hash(PASSWORD, 10).unwrap() },
    });
    let launch = exporter(&simulator.base_url());
    let config = launch.dir().join("web.yml");
    // JSON is YAML.
    std::fs::write(&config, web.to_string()).unwrap();
    let launch = launch.flag("--web.config.file", config.to_str().unwrap());
    let exporter = launch.listening().await;
    exporter.logs("first sync").await;
    simulator.add_events(7);

    let without = json!({ "ca_file": file("ca.pem"), "server_name": "localhost" });
    let mut with = without.clone();
    with["cert_file"] = json!(file("client.pem"));
    with["key_file"] = json!(file("client.key"));
    let jobs = [("with", with), ("without", without)].map(|(name, tls)| {
        json!({
            "job_name": name, "scheme": "https", "tls_config": tls,
            "basic_auth": { "username": "prometheus", "password": PASSWORD },
            "static_configs": [{ "targets": [exporter.address().to_string()] }],
        })
    });
    for program in ["prometheus", "prometheus3"] {
        let prometheus = Prometheus::start_jobs(program, json!(jobs), "1s").await;
        let events = "sum(orgdata_audit_events_total{job=\"with\"})";
        prometheus.shows(events, 7.0).await;
        prometheus.shows("up{job=\"without\"}", 0.0).await;
        // Scrape after scrape: none fails in between, whether a connection is kept or closed.
        let up = "up{job=\"with\"}[1m]";
        let always = format!("min_over_time({up}) == 1 and count_over_time({up}) >= 5");
        let is_so = |result: &Value| array(result).len() == 1;
        prometheus.query_until(&always, is_so).await;
    }
}

/// The system separates IPv6 and IPv4 in this network, as some distributions do.
#[tokio::test]
#[ignore = "needs unshare and ip"]
async fn a_port_is_open_for_both_versions_of_ip() {
    let script = "ip link set lo up && echo 1 > /proc/sys/net/ipv6/bindv6only || exit 99; \"$0\" \"$@\" 2>log & \
        until grep -q listening log; do kill -0 $! || exit 98; done; \"$0\" healthcheck; code=$?; kill $!; exit $code";
    let exporter = exporter("http://127.0.0.1:9").flag("--web.listen-address", ":10917");
    let finished = exporter.in_network(script).run().await;
    let is_healthy = finished.stdout.contains("healthy");
    assert_eq!(
        (finished.status, is_healthy),
        (Some(0), true),
        "{finished:?}"
    );
}
