//! The API key: found, trimmed, refused without being shown, rotated, and never in a log.

use orgdata_exporter::simulator::{ApiKey, Config, Simulator};

use crate::support::binary::{KEY, exporter, launch, until};

const UP: &str = "orgdata_up{loop=\"audit\"}";
const URL: &str = "--api.base-url=https://api.example.com";

#[tokio::test]
async fn without_a_key_it_says_where_to_put_one() {
    let finished = launch(&[URL]).run().await;
    let line = finished.refusal(2);
    assert!(
        line.contains("--api.key-file") && line.contains("ORGDATA_API_KEY"),
        "{line}"
    );
}

#[tokio::test]
async fn a_key_file_that_is_none_is_named() {
    let launch = launch(&[URL]);
    let directory = launch.dir().display().to_string();
    for path in ["/nonexistent/key", &directory, "/dev/null", "/dev/zero"] {
        let finished = crate::support::binary::launch(&[URL, &format!("--api.key-file={path}")])
            .run()
            .await;
        let line = finished.refusal(2);
        assert!(
            line.contains("--api.key-file") && line.contains(path),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_secret_that_is_not_made_yet_is_awaited() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let launch = exporter(&sim.base_url())
        .without_env("ORGDATA_API_KEY")
        .arg("--api.key-file=mounted/key");
    let mounted = launch.dir().join("mounted");
    std::fs::create_dir_all(mounted.join("..data")).expect("writable");
    let exporter = launch.start();
    assert_eq!(
        exporter.get("/-/ready").await.0,
        200,
        "the application beside it is not held up"
    );
    exporter
        .stderr()
        .until("what is missing", |line| {
            line.contains("cannot read the API key file mounted/key")
        })
        .await;
    exporter.until_value(UP, 0.0).await;
    std::fs::write(mounted.join("key"), KEY).expect("writable");
    exporter.until_value(UP, 1.0).await;

    // Among other files it is a mistyped name.
    let launch = crate::support::binary::launch(&[URL, "--api.key-file=mounted/kye"]);
    std::fs::create_dir(launch.dir().join("mounted")).expect("writable");
    std::fs::write(launch.dir().join("mounted/key"), KEY).expect("writable");
    assert!(launch.run().await.refusal(2).contains("mounted/kye"));
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_is_refused_and_not_shown() {
    for key in [
        "hunter2\nhunter2",
        "hunter2\u{7}hunter2",
        "hunter2\u{e9}hunter2",
        "hunter2\u{7f}",
    ] {
        let finished = launch(&[URL]).env("ORGDATA_API_KEY", key).run().await;
        let line = finished.refusal(2);
        assert!(
            line.contains("ORGDATA_API_KEY")
                && line.contains("printable ASCII")
                && !line.contains("hunter2"),
            "{line}"
        );

        let launch = launch(&[URL, "--api.key-file=key"]);
        std::fs::write(launch.dir().join("key"), key).expect("writable");
        let finished = launch.run().await;
        let line = finished.refusal(2);
        assert!(
            line.contains("--api.key-file")
                && line.contains("printable ASCII")
                && !line.contains("hunter2"),
            "{line}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_key_that_is_no_text_is_not_taken_for_a_missing_one() {
    use std::os::unix::ffi::OsStrExt as _;
    let finished = launch(&[URL])
        .os_env(
            "ORGDATA_API_KEY",
            std::ffi::OsStr::from_bytes(b"hunter2\xff"),
        )
        .run()
        .await;
    let line = finished.refusal(2);
    assert!(
        line.contains("printable ASCII") && !line.contains("hunter2"),
        "{line}"
    );
}

#[tokio::test]
async fn a_newline_at_the_end_of_the_key_is_an_editor_s() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let launch = exporter(&sim.base_url())
        .without_env("ORGDATA_API_KEY")
        .arg("--api.key-file=key");
    std::fs::write(launch.dir().join("key"), format!("{KEY}\r\n")).expect("writable");
    launch.start().until_value(UP, 1.0).await;
}

#[tokio::test]
async fn a_rotated_key_heals_without_a_restart_and_the_page_says_what_is_wrong_meanwhile() {
    let sim = Simulator::spawn(Config {
        keys: vec![ApiKey::full("the-new-key")],
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let launch = exporter(&sim.base_url())
        .without_env("ORGDATA_API_KEY")
        .arg("--api.key-file=key");
    let file = launch.dir().join("key");
    std::fs::write(&file, "the-old-key").expect("writable");
    let mut exporter = launch.start();
    until("a refusal", async || {
        (sim.requests().audit > 0 && sim.requests().tickets > 0).then_some(())
    })
    .await;
    exporter
        .until_value(
            "orgdata_api_request_failures_total{endpoint=\"tickets\",reason=\"unauthorized\"}",
            1.0,
        )
        .await;
    let page = until("the error on the page", async || {
        let (_, page) = exporter.get("/").await;
        page.contains("HTTP 401").then_some(page)
    })
    .await;
    assert!(
        page.contains("does not accept the API key") && !page.contains("the-old-key"),
        "{page}"
    );
    assert_eq!(exporter.value(UP).await, Some(0.0));
    assert_eq!(
        (
            exporter.get("/-/healthy").await.0,
            exporter.get("/-/ready").await.0
        ),
        (200, 200)
    );

    std::fs::write(&file, "the-new-key\n").expect("writable");
    exporter.until_value(UP, 1.0).await;
    exporter
        .until_value("orgdata_up{loop=\"tickets\"}", 1.0)
        .await;
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert!(
        log.contains("HTTP 401") && !log.contains("the-old-key") && !log.contains("the-new-key"),
        "{log}"
    );
}

#[tokio::test]
async fn a_scope_that_is_missing_is_named_and_the_other_loop_goes_on() {
    let sim = Simulator::spawn(Config {
        keys: vec![ApiKey::scoped(KEY, &["tickets:read"])],
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let exporter = exporter(&sim.base_url()).start();
    exporter
        .until_value("orgdata_up{loop=\"tickets\"}", 1.0)
        .await;
    exporter
        .stderr()
        .until("the missing scope", |line| {
            line.contains("HTTP 403") && line.contains("activity_logs:read")
        })
        .await;
    assert_eq!(exporter.value(UP).await, Some(0.0));
}

#[tokio::test]
async fn the_key_is_in_no_line_at_the_finest_level() {
    let sim = Simulator::spawn(Config {
        history: 5,
        tickets: 5,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let mut exporter = exporter(&sim.base_url()).arg("--log.level=trace").start();
    exporter.until_value(UP, 1.0).await;
    // A failing request has more to tell.
    sim.fault("503,times=2".parse().expect("a fault"));
    sim.fault("reset,times=2".parse().expect("a fault"));
    exporter
        .stderr()
        .until("a retry", |line| line.contains("trying again"))
        .await;
    exporter.stop().await;
    let log = exporter.stderr().text();
    assert!(log.contains("listening") && !log.contains(KEY), "{log}");
}

#[tokio::test]
async fn a_token_in_the_collector_s_address_is_shown_nowhere() {
    let sim = Simulator::spawn(Config {
        history: 1,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let endpoint = "--otlp.endpoint=http://127.0.0.1:1/v1/logs?token=open-sesame";
    let exporter = exporter(&sim.base_url())
        .arg("--audit.start=oldest")
        .arg("--otlp.protocol=http/protobuf")
        .arg(endpoint)
        .start();
    exporter.until_value("orgdata_up{loop=\"otlp\"}", 0.0).await;
    let page = exporter.get("/").await.1;
    assert!(page.contains("http://127.0.0.1:1/v1/logs"), "{page}");
    for text in [page, exporter.metrics().await, exporter.stderr().text()] {
        assert!(!text.contains("sesame"), "{text}");
    }
}
