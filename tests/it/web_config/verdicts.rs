//! Which files are accepted: the verdicts of Prometheus' exporter-toolkit on the files of its own
//! tests (`web/testdata`, whose names the cases have), and where this program differs.

use orgdata_exporter::web::WebConfig;

use super::{TLS, directory, tls_file, users};

/// Refused files, or what is in a section of one, and parts of their errors.
const REFUSED: &str = r#"
hwjdkljkl => cannot parse|exporter-toolkit
only cert_filse: server.pem => cert_filse|cert_file
basic_auth_excluded_paths: [/-/ready] => basic_auth_excluded_paths
rate_limit: {} / rate_limit: {} => rate_limit
only cert_file: '', key_file: server.key => missing cert or cert_file
only cert_file: server.pem, key: '' => missing key or key_file
only cert_file: '', client_auth_type: RequestClientCert => missing cert or cert_file
only cert_file: somefile, key_file: server.key => tls_server_config.cert_file|somefile|relative to
only cert_file: server.pem, key_file: somefile => tls_server_config.key_file|somefile
tls cert_file: server.key => cert_file|BEGIN CERTIFICATE
tls key_file: client.key => key_file|cert_file
tls cert_file: version1.pem => key_file|cert_file
tls client_ca_file: ca.pem => client_ca_file|RequireAndVerifyClientCert
tls client_ca_file: somefile => client_ca_file|somefile
tls client_auth_type: RequireAndVerifyClientCert; client_ca_file: server.key => client_ca_file|BEGIN CERTIFICATE
tls client_auth_type: Sometimes => Sometimes|RequireAndVerifyClientCert
tls client_auth_type: VerifyClientCertIfGiven; client_allowed_sans: [one] => client_allowed_sans
tls client_allowed_sans: [one] => client_allowed_sans|RequireAnyClientCert
basic_auth_users: {john: doe} => basic_auth_users.john|htpasswd
basic_auth_users: {"jo\nhn": doe} => basic_auth_users.jo\nhn: this
tls min_version: TLS111 => TLS111|TLS12
tls max_version: TLS11 => TLS11|TLS13
tls min_version: TLS13; max_version: TLS12 => min_version|above max_version
headers Content-Type: foo => headers.Content-Type|X-Frame-Options
headers "Content\nType": foo => headers.Content\nType
headers X-Frame-Options: foo => X-Frame-Options|deny or sameorigin
headers X-Content-Type-Options: foo => nosniff
basic_auth_users: {alice: $2y$10$secretsecretsecret} => basic_auth_users.alice
only cert_file: server.pem, key: $2y$10$secretsecretsecret => key
basic_auth_users: /   alice: $2y$10$secretsecretsecret /  nonsense => cannot parse
rate_limit: {interval: 5x, burst: 1} => rate_limit.interval|5x
rate_limit: {interval: 1M, burst: 1} => rate_limit.interval|1m for a minute
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

fn inline(name: &str) -> String {
    let text = std::fs::read_to_string(tls_file(name)).unwrap();
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[test]
fn what_the_toolkit_accepts_is_accepted() {
    let (cert, key) = (inline("server.pem"), inline("server.key"));
    for (name, config) in [
        ("empty", String::new()),
        ("no users", "basic_auth_users:\nhttp_server_config:\n".to_owned()),
        ("noAuth.good", tls("client_auth_type: VerifyClientCertIfGiven")),
        ("noAuth_tlsInline.good", format!("tls_server_config:\n  cert: |\n{cert}  key: |\n{key}")),
        ("noAuth_allCiphers.good", tls("cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_256_GCM_SHA384]")),
        ("noAuth_someCiphers_noOrder.good", tls("cipher_suites: [x]; prefer_server_cipher_suites: false")),
        ("noAuth_allCurves.good", tls("curve_preferences: [CurveP256, X25519MLKEM768]; max_version: TLS12")),
        ("noAuth_noHTTP2.good", tls("max_version: TLS12") + "http_server_config: {http2: false}\n"),
        ("auth_client_san.good", tls("client_auth_type: RequireAndVerifyClientCert; client_ca_file: ca.pem; client_allowed_sans: [one, two]")),
        ("headers.good", "http_server_config: {headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff}}\n".to_owned()),
        ("users_noTLS.good", users(&[("alice", "x")])),
        ("rate_limiter_headers", "rate_limit: {interval: 1h, burst: 1}\n".to_owned()),
        ("rate_limiter_nonblocking", "rate_limit: {interval: 0, burst: 0}\n".to_owned()),
    ] {
        assert_eq!(verdict(&config), Ok(()), "{name}");
    }
}

#[test]
fn what_the_toolkit_refuses_is_refused_with_the_field_and_what_to_do_and_no_secret() {
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
