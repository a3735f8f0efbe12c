//! Which files are accepted: what Prometheus' exporter-toolkit accepts in the files of its own tests (`web/testdata`, whose
//! names the cases have), as far as it is supported. The rest is refused by name.

use exporter_web::WebConfig;

use super::{TLS, directory, users};

/// Refused files, or what is in a section of one, and parts of their errors.
const REFUSED: &str = r#"
hwjdkljkl => cannot use the file|exporter-toolkit
only cert_filse: server.pem => cert_filse|cert_file
rate_limit: {interval: 1h, burst: 1} => rate_limit|not supported
tls cipher_suites: [TLS_AES_128_GCM_SHA256] => cipher_suites|not supported
only cert_file: server.pem, key: $2y$10$secretsecretsecret => key|not supported
tls client_auth_type: RequireAnyClientCert; client_ca_file: ca.pem => RequireAnyClientCert|RequireAndVerifyClientCert
only min_version: TLS13 => cert_file|missing
only cert_file: '', key_file: server.key => tls_server_config.cert_file|cannot read
only cert_file: somefile, key_file: server.key => tls_server_config.cert_file|somefile|relative to
only cert_file: /dev/zero, key_file: server.key => cert_file|4 MiB
tls cert_file: server.key => cert_file|BEGIN CERTIFICATE
tls key_file: server.pem => key_file|BEGIN PRIVATE KEY
tls key_file: client.key => key_file|cert_file
tls cert_file: version1.pem => cert_file|X.509 version 3
tls client_ca_file: ca.pem => client_ca_file|RequireAndVerifyClientCert
tls client_auth_type: RequireAndVerifyClientCert => client_ca_file|must be given
basic_auth_users: {john: doe} => basic_auth_users.john|htpasswd
basic_auth_users: {"jo\nhn": doe} => basic_auth_users.jo\nhn: this
tls min_version: TLS11 => TLS11|TLS12
headers "Content\nType": foo => headers.Content\nType
basic_auth_users: {alice: $2y$10$secretsecretsecret} => basic_auth_users.alice
basic_auth_users: /   alice: $2y$10$secretsecretsecret /  nonsense => cannot use
"#;

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

#[tokio::test]
async fn anything_else_is_refused_with_the_field_and_what_to_do_and_no_secret() {
    for line in REFUSED.trim().lines() {
        let (config, parts) = line.split_once(" => ").unwrap();
        let config = match config.split_once(' ') {
            Some(("tls", lines)) => tls(lines),
            Some(("only", fields)) => format!("tls_server_config: {{{fields}}}\n"),
            Some(("headers", all)) => format!("http_server_config: {{headers: {{{all}}}}}\n"),
            _ => config.replace(" / ", "\n"),
        };
        let error = verdict(&config).expect_err(&config);
        let is_tame = !error.contains('\n') && !error.contains("secretsecret");
        assert!(is_tame, "{error}");
        for part in parts.split('|') {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
}
