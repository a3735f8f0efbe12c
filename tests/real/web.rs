//! Real Prometheus servers scrape over TLS, with passwords and with client certificates. Who is kept out, `tests/it/web_config` tests.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::organization;
use crate::support::binary::{Exporter, exporter};
use crate::support::files::{array, tls as file};
use crate::support::parts::Prometheus;

const PASSWORD: &str = "s3cret";

/// Starts an exporter with TLS, a user, and these fields of `tls_server_config`, and waits for its first sync.
async fn protected(base_url: &str, dir: &TempDir, more: &[(&str, &str)]) -> Exporter {
    let mut tls = json!({ "cert_file": file("server.pem"), "key_file": file("server.key") });
    for (key, value) in more {
        tls[key] = json!(value);
    }
    let users = json!({ "prometheus": bcrypt::hash(PASSWORD, 10).unwrap() });
    let config = dir.path().join(format!("{}.yml", more.len()));
    // JSON is YAML.
    let text = json!({ "tls_server_config": tls, "basic_auth_users": users }).to_string();
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let launch = exporter(base_url).flag("--web.config.file", config);
    let exporter = launch.listening().await;
    let synced = |line: &str| line.contains("first sync");
    exporter.stderr().until("the first sync", synced).await;
    exporter
}

/// A server scrapes an exporter that requires TLS and a password, and one that also requires a client certificate.
async fn scrapes_through_tls(program: &str) {
    let simulator = organization(1, 0).await;
    let dir = tempfile::tempdir().unwrap();
    let authority = file("ca.pem");
    let verify = [
        ("client_auth_type", "RequireAndVerifyClientCert"),
        ("client_ca_file", authority.as_str()),
    ];
    let url = simulator.base_url();
    let password = protected(&url, &dir, &[]).await;
    let certificate = protected(&url, &dir, &verify).await;
    simulator.add_events(7);

    let [cert, key] = ["pem", "key"].map(|end| file(&format!("client.{end}")));
    let tls = json!({ "ca_file": authority, "server_name": "localhost" });
    let with_certificate = json!({ "ca_file": authority, "server_name": "localhost", "cert_file": cert, "key_file": key });
    let jobs = [
        ("password", &password, &tls),
        ("certificate", &certificate, &with_certificate),
        ("no-certificate", &certificate, &tls),
    ];
    let configs = jobs.iter().map(|(name, exporter, tls)| {
        json!({
            "job_name": name, "scheme": "https", "tls_config": tls,
            "basic_auth": { "username": "prometheus", "password": PASSWORD },
            "static_configs": [{ "targets": [exporter.address().to_string()] }],
        })
    });
    let prometheus = Prometheus::start_jobs(program, configs.collect(), "1s").await;
    for (job, ..) in &jobs[..2] {
        let events = format!("sum(orgdata_audit_events_total{{job=\"{job}\"}})");
        prometheus.shows(&events, 7.0).await;
    }
    prometheus.shows("up{job=\"no-certificate\"}", 0.0).await;
    // Scrape after scrape: none fails in between, whether a connection is kept or closed.
    let up = "up{job=\"certificate\"}[1m]";
    let always = format!("min_over_time({up}) == 1 and count_over_time({up}) >= 5");
    let is_so = |result: &Value| array(result).len() == 1;
    prometheus.query_until(&always, is_so).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn prometheus_scrapes_over_tls_with_passwords_and_certificates() {
    for program in ["prometheus", "prometheus3"] {
        scrapes_through_tls(program).await;
    }
}
