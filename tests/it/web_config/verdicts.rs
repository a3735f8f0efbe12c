//! Which files are taken and which are not: the verdicts of Prometheus' exporter-toolkit on the files of its own tests
//! (`web/testdata`, by whose names the cases go), and where this program has to differ.

use orgdata_exporter::web::WebConfig;

use super::{TLS, directory};

/// What a file comes to.
fn verdict(config: &str) -> Result<(), String> {
    let dir = directory(config);
    WebConfig::load(&dir.path().join("web.yml"))
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The section of TLS with these lines added.
fn tls(lines: &str) -> String {
    format!(
        "{TLS}{}",
        lines
            .split(';')
            .map(|line| format!("  {}\n", line.trim()))
            .collect::<String>()
    )
}

fn inline(name: &str) -> String {
    std::fs::read_to_string(super::tls_file(name))
        .unwrap()
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect()
}

#[test]
fn what_the_toolkit_takes_is_taken() {
    for (name, config) in [
        ("empty", String::new()),
        ("noAuth.good", tls("client_auth_type: VerifyClientCertIfGiven")),
        ("noAuth_tlsInline.good", format!("tls_server_config:\n  cert: |\n{}  key: |\n{}", inline("server.pem"), inline("server.key"))),
        (
            "noAuth_allCiphers.good",
            tls(
                "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_RSA_WITH_AES_256_GCM_SHA384]",
            ),
        ),
        (
            "noAuth_someCiphers.good",
            tls(
                "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]; min_version: TLS12; max_version: TLS12",
            ),
        ),
        ("noAuth_someCiphers_noOrder.good", tls("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]; prefer_server_cipher_suites: false")),
        ("noAuth_allCurves.good", tls("curve_preferences: [CurveP256, CurveP384, CurveP521, X25519, X25519MLKEM768]")),
        (
            "noAuth_noHTTP2.good",
            tls("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]; max_version: TLS12") + "http_server_config: {http2: false}\n",
        ),
        ("noAuth.requireanyclientcert.good", tls("client_auth_type: RequireAnyClientCert; client_ca_file: ca.pem")),
        ("noAuth.requireandverifyclientcert.good", tls("client_auth_type: RequireAndVerifyClientCert; client_ca_file: ca.pem")),
        (
            "auth_client_san.good",
            tls("client_auth_type: RequireAndVerifyClientCert; client_ca_file: ca.pem; client_allowed_sans: [one, two]"),
        ),
        ("headers.good", "http_server_config: {headers: {X-Frame-Options: deny, X-XSS-Protection: 1, X-Content-Type-Options: nosniff, Content-Security-Policy: \"default-src 'self'\"}}\n".to_owned()),
        ("users_noTLS.good", format!("basic_auth_users:\n{}", super::user("alice", "x"))),
        ("rate_limiter_headers", "rate_limit: {interval: 1h, burst: 1}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n".to_owned()),
        ("rate_limiter_nonblocking", "rate_limit: {interval: 0, burst: 0}\n".to_owned()),
    ] {
        assert_eq!(verdict(&config), Ok(()), "{name}");
    }
}

#[test]
fn what_the_toolkit_refuses_is_refused_with_the_field_and_a_way_out() {
    let only = |lines: &str| format!("tls_server_config: {{{lines}}}\n");
    for (name, config, parts) in [
        (
            "junk",
            "hwjdkljkl\n".to_owned(),
            &["not as it should be"][..],
        ),
        (
            "junk_key",
            only("cert_filse: server.pem"),
            &["cert_filse", "cert_file"],
        ),
        (
            "web-config with a field of a newer toolkit",
            "basic_auth_excluded_paths: [/-/ready]\n".to_owned(),
            &["basic_auth_excluded_paths"],
        ),
        (
            "a key twice",
            "rate_limit: {}\nrate_limit: {}\n".to_owned(),
            &["rate_limit"],
        ),
        (
            "certPath_empty",
            only("cert_file: \"\", key_file: server.key"),
            &["missing one of cert or cert_file"],
        ),
        (
            "keyPath_empty",
            only("cert_file: server.pem, key_file: \"\""),
            &["missing one of key or key_file"],
        ),
        (
            "key_empty",
            only("cert_file: server.pem, key: \"\""),
            &["missing one of key or key_file"],
        ),
        (
            "certPath_keyPath_empty",
            only("cert_file: \"\", key_file: \"\", client_auth_type: x"),
            &["missing one of cert or cert_file"],
        ),
        (
            "certPath_invalid",
            only("cert_file: somefile, key_file: server.key"),
            &["tls_server_config.cert_file", "somefile", "relative to"],
        ),
        (
            "keyPath_invalid",
            only("cert_file: server.pem, key_file: somefile"),
            &["tls_server_config.key_file", "somefile"],
        ),
        (
            "noAuth.bad",
            tls("client_ca_file: /dev/null"),
            &["client_ca_file", "RequireAndVerifyClientCert"],
        ),
        (
            "auth_clientCAs_invalid",
            tls("client_ca_file: somefile"),
            &["client_ca_file", "somefile"],
        ),
        (
            "auth_clientCAs_nocerts",
            tls("client_auth_type: RequireAndVerifyClientCert; client_ca_file: server.key"),
            &["client_ca_file", "BEGIN CERTIFICATE"],
        ),
        (
            "an unknown policy",
            tls("client_auth_type: Sometimes"),
            &[
                "client_auth_type",
                "Sometimes",
                "RequireAndVerifyClientCert",
            ],
        ),
        (
            "auth_client_san_optional_cert.bad",
            tls("client_auth_type: VerifyClientCertIfGiven; client_allowed_sans: [one]"),
            &["client_allowed_sans"],
        ),
        (
            "auth_client_san_no_client_auth.bad",
            tls("client_allowed_sans: [one]"),
            &["client_allowed_sans", "RequireAnyClientCert"],
        ),
        (
            "auth_user_list_invalid",
            format!("{TLS}basic_auth_users: {{john: doe}}\n"),
            &["basic_auth_users.john", "htpasswd"],
        ),
        (
            "inventedCiphers",
            tls("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048]"),
            &["cipher_suites", "unknown cipher", "SHA2048"],
        ),
        (
            "inventedCurves",
            tls("curve_preferences: [CurveP257]"),
            &["curve_preferences", "unknown curve", "CurveP257"],
        ),
        (
            "wrongTLSVersion",
            tls("min_version: TLS111"),
            &["min_version", "unknown TLS version", "TLS12"],
        ),
        (
            "noHTTP2Cipher",
            tls("cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]; max_version: TLS12"),
            &["cipher_suites"],
        ),
        (
            "a cipher that HTTP/2 forbids",
            tls("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]; max_version: TLS12"),
            &["cipher_suites", "http2: false"],
        ),
        (
            "headers_extra_header",
            "http_server_config: {headers: {Content-Type: foo}}\n".to_owned(),
            &["headers.Content-Type", "X-Frame-Options"],
        ),
        (
            "headers_frame_options",
            "http_server_config: {headers: {X-Frame-Options: foo}}\n".to_owned(),
            &["X-Frame-Options", "deny or sameorigin"],
        ),
        (
            "headers_content_type_options",
            "http_server_config: {headers: {X-Content-Type-Options: foo}}\n".to_owned(),
            &["nosniff"],
        ),
        (
            "an interval without a unit",
            "rate_limit: {interval: 5x, burst: 1}\n".to_owned(),
            &["5x"],
        ),
    ] {
        let error = verdict(&config).expect_err(name);
        assert!(!error.contains('\n'), "{name}: {error}");
        for part in parts {
            assert!(
                error.contains(part),
                "{name}: {part} is missing in: {error}"
            );
        }
    }
}

#[test]
fn what_rustls_has_not_is_said_clearly() {
    for (lines, parts) in [
        (
            "min_version: TLS10",
            &["min_version", "TLS10 is not to be had", "TLS12"][..],
        ),
        (
            "max_version: TLS11",
            &["max_version", "TLS11 is not to be had"],
        ),
        (
            "min_version: TLS13; max_version: TLS12",
            &["min_version", "above max_version"],
        ),
        (
            "cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]",
            &["are not to be had", "forward secrecy"],
        ),
        // The toolkit takes this one: Go has the curve.
        (
            "min_version: TLS13; curve_preferences: [CurveP521]",
            &["CurveP521 is not to be had", "X25519"],
        ),
        ("cert_file: server.key", &["cert_file"]),
        ("key_file: client.key", &["key_file", "cert_file"]),
    ] {
        // A field that is given again would be a key twice.
        let base: String = TLS
            .lines()
            .filter(|line| !lines.contains(line.trim().split(':').next().unwrap()))
            .map(|line| format!("{line}\n"))
            .collect();
        let added: String = lines
            .split(';')
            .map(|line| format!("  {}\n", line.trim()))
            .collect();
        let error = verdict(&format!("{base}{added}")).expect_err(lines);
        for part in parts {
            assert!(
                error.contains(part),
                "{lines}: {part} is missing in: {error}"
            );
        }
    }
}

#[test]
fn no_error_shows_a_secret() {
    let secret = "$2y$10$secretsecretsecret";
    for config in [
        format!("basic_auth_users: {{alice: {secret}}}\n"),
        format!("tls_server_config:\n  cert_file: server.pem\n  key: {secret}\n"),
        format!("basic_auth_users:\n  alice: {secret}\n nonsense\n"),
    ] {
        let error = verdict(&config).expect_err(&config);
        assert!(!error.contains("secretsecret"), "{error}");
    }
}
