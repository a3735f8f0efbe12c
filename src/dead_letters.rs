//! The command `dead-letters`: what could not be delivered or read, for an operator, beside a running exporter or without one.

use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ledger::{
    DeadLetters, DeadReason, OpenError, RecordKind, Selection, StatePath, StoredLetter,
};

/// Characters of the message and of the activity type that a line of the table shows.
const SHOWN: usize = 100;

/// `dead-letters`.
#[derive(Clone, Debug, Args)]
pub struct DeadLettersArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with dead letters.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// List them, the oldest first
    List {
        /// Whose.
        #[command(flatten)]
        file: FileArgs,
        /// Only those condemned for this reason
        #[arg(long, value_name = "REASON")]
        reason: Option<Reason>,
        /// A table, or a JSON object with the whole record in each line
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        format: Format,
    },
    /// Queue them for another delivery, which the running exporter carries out within seconds, or the next one to start
    Replay {
        /// Whose.
        #[command(flatten)]
        file: FileArgs,
        /// Which.
        #[command(flatten)]
        which: Which,
    },
    /// Delete them for good
    Drop {
        /// Whose.
        #[command(flatten)]
        file: FileArgs,
        /// Which.
        #[command(flatten)]
        which: Which,
    },
}

/// The state file.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// The exporter's state file
    #[arg(
        id = "state.path",
        long = "state.path",
        env = "ORGDATA_STATE_PATH",
        value_name = "FILE",
        default_value = crate::cli::DEFAULT_STATE_PATH
    )]
    pub path: String,
}

/// A choice of dead letters.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// Their numbers, as `list` shows them
    #[arg(value_name = "NUMBER")]
    pub ids: Vec<i64>,
    /// All of them
    #[arg(long)]
    pub all: bool,
    /// Those condemned for this reason
    #[arg(long, value_name = "REASON")]
    pub reason: Option<Reason>,
}

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Reason {
    /// An audit entry that cannot be read.
    Malformed,
    /// The collector refused this very record for good.
    Refused,
    /// The record alone is larger than the collector takes.
    TooLarge,
    /// It was in a request of which the collector refused some records without saying which.
    PartlyRejected,
}

/// How a listing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Why the command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The state file.
    #[error(transparent)]
    State(#[from] OpenError),
    /// There is no file to look into.
    #[error(
        "with --state.path :memory: the dead letters are in the exporter's memory, where no other process can see them; give the exporter a file"
    )]
    InMemory,
    /// A number that no dead letter has; nothing was changed.
    #[error(
        "of the numbers given ({asked}) only {found} are those of dead letters, so nothing was changed; see `orgdata-exporter dead-letters list`"
    )]
    Unknown {
        /// How many there are.
        found: usize,
        /// How many were named.
        asked: usize,
    },
    /// Nobody reads the output, or the disk is full.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// A line of `--format json`.
#[derive(Serialize)]
struct Line<'a> {
    id: i64,
    condemned_at: String,
    arrived_at: String,
    reason: &'a str,
    message: &'a str,
    kind: &'a str,
    queued: bool,
    record: Record<'a>,
}

/// The record: its JSON as it is, or a string where it is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Record<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

// === impl CommandError ===

impl CommandError {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::State(OpenError::Sqlite { .. }) | Self::Output(_) => 1,
            Self::State(_) | Self::InMemory | Self::Unknown { .. } => 2,
        }
    }
}

// === impl Reason ===

impl From<Reason> for DeadReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Malformed => Self::Malformed,
            Reason::Refused => Self::Refused,
            Reason::TooLarge => Self::TooLarge,
            Reason::PartlyRejected => Self::PartlyRejected,
        }
    }
}

// === impl Which ===

impl Which {
    fn selection(self) -> Selection {
        match (self.all, self.reason) {
            (true, _) => Selection::All,
            (_, Some(reason)) => Selection::Reason(reason.into()),
            _ => {
                let mut ids = self.ids;
                ids.sort_unstable();
                ids.dedup();
                Selection::Ids(ids)
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Where the file cannot be opened or changed, or the output not written.
pub fn run(args: DeadLettersArgs, out: &mut dyn Write) -> Result<(), CommandError> {
    match args.action {
        Action::List {
            file,
            reason,
            format,
        } => {
            let selection =
                reason.map_or(Selection::All, |reason| Selection::Reason(reason.into()));
            list(&open(&file)?, &selection, format, out)
        }
        Action::Replay { file, which } => {
            let letters = open(&file)?;
            let selection = known(&letters, which.selection())?;
            match letters.replay(&selection)? {
                0 => writeln!(out, "There are no such dead letters.")?,
                queued => writeln!(
                    out,
                    "{queued} queued; the running exporter sends them within seconds, or the next one to start"
                )?,
            }
            Ok(())
        }
        Action::Drop { file, which } => {
            let letters = open(&file)?;
            let selection = known(&letters, which.selection())?;
            writeln!(out, "{} deleted", letters.drop_letters(&selection)?)?;
            Ok(())
        }
    }
}

fn open(file: &FileArgs) -> Result<DeadLetters, CommandError> {
    match StatePath::parse(&file.path) {
        StatePath::Memory => Err(CommandError::InMemory),
        StatePath::File(path) => Ok(DeadLetters::open(Path::new(&path))?),
    }
}

/// A wrong number must not go unnoticed.
fn known(letters: &DeadLetters, selection: Selection) -> Result<Selection, CommandError> {
    if let Selection::Ids(ids) = &selection {
        let mut found = 0;
        letters.list(&selection, |_| {
            found += 1;
            true
        })?;
        if found < ids.len() {
            return Err(CommandError::Unknown {
                found,
                asked: ids.len(),
            });
        }
    }
    Ok(selection)
}

fn list(
    letters: &DeadLetters,
    selection: &Selection,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let (mut written, mut count) = (Ok(()), 0_u64);
    letters.list(selection, |stored| {
        if count == 0 && format == Format::Table {
            written = writeln!(
                out,
                "{:>6}  {:<20}  {:<15}  {:<6}  {:<36}  MESSAGE",
                "NUMBER", "CONDEMNED AT", "REASON", "QUEUED", "RECORD"
            );
        }
        count += 1;
        written = std::mem::replace(&mut written, Ok(())).and_then(|()| match format {
            Format::Table => row(&stored, out),
            Format::Json => line(&stored, out),
        });
        written.is_ok()
    })?;
    written?;
    if count == 0 && format == Format::Table {
        writeln!(out, "There are no dead letters.")?;
    }
    Ok(())
}

fn row(stored: &StoredLetter, out: &mut dyn Write) -> io::Result<()> {
    let letter = &stored.letter;
    let record: serde_json::Value = serde_json::from_str(&letter.raw).unwrap_or_default();
    let id = match &record["id"] {
        serde_json::Value::String(id) => id.clone(),
        serde_json::Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    writeln!(
        out,
        "{:>6}  {:<20}  {:<15}  {:<6}  {:<36}  {}",
        stored.id,
        stored
            .condemned_at
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        letter.reason.as_str(),
        if stored.queued { "yes" } else { "no" },
        tame(&id),
        tame(&letter.message),
    )
}

/// Somebody else's text on one line of a terminal: bounded, without control characters.
fn tame(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(SHOWN)
        .collect()
}

fn line(stored: &StoredLetter, out: &mut dyn Write) -> io::Result<()> {
    let letter = &stored.letter;
    // A line break can only stand between the tokens of JSON, where a space does as well.
    let raw = letter.raw.replace(['\n', '\r'], " ");
    let record =
        serde_json::from_str::<&RawValue>(&raw).map_or(Record::Text(&letter.raw), Record::Json);
    let line = Line {
        id: stored.id,
        condemned_at: stored.condemned_at.to_string(),
        arrived_at: letter.arrived_at.to_string(),
        reason: letter.reason.as_str(),
        message: &letter.message,
        kind: if letter.kind == RecordKind::Gap {
            "gap"
        } else {
            "entry"
        },
        queued: stored.queued,
        record,
    };
    serde_json::to_writer(&mut *out, &line)?;
    writeln!(out)
}
