//! The command `dead-letters`: lists, replays and deletes what could not be delivered or read, also beside a running exporter.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use strum::VariantArray as _;

use super::{Failure, print, printed};
use crate::audit::Entry;
use crate::cli::values;
use crate::cli::{DEFAULT_STATE_PATH, with_variable};
use crate::ledger::{DeadLetters, DeadReason, RecordKind, Stored, StoredLetter};
use crate::util::one_line;

/// The maximum length of a message in the table, in characters.
const MAX_MESSAGE: usize = 100;

/// `dead-letters`.
#[derive(Clone, Debug, Args)]
#[command(mut_args = with_variable, arg_required_else_help = false)]
pub struct DeadLettersArgs {
    /// The exporter's state file
    #[arg(id = "state.path", long, value_name = "FILE", default_value = DEFAULT_STATE_PATH)]
    #[arg(global = true)]
    path: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List them, oldest first
    List(ListArgs),
    /// Queue them for another delivery: the running exporter sends them within seconds, otherwise the next one to start
    Replay(ChangeArgs),
    /// Delete them
    Drop(ChangeArgs),
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// Only those with this reason
    #[arg(long, value_parser = reason(), ignore_case = true)]
    reason: Option<DeadReason>,
    /// A table, or one JSON object with the whole record per line
    #[arg(long, default_value = "table", ignore_case = true)]
    format: ListFormat,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct ChangeArgs {
    /// Their numbers, as `list` shows them
    #[arg(value_name = "NUMBER")]
    ids: Vec<i64>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Those with this reason
    #[arg(long, value_parser = reason(), ignore_case = true)]
    reason: Option<DeadReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    Table,
    Json,
}

/// A line of `--format json`.
#[derive(Serialize)]
struct JsonLetter<'a> {
    #[serde(flatten)]
    stored: &'a StoredLetter,
    kind: RecordKind,
    arrived_at: Timestamp,
    /// The record as it is, or a string if it is not JSON.
    record: Box<RawValue>,
}

/// Runs the command.
///
/// # Errors
/// If the file cannot be opened or changed, or the output cannot be written.
pub fn run(args: DeadLettersArgs) -> Result<(), Failure> {
    let Some(path) = values::state_path(&args.path) else {
        return Err(Failure::in_settings(
            "--state.path :memory: is inside the exporter's process, where this command cannot see it; give the exporter a file",
        ));
    };
    let letters = DeadLetters::open(&path)?;
    match args.action {
        Action::List(args) => list(&letters, &args, &mut io::stdout().lock()),
        Action::Replay(args) => {
            let queued = letters.replay(&select(&letters, &args)?)?;
            if queued == 0 {
                return print("There are no dead letters to queue.\n");
            }
            print(format!(
                "{queued} queued; a running exporter sends them within seconds, otherwise the next one to start; without a collector, nothing sends them (--otlp.endpoint)\n"
            ))
        }
        Action::Drop(args) => {
            let deleted = letters.drop_letters(&select(&letters, &args)?)?;
            print(format!("{deleted} deleted\n"))
        }
    }
}

fn reason() -> impl clap::builder::TypedValueParser<Value = DeadReason> {
    PossibleValuesParser::new(DeadReason::VARIANTS.iter().map(<&str>::from))
        .try_map(|word| word.to_lowercase().parse::<DeadReason>())
}

/// Returns the numbers. One that does not exist is an error, so that a typing error does not go unnoticed.
fn select(letters: &DeadLetters, args: &ChangeArgs) -> Result<Vec<i64>, Failure> {
    let existing = letters.ids(args.reason)?;
    if args.all || args.reason.is_some() {
        return Ok(existing);
    }
    let ids: BTreeSet<i64> = args.ids.iter().copied().collect();
    match ids.iter().find(|id| !existing.contains(id)) {
        None => Ok(ids.into_iter().collect()),
        Some(id) => Err(Failure::in_settings(format!(
            "there is no dead letter {id}, so nothing was changed; see `orgdata-exporter dead-letters list`"
        ))),
    }
}

fn list(letters: &DeadLetters, args: &ListArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let ids = letters.ids(args.reason)?;
    let mut result = match args.format {
        ListFormat::Table if ids.is_empty() => writeln!(out, "There are no dead letters."),
        ListFormat::Table => writeln!(
            out,
            "{:>6}  {:<20}  {:<15}  {:<6}  {:<36}  MESSAGE",
            "NUMBER", "KEPT SINCE", "REASON", "QUEUED", "RECORD"
        ),
        ListFormat::Json => Ok(()),
    };
    for id in ids {
        if result.is_err() {
            break;
        }
        if let Some(stored) = letters.letter(id)? {
            result = match args.format {
                ListFormat::Json => json_line(&stored, out),
                ListFormat::Table => row(&stored, out),
            };
        }
    }
    printed(result)
}

fn row(stored: &StoredLetter, out: &mut dyn Write) -> io::Result<()> {
    let letter = &stored.letter;
    let record = Stored::read(letter.line.as_bytes());
    let id = Entry::read(&record.entry)
        .id_text()
        .unwrap_or("null".into());
    let queued = if stored.queued { "yes" } else { "no" };
    writeln!(
        out,
        "{:>6}  {:<20}  {:<15}  {queued:<6}  {:<36}  {}",
        stored.id,
        format!("{:.0}", stored.rejected_at),
        letter.reason.as_ref(),
        one_line(&id, MAX_MESSAGE),
        one_line(&letter.message, MAX_MESSAGE),
    )
}

fn json_line(stored: &StoredLetter, out: &mut dyn Write) -> io::Result<()> {
    let Stored {
        kind,
        arrived,
        entry,
        ..
    } = Stored::read(stored.letter.line.as_bytes());
    // In JSON, a line break can occur only between tokens, where a space is equivalent.
    let record = RawValue::from_string(entry.replace(['\n', '\r'], " "));
    let line = JsonLetter {
        stored,
        kind,
        arrived_at: arrived,
        record: record.or_else(|_| to_raw_value(&entry))?,
    };
    serde_json::to_writer(&mut *out, &line)?;
    writeln!(out)
}
