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
    for argument in command.get_arguments() {
        let flag = argument.get_long().unwrap();
        assert!(page.contains(&format!("--{flag}\\fR")), "{flag}");
        let variable = argument.get_env().unwrap_or_default().to_string_lossy();
        assert!(page.contains(&*variable), "{flag}");
    }
    for name in command.get_subcommands().map(clap::Command::get_name) {
        let own = printed(&["man", name]).await;
        assert!(
            own.contains(&format!(".TH orgdata-exporter-{name} 1")),
            "{own}"
        );
        assert!(
            page.contains(&format!("orgdata-exporter-{name}(1)")),
            "{name}"
        );
    }
    let nested = printed(&["man", "dead-letters", "list"]).await;
    assert!(nested.contains(".TH orgdata-exporter-dead-letters-list 1"));
    assert!(nested.replace("\\-", "-").contains("--state.path"));
    launch(&["man", "chek"]).refused(2, "chek | check").await;
    assert!(
        printed(&["completions", "zsh"])
            .await
            .contains("otlp.endpoint")
    );
    launch(&["completions", "dos"]).refused(2, "bash").await;
}
