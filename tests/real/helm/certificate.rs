//! The exporter of a chart with a certificate of cert-manager.

use std::fs;

use super::{example, object, of_kind, pod, settings};
use crate::support::binary::launch;
use crate::support::files::{named, text, tls};

#[tokio::test]
#[ignore = "needs helm"]
async fn the_exporter_serves_the_certificate_of_cert_manager() {
    let objects = example("certificate");
    let certificate = &of_kind(&objects, "Certificate")[0]["spec"];
    let volumes = &pod(&objects)["volumes"];
    let secret = &named(volumes, "web-tls")["secret"]["secretName"];
    assert_eq!(*secret, certificate["secretName"]);
    let config = text(&named(volumes, "web")["configMap"]["name"]);

    // The directories of the mounts, with what cert-manager would write.
    let dir = tempfile::tempdir().unwrap();
    let place = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let mounts = &pod(&objects)["containers"][0]["volumeMounts"];
    let [web, keys] =
        ["web", "web-tls"].map(|name| place(&text(&named(mounts, name)["mountPath"])));
    fs::create_dir_all(&web).unwrap();
    fs::create_dir_all(&keys).unwrap();
    let file = place(&text(&settings(&objects)["ORGDATA_WEB_CONFIG_FILE"]));
    let config = &object(&objects, "ConfigMap", &config)["data"]["web.yml"];
    fs::write(&file, text(config)).unwrap();
    for (from, to) in [("server.pem", "tls.crt"), ("server.key", "tls.key")] {
        fs::copy(tls(from), keys.join(to)).unwrap();
    }
    let exporter = launch(&["demo", "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_WEB_CONFIG_FILE", file.as_os_str())
        .listening()
        .await;
    let url = format!("https://localhost:{}", exporter.address().port());
    let check = launch(&["healthcheck", "--url", &url]);
    assert_eq!(check.run().await.status, Some(0));
}
