//! README's transcript is what the program prints.

use orgdata_exporter::simulator::{ApiKey, Config, Simulator};

use super::support::organization;
use crate::support::binary::{KEY, launch};

const README: &str = include_str!("../../../README.md");

/// The line without what differs from run to run: numbers, and the width of columns.
fn masked(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // How much is free decides the units too.
    if line.contains("iB free") {
        return line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    }
    let mut masked = String::new();
    for letter in line.chars() {
        match letter {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            letter => masked.push(letter),
        }
    }
    masked
}

#[tokio::test]
async fn the_transcript_is_what_is_printed() {
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let sim = Simulator::spawn(Config {
        keys,
        ..organization()
    })
    .await
    .expect("a simulator");
    let url = format!("--api.base-url={}", sim.base_url());
    // The port of the transcript may be taken here.
    let run = launch(&["check", &url, "--web.listen-address=127.0.0.1:0"])
        .env("ORGDATA_API_KEY", KEY)
        .run()
        .await;
    let (_, told) = README
        .split_once("orgdata-exporter check --api.base-url http://127.0.0.1:8081\n")
        .expect("a transcript");
    let (told, _) = told.split_once("\n```\n").expect("its end");
    let place = |line: &str| !line.contains("--web.listen-address") && !line.contains(" listen ");
    let told: Vec<String> = told
        .lines()
        .filter(|line| place(line))
        .map(masked)
        .collect();
    let printed: Vec<String> = run
        .stdout
        .lines()
        .filter(|line| place(line))
        .map(masked)
        .collect();
    assert_eq!(told, printed);
    assert_eq!(run.status, Some(2));
}
