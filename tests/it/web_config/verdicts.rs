//! Which files are refused: what Prometheus' exporter-toolkit accepts and the server does not support, and what is wrong. The other tests start servers
//! with what is supported.

use exporter_web::WebConfig;

use super::{TLS, directory};

/// Returns the section of TLS with this line, which may replace one.
fn tls(line: &str) -> String {
    let (field, _) = line.split_once(':').unwrap();
    let usual = TLS.lines().filter(|usual| !usual.contains(field));
    let usual: Vec<&str> = usual.collect();
    format!("{}\n  {line}\n", usual.join("\n"))
}

/// The error names the field and what to do, and shows no secret.
#[tokio::test]
async fn what_is_wrong_or_not_supported_is_refused() {
    let section = |name: &str, fields: &str| format!("{name}: {{{fields}}}\n");
    let only = |fields| section("tls_server_config", fields);
    let users = |fields| section("basic_auth_users", fields);
    let kind = "client_auth_type: RequireAndVerifyClientCert";
    for (config, words) in [
        ("hwjdkljkl".to_owned(), "exporter-toolkit"),
        (only("cert_filse: server.pem"), "cert_filse | cert_file"),
        (section("rate_limit", "burst: 1"), "rate_limit | supported"),
        (tls("cipher_suites: [TLS_AES]"), "cipher_suites | supported"),
        (only("key: $2y$10$secretsecretsecret"), "key | supported"),
        (only("min_version: TLS13"), "cert_file | missing"),
        (only("cert_file: x, key_file: x"), "cert_file | relative to"),
        (tls("cert_file: server.key"), "BEGIN CERTIFICATE"),
        (tls("key_file: client.key"), "key_file | cert_file"),
        (tls("cert_file: version1.pem"), "X.509 version 3"),
        (tls("client_ca_file: ca.pem"), "RequireAndVerifyClientCert"),
        (tls(kind), "client_ca_file | must be given"),
        (tls("min_version: TLS11"), "TLS11 | TLS12"),
        (users("john: doe"), "basic_auth_users.john | htpasswd"),
        (
            users("al: $2y$10$secretsecretsecret"),
            "basic_auth_users.al",
        ),
    ] {
        let dir = directory(&config);
        let loaded = WebConfig::load(&dir.path().join("web.yml"));
        let error = loaded.map(drop).expect_err(&config);
        let is_tame = !error.contains('\n') && !error.contains("secretsecret");
        assert!(is_tame, "{error}");
        for words in words.split(" | ") {
            assert!(error.contains(words), "{words} is missing in: {error}");
        }
    }
}
