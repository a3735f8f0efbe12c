//! Completions and manual pages: valid, complete, and generated from the flags.

use std::process::Command;

use clap::CommandFactory as _;
use orgdata_exporter::commands::Cli;

use crate::support::binary::launch;

async fn printed(arguments: &[&str]) -> String {
    let finished = launch(arguments).run().await;
    assert_eq!(
        (finished.status, finished.stderr.as_str()),
        (Some(0), ""),
        "{arguments:?}"
    );
    finished.stdout
}

#[tokio::test]
async fn bash_completes_flags_and_commands() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("completions.bash");
    std::fs::write(&script, printed(&["completions", "bash"]).await).unwrap();
    for (words, expected) in [
        ("orgdata-exporter --api.ba", "--api.base-url"),
        ("orgdata-exporter che", "check"),
        ("orgdata-exporter check --state.p", "--state.path"),
        ("orgdata-exporter check --format j", "json"),
        ("orgdata-exporter dead-letters re", "replay"),
    ] {
        let all: Vec<&str> = words.split(' ').collect();
        let [.., before, last] = all[..] else {
            unreachable!()
        };
        let program = format!(
            "source '{}'; COMP_WORDS=({words}); COMP_CWORD={}; _orgdata__exporter orgdata-exporter '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            all.len() - 1
        );
        let run = Command::new("bash")
            .args(["-c", &program])
            .output()
            .unwrap();
        let completed = String::from_utf8_lossy(&run.stdout);
        assert_eq!(
            completed.trim(),
            expected,
            "{words}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

#[tokio::test]
async fn every_shell_completes_every_flag() {
    let command = Cli::command();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = printed(&["completions", shell]).await;
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(text.contains(flag), "{flag} is missing for {shell}");
        }
    }
    let unknown = launch(&["completions", "dos"]).run().await;
    assert!(unknown.refusal(2).contains("bash"), "{unknown:?}");
}

#[tokio::test]
async fn the_manual_has_every_flag_variable_and_command() {
    let command = Cli::command();
    let finished = launch(&["man"])
        .env("ORGDATA_API_BASE_URL", "https://secret.example")
        .run()
        .await;
    // roff escapes dashes.
    let page = finished.stdout.replace("\\-", "-");
    assert!(page.contains(".TH orgdata-exporter 1") && !page.contains("secret.example"));
    for argument in command.get_arguments() {
        let flag = argument.get_long().unwrap();
        assert!(page.contains(&format!("--{flag}\\fR")), "{flag}");
        let variable = argument
            .get_env()
            .map(|name| name.to_string_lossy().into_owned());
        assert!(page.contains(&variable.unwrap_or_default()), "{flag}");
    }
    for name in command.get_subcommands().map(clap::Command::get_name) {
        let own = printed(&["man", name]).await;
        let is_named = page.contains(&format!("orgdata-exporter-{name}(1)"))
            && own.contains(&format!(".TH orgdata-exporter-{name} 1"));
        assert!(is_named, "{name}");
    }
    let nested = printed(&["man", "dead-letters", "list"])
        .await
        .replace("\\-", "-");
    assert!(
        nested.contains(".TH orgdata-exporter-dead-letters-list 1")
            && nested.contains("--state.path")
    );
    let wrong = launch(&["man", "chek"]).run().await;
    assert!(
        wrong.refusal(2).contains("chek") && wrong.stderr.contains("check"),
        "{wrong:?}"
    );
}
