//! What the documentation says of commands: each command line can be run, and `check` prints what a page says that it prints.

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use orgdata_exporter::commands::Cli;
use orgdata_exporter::simulator::{ApiKey, Config};

use super::{Checked, check, expect, organization, service};
use crate::otlp::peer;
use crate::support::binary::{KEY, exporter};
use crate::support::files::{below, file};
use crate::support::service::spawn;

/// What runbooks say after `orgdata-exporter check`, and words of its report: beside an exporter that works, with a key that lacks a scope, and
/// with a filter that leaves out everything.
const SAID: &str = "
CommitsFailing: prints the free space of the disk => works: iB free on its disk
StateNearLimit: prints the number of waiting records and dead letters, and the free space of the disk => works: not delivered: 0 log records; 0 dead letters; | iB free on its disk
AuditStalled: also reads the state file and says if its disk hangs => works: state.db is in use by another process; not delivered
BacklogGrowing: sends the collector an empty request and prints its answer => works: collector | over grpc accepts log records
DeliveryDelayed: sends the collector an empty request and prints its answer => works: over grpc accepts log records
CollectorRejects: sends the collector an empty request and names the setting to change => fails: OTEL_EXPORTER_OTLP_HEADERS
AuditPaused: prints the answer of the collector, and the number of waiting records => works: over grpc accepts log records | 0 log records
KeyRefused: names the missing scope => scope: the key may lack the scope tickets:read
TicketSnapshotAbsent: for the scopes of the key => works: accepted for activity_logs:read and tickets:read
AuditDelayed: compares the clocks and reads a page from the API => works: clock | this machine's and the API's differ by | audit-logs    can be read
ActorsFolded: prints the settings that are given, and where each one is from => works: --tickets.scan-interval=1m (flag)
Throttled: prints the settings that are given, and where each one is from => works: --tickets.scan-interval=1m (flag)
NoActivity: shows whether the key still sees entries, and whether a filter leaves out everything => empty: there are no entries | the --audit filters match anything
";

/// Returns the pages, each on one line.
fn pages() -> Vec<(String, String)> {
    let mut pages = ["docs", "deploy", "dashboards"].map(below).concat();
    pages.retain(|(name, _)| [".md", ".txt"].iter().any(|end| name.ends_with(end)));
    pages.push(("README.md".to_owned(), file("README.md")));
    pages
}

#[tokio::test]
async fn check_prints_what_a_runbook_says() {
    let api = service().await;
    let grpc = peer("grpc", crate::otlp::DEFAULT_LIMIT).await;
    let running = exporter(&api.base_url()).on_disk();
    let file = running.dir().join("state.db");
    let running = running.otlp("grpc", &grpc.url()).start();
    running.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
    let works = check(&api.base_url())
        .state(&file)
        .otlp("grpc", &grpc.url())
        .flag("--web.listen-address", &running.address().to_string())
        .arg("--tickets.scan-interval=1m");
    let works = expect(works, "").await;
    let keys = vec![ApiKey::scoped(KEY, &["activity_logs:read"])];
    let scoped = spawn(Config {
        keys,
        ..organization()
    })
    .await;
    let scope = Checked(check(&scoped.base_url()).run().await.stdout);
    let none = check(&api.base_url()).arg("--audit.actor-emails=nobody@example.com");
    let empty = Checked(none.run().await.stdout);
    let refusing = peer("grpc", crate::otlp::DEFAULT_LIMIT).await;
    let status = tonic::Status::unauthenticated("no token");
    refusing.reply(crate::support::collector_peer::Reply::Status(status));
    let fails = check(&api.base_url()).otlp("grpc", &refusing.url());
    let fails = Checked(fails.run().await.stdout);

    let mut runbooks = below("dashboards/runbooks");
    for line in SAID.trim().lines() {
        let (page, rest) = line.split_once(": ").unwrap();
        let (said, rest) = rest.split_once(" => ").unwrap();
        let (report, words) = rest.split_once(": ").unwrap();
        let report = match report {
            "works" => &works,
            "scope" => &scope,
            "empty" => &empty,
            _ => &fails,
        };
        for words in words.split(" | ") {
            assert!(
                report.0.contains(words),
                "{page}: {words} is missing:\n{}",
                report.0
            );
        }
        let at = runbooks
            .iter()
            .position(|(name, _)| name.ends_with(&format!("{page}.md")));
        let (_, text) = runbooks.remove(at.expect(page));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, after) = text.split_once("orgdata-exporter check`").expect(page);
        let after = after.trim_start_matches([',', ' ']);
        let after = after.strip_prefix("which ").unwrap_or(after);
        assert!(after.starts_with(said), "{page} says: {}", &after[..80]);
    }
    for (name, text) in runbooks {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_named = text.contains("orgdata-exporter check");
        assert!(
            !is_named,
            "{name} says something of check that is not tested"
        );
    }
}

/// Returns the lines of code in a page: those within backticks, and indented ones.
fn code(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let spans = joined.split('`').skip(1).step_by(2);
    let mut lines: Vec<String> = Vec::new();
    for span in spans {
        lines.extend(span.lines().map(str::to_owned));
        // One may be broken by the end of a line.
        lines.extend((span.lines().count() == 2).then(|| span.replace('\n', " ")));
    }
    let indented = joined.lines().filter(|line| line.starts_with("    "));
    lines.extend(
        indented
            .filter(|line| !line.contains('`'))
            .map(str::to_owned),
    );
    lines
}

/// Returns the command lines in a page: what begins with the program's name and a command or a flag.
fn commands(text: &str) -> Vec<String> {
    let commands = Cli::command();
    let is_command = |word: &str| {
        let mut commands = commands.get_subcommands();
        commands.any(|command| command.get_name() == word)
    };
    let command = |line: String| {
        let (before, rest) = line.split_once("orgdata-exporter ")?;
        let rest = rest
            .split([';', '|', '>', '<', '#', '&', '"', '…'])
            .next()?
            .trim();
        let first = rest.split(' ').next()?;
        let is_first = before.trim_matches(['$', ' ']).is_empty() && first.starts_with("--");
        // helm has commands of the same names.
        let is_other = before.contains("helm ") || !(before.is_empty() || before.ends_with(' '));
        let is_form = rest.contains(" SHELL") || rest.contains('[');
        let is_ours = is_first || is_command(first) && !is_other && !is_form;
        is_ours.then(|| rest.to_owned())
    };
    code(text).into_iter().filter_map(command).collect()
}

#[test]
fn every_command_line_in_the_documentation_is_one() {
    let mut count = 0;
    for (name, text) in pages() {
        for command in commands(&text) {
            count += 1;
            let words = command
                .split_whitespace()
                .filter(|word| !word.starts_with('$'));
            let parsed =
                Cli::command().try_get_matches_from(["orgdata-exporter"].into_iter().chain(words));
            // A sentence may name a command or a flag without what it needs.
            let incomplete = [
                ErrorKind::MissingSubcommand,
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ];
            if let Err(error) = parsed {
                let is_incomplete = incomplete.contains(&error.kind())
                    || error.to_string().contains("a value is required");
                assert!(is_incomplete, "{name}: {command}: {error}");
            }
        }
    }
    assert!(count > 40, "{count}");
}
