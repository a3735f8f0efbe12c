//! The chart as users get it: from a registry, and with a certificate.

use std::fs;

use super::{NAME, example, object, of_kind, pod, settings};
use crate::manifests::on_cluster_with;
use crate::registry::Registry;
use crate::support::binary::launch;
use crate::support::files::{named, text, tls};

#[test]
#[ignore = "needs helm, the registry and the API server"]
fn it_is_installed_from_a_registry_and_upgrades_the_chart_before() {
    let registry = Registry::start();
    on_cluster_with("registry", &[("registry", &registry.address)]);
}

#[tokio::test]
#[ignore = "needs helm"]
async fn the_exporter_serves_the_certificate_of_cert_manager() {
    let objects = example("certificate");
    let certificate = &of_kind(&objects, "Certificate")[0]["spec"];
    let volumes = &pod(&objects)["volumes"];
    let secret = &named(volumes, "web-tls")["secret"]["secretName"];
    assert_eq!(*secret, certificate["secretName"]);
    let config = text(&named(volumes, "web")["configMap"]["name"]);
    let container = &pod(&objects)["containers"][0];
    assert_eq!(container["readinessProbe"]["httpGet"]["scheme"], "HTTPS");
    let monitor = &object(&objects, "ServiceMonitor", NAME)["spec"]["endpoints"][0];
    let name = &monitor["tlsConfig"]["serverName"];
    assert_eq!(*name, certificate["dnsNames"][0]);

    // The directories of the mounts, with what cert-manager would write.
    let dir = tempfile::tempdir().unwrap();
    let place = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let of = |name: &str| {
        let mount = named(&container["volumeMounts"], name);
        place(&text(&mount["mountPath"]))
    };
    let web = &object(&objects, "ConfigMap", &config)["data"]["web.yml"];
    fs::create_dir_all(of("web")).unwrap();
    fs::create_dir_all(of("web-tls")).unwrap();
    let file = place(&text(&settings(&objects)["ORGDATA_WEB_CONFIG_FILE"]));
    fs::write(&file, text(web)).unwrap();
    for (from, to) in [("server.pem", "tls.crt"), ("server.key", "tls.key")] {
        fs::copy(tls(from), of("web-tls").join(to)).unwrap();
    }
    let exporter = launch(&["demo", "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_WEB_CONFIG_FILE", file.as_os_str())
        .listening()
        .await;
    let authority = fs::read(tls("ca.pem")).unwrap();
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
        .build()
        .unwrap();
    let url = format!("https://localhost:{}/-/healthy", exporter.address().port());
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
}
