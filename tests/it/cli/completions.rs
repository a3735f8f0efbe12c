//! Completions and manual pages are there, name everything, and show no value of a variable.

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;

use crate::support::binary::launch;

async fn printed(arguments: &[&str]) -> String {
    let finished = launch(arguments).run().await;
    let ended = (finished.status, finished.stderr.as_str());
    assert_eq!(ended, (Some(0), ""), "{arguments:?}");
    finished.stdout
}

#[tokio::test]
async fn the_manual_has_every_flag_variable_and_command() {
    let command = Cli::command();
    let man = launch(&["man"]).env("ORGDATA_API_BASE_URL", "https://secret.example");
    // roff escapes dashes.
    let page = man.run().await.stdout.replace("\\-", "-");
    assert!(page.contains(".TH orgdata-exporter 1") && !page.contains("secret.example"));
    let wanted = ["--otlp.endpoint\\fR", "ORGDATA_OTLP_ENDPOINT"];
    assert!(wanted.iter().all(|text| page.contains(text)), "{page}");
    for name in command.get_subcommands().map(clap::Command::get_name) {
        let own = printed(&["man", name]).await;
        let title = format!(".TH orgdata-exporter-{name} 1");
        let is_listed = page.contains(&format!("orgdata-exporter-{name}(1)"));
        assert!(own.contains(&title) && is_listed, "{name}: {own}");
    }
    let nested = printed(&["man", "dead-letters", "list"]).await;
    assert!(nested.contains(".TH orgdata-exporter-dead-letters-list 1"));
    launch(&["man", "chek"]).refused(2, "chek | check").await;
    let zsh = printed(&["completions", "zsh"]).await;
    assert!(zsh.contains("--otlp.endpoint"), "{zsh}");
    launch(&["completions", "dos"]).refused(2, "bash").await;
}
