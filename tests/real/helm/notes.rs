//! What Helm prints after an installation.

use axum::http::{StatusCode, Uri};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{BASE, CHART, NAME, features, helm};
use crate::support::files::path;

/// Returns the notes of a release called `orgdata-exporter`.
fn notes(values: &str, options: &[&str]) -> String {
    let install = [&["install", NAME], options].concat();
    let printed = helm(&install, &path(CHART), values).unwrap_or_else(|error| panic!("{error}"));
    printed
        .split_once("\nNOTES:\n")
        .expect("notes")
        .1
        .to_owned()
}

fn without_cluster(values: &str) -> String {
    notes(values, &["--dry-run=client"])
}

#[test]
#[ignore = "needs helm"]
fn the_notes_say_what_to_do_next() {
    let always = "rollout status statefulset/| logs |port-forward statefulset/|/-/ready|orgdata-exporter check";
    for (feature, values) in features() {
        let notes = without_cluster(&values);
        assert!(
            always.split('|').all(|words| notes.contains(words)),
            "{feature}: {notes}"
        );
        for never in ["not-a-real-key", "<nil>", "no value", "\n\n\n"] {
            assert!(!notes.contains(never), "{feature}: {notes}");
        }
        assert!(
            notes.lines().all(|line| line.len() <= 140),
            "{feature}: {notes}"
        );
    }
    let api = features()["api"].clone();
    let of = |feature: &str| {
        features()
            .remove(feature)
            .unwrap_or_else(|| BASE.to_owned())
    };
    for (values, words) in [
        (BASE.to_owned(), "NEXT STEP"),
        (
            BASE.to_owned(),
            "create secret generic orgdata-exporter-api-key --from-file=api-key=FILE",
        ),
        (BASE.to_owned(), "Nothing tells Prometheus"),
        (BASE.to_owned(), "no log records are sent"),
        (
            api,
            "create secret generic audit-reader --from-file=token=FILE",
        ),
        (of("key"), "WARNING: the API key came as the value api.key"),
        (of("tls"), "curl -k https://127.0.0.1:10917/-/ready"),
        (of("tls"), "set web.probes to tcp"),
        (of("pod-monitor"), "Prometheus has the job orgdata-exporter"),
        (of("no-persistence"), "WARNING: persistence is off"),
        (of("labels"), "exec audit-0 -c orgdata-exporter"),
    ] {
        let notes = without_cluster(&values);
        assert!(notes.contains(words), "{words}: {notes}");
    }
    for (feature, words) in [
        ("key", "NEXT STEP"),
        ("web-pod-monitor", "web.probes"),
        ("otlp", "no log records are sent"),
    ] {
        assert!(
            !without_cluster(&of(feature)).contains(words),
            "{feature}: {words}"
        );
    }
}

/// Starts a server with the few answers of Kubernetes that Helm asks for, and a Secret with this data if there is one.
async fn cluster(secret: Option<Value>) -> String {
    let answer = async move |uri: Uri| {
        let list = |group: &str, resources: &[(&str, &str)]| {
            let resource = |(name, kind): &(&str, &str)| json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"] });
            let resources: Value = resources.iter().map(resource).collect();
            json!({ "kind": "APIResourceList", "groupVersion": group, "resources": resources })
        };
        let apps = json!({ "groupVersion": "apps/v1", "version": "v1" });
        let answer = match uri.path() {
            "/version" => json!({ "major": "1", "minor": "37", "gitVersion": "v1.37.0" }),
            "/api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
            "/apis" => {
                json!({ "kind": "APIGroupList", "groups": [{ "name": "apps", "versions": [apps], "preferredVersion": apps }] })
            }
            "/api/v1" => list(
                "v1",
                &[
                    ("secrets", "Secret"),
                    ("configmaps", "ConfigMap"),
                    ("services", "Service"),
                    ("serviceaccounts", "ServiceAccount"),
                ],
            ),
            "/apis/apps/v1" => list("apps/v1", &[("statefulsets", "StatefulSet")]),
            path if path.ends_with("/secrets/orgdata-exporter-api-key") && secret.is_some() => {
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "orgdata-exporter-api-key" }, "data": secret })
            }
            _ => {
                let none = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
                return (StatusCode::NOT_FOUND, Json(none));
            }
        };
        (StatusCode::OK, Json(answer))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs helm"]
async fn the_notes_know_whether_the_secret_exists() {
    for (secret, words, never) in [
        (
            Some(json!({ "api-key": "eA==" })),
            "The Secret orgdata-exporter-api-key with the API key is there.",
            "NEXT STEP",
        ),
        (
            Some(json!({ "apikey": "eA==" })),
            "has no key called api-key",
            "is there.",
        ),
        (
            None,
            "Helm sees no Secret orgdata-exporter-api-key",
            "is there.",
        ),
    ] {
        let server = cluster(secret).await;
        let options = [
            "--dry-run=server",
            "--disable-openapi-validation",
            "--kube-apiserver",
            &server,
        ];
        let notes = tokio::task::block_in_place(|| notes(BASE, &options));
        assert!(notes.contains(words) && !notes.contains(never), "{notes}");
    }
}
