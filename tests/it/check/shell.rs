//! Completions and manual pages: valid, whole, and made from the flags themselves.

use std::process::Command;

use clap::CommandFactory as _;
use orgdata_exporter::cli::Cli;

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
async fn help_lists_the_commands() {
    let help = printed(&["--help"]).await;
    for command in ["check", "completions", "man"] {
        assert!(
            help.lines()
                .any(|line| line.split_whitespace().next() == Some(command)),
            "{command}"
        );
    }
    let of_check = printed(&["check", "--help"]).await;
    for words in [
        "--api.base-url",
        "ORGDATA_STATE_PATH",
        "--format",
        "Exit status: 0",
    ] {
        assert!(of_check.contains(words), "{words}");
    }
}

#[tokio::test]
async fn bash_completes_flags_and_commands() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("completions.bash");
    std::fs::write(&script, printed(&["completions", "bash"]).await).expect("writable");
    let checked = Command::new("bash")
        .arg("-n")
        .arg(&script)
        .output()
        .expect("there is a bash");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    for (words, completion) in [
        (&["orgdata-exporter", "--api.ba"][..], "--api.base-url"),
        (&["orgdata-exporter", "che"], "check"),
        (&["orgdata-exporter", "check", "--state.p"], "--state.path"),
        (&["orgdata-exporter", "check", "--format", "j"], "json"),
        (&["orgdata-exporter", "dead-letters", "re"], "replay"),
    ] {
        let quoted = words
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" ");
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let program = format!(
            "source '{}'; COMP_WORDS=({quoted}); COMP_CWORD={}; _orgdata__exporter orgdata-exporter '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.len() - 1
        );
        let run = Command::new("bash")
            .args(["-c", &program])
            .output()
            .expect("there is a bash");
        let completions = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(
            completions.trim(),
            completion,
            "{words:?}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

#[tokio::test]
async fn every_shell_has_completions_of_every_flag() {
    let command = Cli::command();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = printed(&["completions", shell]).await;
        for flag in command
            .get_arguments()
            .filter_map(|argument| argument.get_long())
        {
            assert!(text.contains(flag), "{flag} is missing for {shell}");
        }
    }
    let wrong = launch(&["completions", "dos"]).run().await;
    assert!(wrong.refusal(2).contains("bash"), "{}", wrong.stderr);
}

#[tokio::test]
async fn the_manual_has_every_flag_variable_and_command() {
    let command = Cli::command();
    let page = printed(&["man"]).await;
    // Dashes are escaped in roff.
    let plain = page.replace("\\-", "-");
    assert!(page.contains(".TH orgdata-exporter 1"), "{}", &page[..200]);
    for argument in command.get_arguments() {
        let flag = argument.get_long().expect("each has a long form");
        assert!(plain.contains(&format!("--{flag}\\fR")), "{flag}");
        if let Some(variable) = argument.get_env() {
            assert!(
                plain.contains(variable.to_str().expect("UTF-8")),
                "{variable:?}"
            );
        }
    }
    for name in command.get_subcommands().map(clap::Command::get_name) {
        assert!(
            plain.contains(&format!("orgdata-exporter-{name}(1)")),
            "{name}"
        );
        let page = printed(&["man", name]).await;
        assert!(
            page.contains(&format!(".TH orgdata-exporter-{name} 1")),
            "{}",
            &page[..200]
        );
    }
    let nested = printed(&["man", "dead-letters", "list"]).await;
    assert!(
        nested.contains(".TH orgdata-exporter-dead-letters-list 1")
            && nested.replace("\\-", "-").contains("--state.path")
    );
    let wrong = launch(&["man", "chek"]).run().await;
    assert!(
        wrong.refusal(2).contains("chek") && wrong.stderr.contains("check"),
        "{}",
        wrong.stderr
    );
}

#[tokio::test]
async fn a_page_does_not_hold_what_the_variables_of_its_maker_hold() {
    let finished = launch(&["man"])
        .env("ORGDATA_API_BASE_URL", "https://secret.example")
        .run()
        .await;
    assert!(!finished.stdout.contains("secret.example"));
}

/// Where groff is installed; its absence proves nothing either way, and the content is checked above.
#[tokio::test]
async fn groff_has_no_complaint() {
    if Command::new("groff").arg("--version").output().is_err() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.1");
    std::fs::write(&page, printed(&["man"]).await).expect("writable");
    let run = Command::new("groff")
        .args(["-man", "-Tascii", "-ww"])
        .arg(&page)
        .output()
        .expect("it was there");
    let text = String::from_utf8_lossy(&run.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        run.status.success()
            && run.stderr.is_empty()
            && text.contains("Items asked for in one request"),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}
