//! The API: every way in which it fails has a line with what to do.

use orgdata_exporter::simulator::ApiKey;

use super::{Checked, check, expect, organization, service};
use crate::support::binary::KEY;
use crate::support::http_peer::{NO_TICKETS, Peer, Reply, answer, json};
use crate::support::service::spawn;
use crate::web_config;

/// An API with these answers to audit logs and to tickets.
async fn api(audit: Reply, tickets: Reply) -> Peer {
    Peer::start(move |seen, _| match seen.target().contains("/v1/tickets") {
        true => tickets.clone(),
        false => audit.clone(),
    })
    .await
}

fn closed(status: &str) -> Reply {
    json(status, r#"{"message":"closed for a day"}"#)
}

#[tokio::test]
async fn a_failure_is_named_once_with_what_to_do() {
    let html = answer("200 OK", &["content-type: text/html"], "<p>Log in");
    let later = answer("429 Wait", &["retry-after: 30"], "");
    let moved = ["location: https://login.example.com/x"];
    let moved = answer("307 Moved", &moved, "");
    let no_such_type =
        r#"{"error":"Bad request","issues":[{"path":["activityTypes"],"message":"No such type"}]}"#;
    let no_such_type = json("400 No", no_such_type);
    let key = "activity_logs:read | ORGDATA_API_KEY | do without: --audit.enabled=false";
    for (audit, level, words) in [
        (closed("500 Error"), "bad", "ask its operators"),
        (closed("404 Not Found"), "bad", "check --api.base-url"),
        (later, "not tested", "HTTP 429 | would try again"),
        (moved, "bad", "login.example.com"),
        (html, "bad", "login page"),
        (closed("401 No"), "bad", key),
        (no_such_type, "bad", "No such type"),
    ] {
        let api = api(audit, json("200 OK", NO_TICKETS)).await;
        expect(check(&api.url()), &format!("{level} audit-logs: {words}")).await;
    }
}

#[tokio::test]
async fn keys_are_named_by_their_place_and_scopes() {
    let mut config = organization();
    config.keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let api = spawn(config).await;
    let url = api.base_url();
    expect(
        check(&url).arg("--tickets.enabled=false"),
        "good tickets: off",
    )
    .await;
    let words =
        "bad tickets: a key that has tickets:read in | put it into the variable ORGDATA_API_KEY";
    expect(check(&url), words).await;
    let file = check(&url)
        .env("ORGDATA_API_KEY", "")
        .args(&["--api.key-file=the-key", "--tickets.enabled=false"]);
    std::fs::write(file.dir().join("the-key"), "not-the-key\n").unwrap();
    expect(
        file,
        "bad audit-logs: HTTP 401 | put it into the file the-key",
    )
    .await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_is_wrong() {
    let server = web_config::Server::start(web_config::TLS).await;
    let secure = server.url("https", "");
    for (url, expected) in [
        ("http://127.0.0.1:1", "bad audit-logs: nothing listens at"),
        (&secure, "bad audit-logs: UnknownIssuer | --api.ca-file"),
        ("http://192.0.2.1", "bad settings: allow-plain-http"),
    ] {
        expect(check(url).arg("--tickets.enabled=false"), expected).await;
    }
}

/// Nothing is known then.
#[tokio::test]
async fn what_is_not_answered_is_not_tested() {
    let peer = Peer::always(Reply::Held(Vec::new())).await;
    let launch = check(&peer.url())
        .arg("--api.timeout=10m")
        .otlp("http/protobuf", &peer.url())
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");
    let finished = launch.run().await;
    let checked = Checked(finished.stdout);
    for (check, words) in [
        (
            "audit-logs",
            "no answer within 10s; the exporter would try again",
        ),
        ("tickets", "no answer within 10s"),
        ("collector", "the exporter waits for 10m, and works without"),
    ] {
        checked.assert("not tested", check, words);
    }
    assert_eq!(finished.status, Some(2), "{}", checked.0);
    let summary = "\nSome things could not be tested.\n";
    assert!(checked.0.ends_with(summary), "{}", checked.0);
}

#[tokio::test]
async fn an_expired_certificate_of_the_web_server_is_named() {
    let api = service().await;
    let dir = web_config::directory(web_config::TLS);
    let web = format!("--web.config.file={}", dir.path().join("web.yml").display());
    expect(check(&api.base_url()).arg(&web), "").await;
    for kind in ["pem", "key"] {
        let file = dir.path().join(format!("server.{kind}"));
        std::fs::rename(dir.path().join(format!("expired.{kind}")), file).unwrap();
    }
    let words = "bad certificate: expired at 2020-01-02T00:00:00Z | replace it";
    expect(check(&api.base_url()).arg(&web), words).await;
}

#[tokio::test]
async fn clocks_that_differ_by_more_than_two_minutes_are_a_warning() {
    let differs = "warning audit-logs: clock and the API's differ | NTP";
    let api = service().await;
    for (date_ahead, expected) in [(100, ""), (3600, differs), (-3600, differs)] {
        api.change_readings(|readings| readings.date_ahead = date_ahead);
        expect(check(&api.base_url()), expected).await;
    }
}
