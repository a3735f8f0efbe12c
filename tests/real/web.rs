//! Real Prometheus servers scrape over TLS, with passwords and with client certificates, and are kept out without them.

// A test fails by panicking, also in its helpers.

use crate::support::binary;
use crate::support::parts;

use std::path::{Path, PathBuf};

use binary::exporter;
use orgdata_exporter::simulator::{Config, Simulator};
use parts::{Prometheus, number};
use serde_json::{Value, json};

const PASSWORD: &str = "s3cret";

fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/support/tls")
        .join(name)
}

/// A configuration file with TLS, a user, and these fields of `tls_server_config`.
fn config(dir: &Path, more: &str) -> PathBuf {
    let hash = bcrypt::hash(PASSWORD, 10).unwrap();
    let text = format!(
        "tls_server_config:\n  cert_file: {}\n  key_file: {}\n{more}basic_auth_users:\n  prometheus: {hash}\n",
        tls_file("server.pem").display(),
        tls_file("server.key").display()
    );
    let path = dir.join("web.yml");
    std::fs::write(&path, text).unwrap();
    path
}

/// A job of `scrape_configs`, with these fields besides.
fn job(name: &str, target: &str, more: &Value) -> Value {
    let mut job = json!({ "job_name": name, "static_configs": [{ "targets": [target] }] });
    job.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    job
}

/// Waits until each job is up or down as it should be, and those that are up have the simulator's events.
async fn assert_up(prometheus: &Prometheus, wanted: &[(&str, bool)], events: u64) {
    for (job, up) in wanted {
        let is = |wanted: f64| {
            move |result: &Value| {
                result
                    .as_array()
                    .is_some_and(|all| all.len() == 1 && number(&all[0]["value"][1]) == wanted)
            }
        };
        prometheus
            .query_until(
                &format!("up{{job=\"{job}\"}}"),
                is(f64::from(u8::from(*up))),
            )
            .await;
        if *up {
            prometheus
                .query_until(
                    &format!("sum(orgdata_audit_events_total{{job=\"{job}\"}})"),
                    is(events as f64),
                )
                .await;
        } else {
            let none = prometheus
                .query(&format!("{{job=\"{job}\",__name__=~\"orgdata_.*\"}}"))
                .await;
            assert_eq!(none, json!([]), "{job}");
        }
    }
}

/// A server scrapes an exporter that wants TLS and a password, and one that wants a client certificate besides.
async fn scrapes_through_tls(program: &str) {
    let simulator = Simulator::spawn(Config::quiet()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let with_password = exporter(&simulator.base_url())
        .arg(&format!(
            "--web.config.file={}",
            config(dir.path(), "").display()
        ))
        .start();
    let (verified, verified_dir) = (tls_file("ca.pem"), tempfile::tempdir().unwrap());
    let more = format!(
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {}\n",
        verified.display()
    );
    let config = config(verified_dir.path(), &more);
    let with_certificate = exporter(&simulator.base_url())
        .arg(&format!("--web.config.file={}", config.display()))
        .start();
    let (first, second) = (with_password.url().await, with_certificate.url().await);
    let (first, second) = (
        first.trim_start_matches("http://"),
        second.trim_start_matches("http://"),
    );
    for running in [&with_password, &with_certificate] {
        running
            .stderr()
            .until("the first look at the service", |line| {
                line.contains("first sync")
            })
            .await;
    }
    simulator.add_events(7);

    let authority = json!({ "ca_file": tls_file("ca.pem"), "server_name": "localhost" });
    let shown = |name: &str| {
        json!({
            "ca_file": tls_file("ca.pem"), "server_name": "localhost",
            "cert_file": tls_file(&format!("{name}.pem")), "key_file": tls_file(&format!("{name}.key")),
        })
    };
    let user = |password: &str| json!({ "username": "prometheus", "password": password });
    let jobs = json!([
        job(
            "password",
            first,
            &json!({ "scheme": "https", "tls_config": authority, "basic_auth": user(PASSWORD) })
        ),
        job(
            "http1",
            first,
            &json!({ "scheme": "https", "tls_config": authority, "basic_auth": user(PASSWORD), "enable_http2": false })
        ),
        job(
            "wrong-password",
            first,
            &json!({ "scheme": "https", "tls_config": authority, "basic_auth": user("wrong") })
        ),
        job(
            "no-password",
            first,
            &json!({ "scheme": "https", "tls_config": authority })
        ),
        job(
            "unknown-authority",
            first,
            &json!({ "scheme": "https", "basic_auth": user(PASSWORD) })
        ),
        job("plain", first, &json!({ "basic_auth": user(PASSWORD) })),
        job(
            "certificate",
            second,
            &json!({ "scheme": "https", "tls_config": shown("client"), "basic_auth": user(PASSWORD) })
        ),
        job(
            "stranger",
            second,
            &json!({ "scheme": "https", "tls_config": shown("stranger"), "basic_auth": user(PASSWORD) })
        ),
        job(
            "no-certificate",
            second,
            &json!({ "scheme": "https", "tls_config": authority, "basic_auth": user(PASSWORD) })
        ),
        job(
            "certificate-alone",
            second,
            &json!({ "scheme": "https", "tls_config": shown("client") })
        ),
    ]);
    let prometheus = Prometheus::start_jobs(program, jobs, "1s").await;
    let wanted = [
        ("password", true),
        ("http1", true),
        ("wrong-password", false),
        ("no-password", false),
        ("unknown-authority", false),
        ("plain", false),
        ("certificate", true),
        ("stranger", false),
        ("no-certificate", false),
        ("certificate-alone", false),
    ];
    assert_up(&prometheus, &wanted, 7).await;
    // Scrape after scrape: none fails in between, when a connection is kept, or closed.
    prometheus
        .query_until("min_over_time(up{job=\"certificate\"}[1m]) == 1 and count_over_time(up{job=\"certificate\"}[1m]) >= 5", |result| {
            result.as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42"]
async fn the_oldest_prometheus_scrapes_over_tls_with_passwords_and_certificates() {
    scrapes_through_tls("prometheus").await;
}

#[tokio::test]
#[ignore = "needs Prometheus 3"]
async fn the_current_prometheus_scrapes_over_tls_with_passwords_and_certificates() {
    scrapes_through_tls("prometheus3").await;
}
