//! Basic authentication, headers and the rate limit.

use std::time::{Duration, Instant};

use reqwest::{Response, StatusCode};

use super::{Server, TLS, client, user};

fn users() -> String {
    format!(
        "basic_auth_users:\n{}{}",
        user("alice", "right"),
        user("bob", "other")
    )
}

async fn ask(server: &Server, path: &str, user: &str, password: &str) -> Response {
    client()
        .build()
        .unwrap()
        .get(server.http(path))
        .basic_auth(user, Some(password))
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_user_with_the_right_password_gets_in_and_nobody_else() {
    let server = Server::start(&users()).await;
    for path in ["/metrics", "/", "/-/healthy", "/-/ready", "/no"] {
        let found = if path == "/no" {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        assert_eq!(
            ask(&server, path, "alice", "right").await.status(),
            found,
            "{path}"
        );
        for (user, password) in [
            ("alice", "other"),
            ("alice", ""),
            ("carol", "right"),
            ("", ""),
        ] {
            assert_eq!(
                ask(&server, path, user, password).await.status(),
                StatusCode::UNAUTHORIZED,
                "{path} {user} {password}"
            );
        }
    }
    let nobody = client()
        .build()
        .unwrap()
        .get(server.http("/metrics"))
        .send()
        .await
        .unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        nobody.headers()["www-authenticate"],
        "Basic realm=\"orgdata-exporter\", charset=\"UTF-8\""
    );
    assert_eq!(nobody.headers()["x-content-type-options"], "nosniff");
    assert!(!nobody.text().await.unwrap().contains("orgdata_"));
}

#[tokio::test]
async fn tls_and_users_work_together() {
    let server = Server::start(&format!("{TLS}{}", users())).await;
    let request = || client().build().unwrap().get(server.https("/metrics"));
    assert_eq!(
        request().send().await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        request()
            .basic_auth("bob", Some("other"))
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn an_empty_list_of_users_is_no_authentication() {
    for config in [
        "",
        "basic_auth_users:\n",
        "basic_auth_users: {}\n",
        "# nothing\n",
    ] {
        let server = Server::start(config).await;
        assert_eq!(
            client()
                .build()
                .unwrap()
                .get(server.http("/metrics"))
                .send()
                .await
                .unwrap()
                .status(),
            StatusCode::OK,
            "{config:?}"
        );
    }
}

#[tokio::test]
async fn a_flood_of_wrong_passwords_does_not_stall_a_scraper() {
    // As dear as they come in practice: each check takes a processor for a good while.
    let server = Server::start(&format!(
        "basic_auth_users:\n  alice: {}\n",
        bcrypt::hash("right", 11).unwrap()
    ))
    .await;
    assert_eq!(
        ask(&server, "/metrics", "alice", "right").await.status(),
        StatusCode::OK
    );
    let one = Instant::now();
    assert_eq!(
        ask(&server, "/metrics", "alice", "wrong").await.status(),
        StatusCode::UNAUTHORIZED
    );
    let one = one.elapsed();
    let url = server.http("/metrics");
    let flood: Vec<_> = (0..200)
        .map(|attempt| {
            let request = client()
                .build()
                .unwrap()
                .get(&url)
                .basic_auth("alice", Some(format!("wrong {attempt}")));
            tokio::spawn(async move { request.send().await.unwrap().status() })
        })
        .collect();
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(
            ask(&server, "/metrics", "alice", "right").await.status(),
            StatusCode::OK
        );
    }
    assert!(
        start.elapsed() < one * 20 + Duration::from_secs(2),
        "{:?} for five scrapes, {one:?} for a check",
        start.elapsed()
    );
    let statuses = futures_util::future::join_all(flood).await;
    let count = |wanted| {
        statuses
            .iter()
            .filter(|status| *status.as_ref().unwrap() == wanted)
            .count()
    };
    assert_eq!(
        count(StatusCode::UNAUTHORIZED) + count(StatusCode::TOO_MANY_REQUESTS),
        200
    );
    assert!(
        count(StatusCode::TOO_MANY_REQUESTS) > 100,
        "what waits is bounded"
    );
}

#[tokio::test]
async fn configured_headers_are_on_every_answer_before_the_usual_ones() {
    let headers = "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n    Strict-Transport-Security: max-age=600\n    X-XSS-Protection: 1\n    Content-Security-Policy: \"default-src 'self'\"\n";
    let server = Server::start(&format!("{headers}{}", users())).await;
    for (path, password) in [
        ("/metrics", "right"),
        ("/no", "right"),
        ("/metrics", "wrong"),
    ] {
        let response = ask(&server, path, "alice", password).await;
        let header = |name: &str| {
            response
                .headers()
                .get_all(name)
                .iter()
                .map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(header("x-frame-options"), ["sameorigin"]);
        assert_eq!(header("strict-transport-security"), ["max-age=600"]);
        assert_eq!(header("x-xss-protection"), ["1"]);
        assert_eq!(header("referrer-policy"), ["no-referrer"]);
        assert_eq!(header("content-security-policy"), ["default-src 'self'"]);
    }
    // The page for people has one of its own, without which it would have no style.
    assert!(
        ask(&server, "/", "alice", "right").await.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("nonce-")
    );
}

#[tokio::test]
async fn past_the_rate_limit_requests_are_refused_with_the_headers() {
    let server =
        Server::start("rate_limit:\n  interval: 1h\n  burst: 2\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n").await;
    let statuses = [(); 4].map(|()| {
        client()
            .build()
            .unwrap()
            .get(server.http("/metrics"))
            .send()
    });
    let answers = futures_util::future::join_all(statuses).await;
    let refused: Vec<&Response> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap())
        .filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)
        .collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused
            .iter()
            .all(|answer| answer.headers()["x-frame-options"] == "deny")
    );
}
