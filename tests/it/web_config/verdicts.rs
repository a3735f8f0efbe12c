//! Which files are accepted: what Prometheus' exporter-toolkit accepts in the files of its own tests (`web/testdata`, whose
//! names the cases have), as far as it is supported. The rest is refused by name.

use exporter_web::WebConfig;

use super::{TLS, directory, users};

/// Returns the error for a file.
fn verdict(config: &str) -> Result<(), String> {
    let dir = directory(config);
    let loaded = WebConfig::load(&dir.path().join("web.yml"));
    loaded.map(drop)
}

/// Returns the section of TLS with these lines added; a field that is given again replaces the usual one.
fn tls(lines: &str) -> String {
    let field = |line: &str| line.trim().split(':').next().unwrap().to_owned();
    let given: Vec<String> = lines.split(';').map(field).collect();
    let usual = TLS.lines().filter(|line| !given.contains(&field(line)));
    let added = lines.split(';').map(|line| format!("  {}", line.trim()));
    let all: Vec<String> = usual.map(str::to_owned).chain(added).collect();
    all.join("\n") + "\n"
}

#[tokio::test]
async fn what_is_supported_is_accepted() {
    for (name, config) in [
        ("empty", String::new()),
        ("no users", "basic_auth_users:\nhttp_server_config:\n".to_owned()),
        ("noAuth.good", tls("client_auth_type: NoClientCert; min_version: TLS12")),
        ("noAuth_noHTTP2.good", tls("min_version: TLS13") + "http_server_config: {http2: false}\n"),
        ("auth_client.good", tls("client_auth_type: RequireAndVerifyClientCert; client_ca_file: ca.pem")),
        ("headers.good", "http_server_config: {headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff}}\n".to_owned()),
        ("users_noTLS.good", users(&[("alice", "x")])),
    ] {
        assert_eq!(verdict(&config), Ok(()), "{name}");
    }
}

/// The error names the field and what to do, and shows no secret.
#[tokio::test]
async fn anything_else_is_refused() {
    let section = |name: &str, fields: &str| format!("{name}: {{{fields}}}\n");
    let only = |fields| section("tls_server_config", fields);
    let users = |fields| section("basic_auth_users", fields);
    let headers = |fields| section("http_server_config", &format!("headers: {{{fields}}}"));
    let kind = "client_auth_type: RequireAndVerifyClientCert";
    for (config, words) in [
        ("hwjdkljkl".to_owned(), "exporter-toolkit"),
        (only("cert_filse: server.pem"), "cert_filse | cert_file"),
        (section("rate_limit", "burst: 1"), "rate_limit | supported"),
        (tls("cipher_suites: [TLS_AES]"), "cipher_suites | supported"),
        (only("key: $2y$10$secretsecretsecret"), "key | supported"),
        (only("min_version: TLS13"), "cert_file | missing"),
        (
            only("cert_file: '', key_file: x"),
            "cert_file | cannot read",
        ),
        (only("cert_file: x, key_file: x"), "cert_file | relative to"),
        (
            only("cert_file: /dev/zero, key_file: x"),
            "cert_file | 4 MiB",
        ),
        (tls("cert_file: server.key"), "BEGIN CERTIFICATE"),
        (tls("key_file: server.pem"), "BEGIN PRIVATE KEY"),
        (tls("key_file: client.key"), "key_file | cert_file"),
        (tls("cert_file: version1.pem"), "X.509 version 3"),
        (tls("client_ca_file: ca.pem"), "RequireAndVerifyClientCert"),
        (tls(kind), "client_ca_file | must be given"),
        (tls("min_version: TLS11"), "TLS11 | TLS12"),
        (users("john: doe"), "basic_auth_users.john | htpasswd"),
        (users(r#""jo\nhn": doe"#), r"basic_auth_users.jo\nhn: this"),
        (
            users("al: $2y$10$secretsecretsecret"),
            "basic_auth_users.al",
        ),
        (headers(r#""Content\nType": foo"#), r"headers.Content\nType"),
    ] {
        let error = verdict(&config).expect_err(&config);
        let is_tame = !error.contains('\n') && !error.contains("secretsecret");
        assert!(is_tame, "{error}");
        for words in words.split(" | ") {
            assert!(error.contains(words), "{words} is missing in: {error}");
        }
    }
}
