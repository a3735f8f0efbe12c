//! A changed file counts for the next request, a broken one does not.

use reqwest::{Certificate, StatusCode};

use super::{Server, TLS, client, tls_file, user};

async fn status(server: &Server, user: &str, password: &str) -> StatusCode {
    client()
        .build()
        .unwrap()
        .get(server.http("/metrics"))
        .basic_auth(user, Some(password))
        .send()
        .await
        .unwrap()
        .status()
}

#[tokio::test]
async fn a_changed_password_counts_for_the_next_request() {
    let server = Server::start(&format!("basic_auth_users:\n{}", user("alice", "old"))).await;
    assert_eq!(status(&server, "alice", "old").await, StatusCode::OK);
    server.write(
        "web.yml",
        format!(
            "basic_auth_users:\n{}{}",
            user("alice", "new"),
            user("bob", "his")
        ),
    );
    assert_eq!(
        status(&server, "alice", "old").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(status(&server, "alice", "new").await, StatusCode::OK);
    assert_eq!(status(&server, "bob", "his").await, StatusCode::OK);
}

#[tokio::test]
async fn a_broken_file_leaves_the_one_before_in_force_until_it_is_mended() {
    let config = format!("basic_auth_users:\n{}", user("alice", "right"));
    let server = Server::start(&config).await;
    for broken in [
        "basic_auth_users: [",
        "nonsense: 1\n",
        "basic_auth_users:\n  alice: right\n",
        "tls_server_config:\n  cert_file: gone.pem\n",
    ] {
        server.write("web.yml", broken);
        assert_eq!(
            status(&server, "alice", "right").await,
            StatusCode::OK,
            "{broken}"
        );
        assert_eq!(
            status(&server, "alice", "wrong").await,
            StatusCode::UNAUTHORIZED,
            "{broken}"
        );
    }
    std::fs::remove_file(server.dir.path().join("web.yml")).unwrap();
    assert_eq!(status(&server, "alice", "right").await, StatusCode::OK);
    server.write(
        "web.yml",
        format!("basic_auth_users:\n{}", user("alice", "mended")),
    );
    assert_eq!(status(&server, "alice", "mended").await, StatusCode::OK);
}

#[tokio::test]
async fn half_a_file_takes_no_protection_away() {
    let server = Server::start(&format!("basic_auth_users:\n{}", user("alice", "right"))).await;
    for shorter in [
        "",
        "basic_auth_users:\n",
        "http_server_config:\n  http2: true\n",
    ] {
        server.write("web.yml", shorter);
        assert_eq!(
            status(&server, "", "").await,
            StatusCode::UNAUTHORIZED,
            "{shorter:?}"
        );
    }
    let config = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  client_allowed_sans: [one]\n";
    let server = Server::start(&format!("{TLS}{config}")).await;
    let lines: Vec<&str> = TLS.lines().chain(config.lines()).collect();
    for length in 0..lines.len() {
        server.write("web.yml", lines[..length].join("\n"));
        let client = client()
            .identity(super::identity("client"))
            .build()
            .unwrap();
        assert!(
            client.get(server.https("/metrics")).send().await.is_err(),
            "{length} lines"
        );
        assert!(
            client
                .get(server.http("/metrics"))
                .send()
                .await
                .map_or(true, |answer| answer.status() == StatusCode::BAD_REQUEST)
        );
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_the_next_connection() {
    let server = Server::start(TLS).await;
    let url = format!("https://127.0.0.1:{}/-/healthy", server.address.port());
    let trusting = |name: &str| {
        let root = Certificate::from_pem(&std::fs::read(tls_file(name)).unwrap()).unwrap();
        client().tls_certs_only([root]).build().unwrap()
    };
    assert!(trusting("ca.pem").get(&url).send().await.is_ok());
    // Certificate and key are two files: in between they do not fit, and the old pair is shown.
    server.write(
        "server.pem",
        std::fs::read(tls_file("stranger.pem")).unwrap(),
    );
    assert!(trusting("ca.pem").get(&url).send().await.is_ok());
    server.write(
        "server.key",
        std::fs::read(tls_file("stranger.key")).unwrap(),
    );
    assert!(trusting("ca.pem").get(&url).send().await.is_err());
    assert!(trusting("stranger.pem").get(&url).send().await.is_ok());
}

#[tokio::test]
async fn tls_can_be_switched_on_while_the_server_runs() {
    let server = Server::start("").await;
    let client = client().build().unwrap();
    assert_eq!(
        client
            .get(server.http("/-/healthy"))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
    server.write("web.yml", TLS);
    assert_eq!(
        client
            .get(server.https("/-/healthy"))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
    assert_eq!(
        client
            .get(server.http("/-/healthy"))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::BAD_REQUEST
    );
}
