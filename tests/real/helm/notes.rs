//! What Helm tells after an installation.

use std::collections::BTreeMap;

use axum::http::{StatusCode, Uri};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::chart::{BASE, features, helm, root};

/// The notes of a release called `orgdata-exporter`, without a cluster.
fn notes(values: &str) -> String {
    let said = helm(
        &["install", "orgdata-exporter", "--dry-run=client"],
        &root(),
        values,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    said.split_once("\nNOTES:\n")
        .unwrap_or_else(|| panic!("no notes: {said}"))
        .1
        .to_owned()
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn every_example_ends_with_what_to_do_next() {
    for (feature, values) in features() {
        let notes = notes(&values);
        for told in [
            "rollout status statefulset/",
            " logs ",
            "port-forward statefulset/",
            "/-/ready",
            "orgdata-exporter check",
        ] {
            assert!(notes.contains(told), "{feature}: {told}: {notes}");
        }
        assert!(
            !notes.contains("not-a-real-key")
                && !notes.contains("<nil>")
                && !notes.contains("no value"),
            "{feature}: {notes}"
        );
        assert!(
            !notes.contains("\n\n\n") && notes.lines().all(|line| line.len() <= 140),
            "{feature}: {notes}"
        );
    }
}

#[test]
#[ignore = "needs helm: run .ci/setup"]
fn the_notes_know_what_is_missing() {
    let create = "create secret generic orgdata-exporter-api-key --from-file=api-key=FILE";
    let base = notes(BASE);
    assert!(
        base.contains("NEXT STEP") && base.contains(create),
        "{base}"
    );
    assert!(
        base.contains("Nothing tells Prometheus") && base.contains("no log records are sent"),
        "{base}"
    );

    let wanted: BTreeMap<&str, &[&str]> = [
        (
            "api",
            &["create secret generic audit-reader --from-file=token=FILE"] as &[&str],
        ),
        ("key", &["WARNING: the API key came as the value api.key"]),
        (
            "tls",
            &[
                "curl -k https://127.0.0.1:10917/-/ready",
                "set web.probes to tcp",
            ],
        ),
        ("pod-monitor", &["Prometheus has the job orgdata-exporter"]),
        ("no-persistence", &["WARNING: persistence is off"]),
        ("labels", &["exec audit-0 -c orgdata-exporter"]),
    ]
    .into();
    for (feature, told) in wanted {
        let notes = notes(&features()[feature]);
        assert!(
            told.iter().all(|told| notes.contains(told)),
            "{feature}: {notes}"
        );
    }
    assert!(!notes(&features()["key"]).contains("NEXT STEP"));
    assert!(!notes(&features()["web-pod-monitor"]).contains("web.probes"));
    assert!(!notes(&features()["otlp"]).contains("no log records are sent"));
}

/// A server with the few answers of Kubernetes that Helm asks for, and a Secret with this data if any.
async fn cluster(secret: Option<Value>) -> String {
    let resource = |name: &str, kind: &str| json!({ "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"] });
    let apps = json!({ "groupVersion": "apps/v1", "version": "v1" });
    let mut answers: BTreeMap<&str, Value> = [
        ("/version", json!({ "major": "1", "minor": "37", "gitVersion": "v1.37.0" })),
        ("/api", json!({ "kind": "APIVersions", "versions": ["v1"] })),
        ("/apis", json!({ "kind": "APIGroupList", "groups": [{ "name": "apps", "versions": [apps], "preferredVersion": apps }] })),
        (
            "/api/v1",
            json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [
                resource("secrets", "Secret"), resource("configmaps", "ConfigMap"), resource("services", "Service"),
                resource("serviceaccounts", "ServiceAccount"),
            ] }),
        ),
        (
            "/apis/apps/v1",
            json!({ "kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [resource("statefulsets", "StatefulSet")] }),
        ),
    ]
    .into();
    if let Some(data) = secret {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "orgdata-exporter-api-key" }, "data": data });
        answers.insert(
            "/api/v1/namespaces/monitoring/secrets/orgdata-exporter-api-key",
            secret,
        );
    }
    let answer = move |uri: Uri| async move {
        let none = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
        answers
            .get(uri.path())
            .map_or((StatusCode::NOT_FOUND, Json(none)), |found| {
                (StatusCode::OK, Json(found.clone()))
            })
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs helm: run .ci/setup"]
async fn the_notes_know_whether_the_secret_is_there() {
    for (secret, told, not_told) in [
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
        let said = tokio::task::spawn_blocking(move || {
            let cluster = [
                "--dry-run=server",
                "--disable-openapi-validation",
                "--kube-apiserver",
                &server,
            ];
            helm(
                &[&["install", "orgdata-exporter"] as &[&str], &cluster].concat(),
                &root(),
                BASE,
            )
        });
        let said = said
            .await
            .expect("ends")
            .unwrap_or_else(|error| panic!("{error}"));
        let notes = said.split_once("\nNOTES:\n").expect("notes").1;
        assert!(notes.contains(told) && !notes.contains(not_told), "{notes}");
    }
}
