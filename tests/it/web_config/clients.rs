//! Certificates of clients.

use reqwest::StatusCode;

use super::{Server, TLS, client, identity};

/// Whether a client gets an answer that shows this certificate, or none.
async fn gets_in(server: &Server, shown: Option<&str>) -> bool {
    let client = shown
        .into_iter()
        .fold(client(), |client, name| client.identity(identity(name)))
        .build()
        .unwrap();
    client
        .get(server.https("/metrics"))
        .send()
        .await
        .is_ok_and(|response| response.status() == StatusCode::OK)
}

#[tokio::test]
async fn the_five_policies_are_those_of_go() {
    // Without a certificate, with one of a stranger, with one that the authority signed.
    for (policy, wanted) in [
        ("NoClientCert", [true, true, true]),
        ("RequestClientCert", [true, true, true]),
        ("RequireAnyClientCert", [false, true, true]),
        ("RequireClientCert", [false, true, true]),
        ("VerifyClientCertIfGiven", [true, false, true]),
        ("RequireAndVerifyClientCert", [false, false, true]),
    ] {
        // An authority without a policy is an error.
        let authority = if policy == "NoClientCert" {
            ""
        } else {
            "  client_ca_file: ca.pem\n"
        };
        let server =
            Server::start(&format!("{TLS}  client_auth_type: {policy}\n{authority}")).await;
        for (shown, wanted) in [None, Some("stranger"), Some("client")]
            .into_iter()
            .zip(wanted)
        {
            assert_eq!(gets_in(&server, shown).await, wanted, "{policy} {shown:?}");
        }
    }
}

#[tokio::test]
async fn without_an_authority_nobody_here_is_verified() {
    // The system's authorities are asked, as in Go, and have signed none of these.
    let server = Server::start(&format!(
        "{TLS}  client_auth_type: VerifyClientCertIfGiven\n"
    ))
    .await;
    assert!(gets_in(&server, None).await);
    assert!(!gets_in(&server, Some("client")).await);
}

#[tokio::test]
async fn a_name_of_any_kind_has_to_be_allowed_exactly() {
    let name = async |allowed: &str| {
        let server =
            Server::start(&format!("{TLS}  client_auth_type: RequireAnyClientCert\n  client_allowed_sans: [one, \"{allowed}\"]\n")).await;
        gets_in(&server, Some("stranger")).await
    };
    for allowed in [
        "stranger.example",
        "127.0.0.1",
        "2001:db8::1",
        "stranger@example.org",
        "spiffe://example.org/stranger",
    ] {
        assert!(name(allowed).await, "{allowed}");
    }
    for other in [
        "example",
        "127.0.0.2",
        "2001:db8:0::1",
        "stranger",
        "STRANGER.example",
        "",
    ] {
        assert!(!name(other).await, "{other}");
    }
}

#[tokio::test]
async fn a_certificate_without_any_name_is_not_let_in_where_names_count() {
    let config = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  client_allowed_sans: [client]\n";
    let server = Server::start(&format!("{TLS}{config}")).await;
    assert!(
        !gets_in(&server, Some("client")).await,
        "the common name is no subject alternative name"
    );
}
