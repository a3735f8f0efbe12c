//! The command `verify`: lists a window of the audit logs again, and compares it with an export of the log store.
//!
//! First the window is listed, then the export is read once, and then the window is listed again to name the missing entries and to send them.
//! So memory depends on the number of entries in the window alone.

mod export;
mod listing;
mod offline;
mod report;
mod send;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use jiff::Timestamp;
use orgdata_api::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Failure, ReportFormat};
use crate::audit::{Entry, Excluded, Start};
use crate::cli::{self, ExporterSettings, Flags, values};
use crate::ledger::{DeadLetters, EventId, OWN_ID, OpenError, Stored};
use crate::util::counted;
use export::{ExportSummary, Record};
use listing::{Listing, PATIENCE};
use offline::Offline;
use report::{Output, not_compared};
use send::Sending;

/// The window ends this long before the last re-read that is surely complete: records need a moment to be delivered and indexed.
const DELIVERY: Duration = Duration::from_secs(600);

/// The maximum number of ids that are kept to be shown, of those that are there twice and of unknown ones.
const MAX_KEPT: usize = 1000;

/// `verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// The export: JSON lines with log.record.uid, or - for standard input. If it is empty, everything is missing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The beginning of the window: oldest, a duration ago like 7d, or a time like 2026-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = values::start, required_unless_present = "offline")]
    from: Option<Start>,
    /// The end of the window, excluded: now, a duration ago, or a time
    /// [default: --audit.reread-window, --audit.reread-interval and ten minutes ago, so that late entries have been delivered]
    #[arg(long, value_name = "WHEN", value_parser = values::start)]
    until: Option<Start>,
    /// Send the missing entries to the collector as log records
    #[arg(long)]
    send_missing: bool,
    /// Judge the export alone, by the numbers of its records and its checkpoints, without the API
    #[arg(long, conflicts_with_all = ["from", "until", "send_missing"])]
    offline: bool,
    /// Lines for people, or one JSON object per line
    #[arg(long, default_value = "text", ignore_case = true)]
    format: ReportFormat,
    /// The exporter's flags.
    #[command(flatten)]
    flags: Flags,
}

/// The times that are compared: those of creation, without the end.
type Window = Range<Timestamp>;

/// An entry of the listing.
#[derive(Clone, Copy, Debug)]
struct Listed {
    id: EventId,
    /// How often the export has it.
    found: u32,
    expected: Expected,
}

/// Whether the export has to have an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    /// It is not in the window, or is excluded.
    No,
    /// It has no id to look for.
    WithoutId,
    /// It was created before the state file.
    Before,
    Yes,
}

/// What the export says about the listing.
struct Compared {
    /// Sorted by id.
    listed: Vec<Listed>,
    window: Window,
    /// Records that the API does not list, and that are not in the window or have no time.
    outside: u64,
    /// Records that the API does not list although they are in the window, and the first of their ids.
    unknown: u64,
    unknown_ids: Vec<String>,
    /// The first ids that are there more than once.
    repeated: BTreeMap<EventId, String>,
}

/// The command at work.
struct Verify {
    args: VerifyArgs,
    client: Client,
    excluded: Excluded,
    from: Timestamp,
    report: Output,
    dead_letters: HashMap<EventId, i64>,
    /// Older entries were there before the state file, and are not expected.
    before: Option<Timestamp>,
    /// The organization's id.
    organization: Option<i64>,
    sending: Option<Sending>,
}

/// Hides the exporter's flags that have no effect here; they are accepted, because an exporter's variables may be set.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    const HIDDEN: [&str; 8] = [
        "tickets.",
        "web.",
        "metrics.",
        "log.",
        "shutdown.",
        "audit.enabled",
        "audit.poll-interval",
        "state.max-size",
    ];
    let id = argument.get_id().as_str();
    let is_hidden = HIDDEN.iter().any(|start| id.starts_with(start));
    let is_hidden = is_hidden && id != "metrics.hash-key-file";
    argument.hide(is_hidden)
}

/// Compares, prints the result, and sends what is missing.
///
/// # Errors
/// If a setting is wrong, the two cannot be compared, or something is missing.
pub async fn run(
    args: VerifyArgs,
    given: &ArgMatches,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let file: Box<dyn Read + Send> = match args.file.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(&args.file).map_err(|error| unreadable(&args.file, &error))?),
    };
    if args.offline {
        let mut report = Output::new(args.format, false);
        let read = read(&report, &args.file, file, Offline::default(), Offline::take);
        let stopped = || not_compared("stopped before the end");
        let read = shutdown.run_until_cancelled(read).await;
        report.bar.finish_and_clear();
        let (offline, export) = read.unwrap_or_else(|| Err(stopped()))?;
        return offline.judge(&export, &mut report);
    }
    let mut verify = Verify::new(args, given)?;
    let result = shutdown.run_until_cancelled(verify.run(file)).await;
    verify.report.bar.finish_and_clear();
    result.unwrap_or_else(|| {
        let accepted = verify.sending.map_or(0, |sending| sending.accepted);
        let sent = counted(accepted, "record was sent", "records were sent");
        Err(not_compared(format!("stopped before the end; {sent}")))
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    not_compared(format!("cannot read {}: {error}", path.display()))
}

/// Reads the export. `take` changes the state for each record.
async fn read<S: Send + 'static>(
    report: &Output,
    path: &Path,
    file: Box<dyn Read + Send>,
    mut state: S,
    take: fn(&mut S, Record),
) -> Result<(S, ExportSummary), Failure> {
    let length = path.metadata().ok().filter(|file| file.is_file());
    let template = match length {
        Some(_) => "reading the export [{bar:30}] {bytes}/{total_bytes}, {eta} left",
        None => "{spinner} reading the export: {bytes}",
    };
    let bar = report.show(template);
    length
        .into_iter()
        .for_each(|file| bar.set_length(file.len()));
    let file = bar.wrap_read(file);
    let work = tokio::task::spawn_blocking(move || {
        let export = export::read(file, |record| take(&mut state, record));
        export.map(|export| (state, export))
    });
    let work = work.await.map_err(io::Error::other).flatten();
    work.map_err(|error| unreadable(path, &error))
}

/// Returns when a state file was created, and the numbers of its dead letters.
fn stored(path: &Path) -> Result<(Timestamp, HashMap<EventId, i64>), OpenError> {
    let letters = DeadLetters::open(path)?;
    let mut numbers = HashMap::new();
    for number in letters.ids(None)? {
        if let Some(stored) = letters.letter(number)? {
            let record = Stored::read(stored.letter.line.as_bytes());
            numbers.insert(Entry::read(&record.entry).id, number);
        }
    }
    Ok((letters.file_created_at()?, numbers))
}

/// Returns the index of an entry.
fn position(listed: &[Listed], id: EventId) -> Result<usize, usize> {
    listed.binary_search_by_key(&id, |entry| entry.id)
}

// === impl Listed ===

impl Listed {
    fn is_missing(&self) -> bool {
        self.expected == Expected::Yes && self.found == 0
    }

    fn is_repeated(&self) -> bool {
        self.expected == Expected::Yes && self.found > 1
    }
}

// === impl Compared ===

impl Compared {
    fn take(&mut self, record: Record) {
        let Record { id, at, .. } = record;
        let identity = Entry::identity_of(&id);
        match position(&self.listed, identity) {
            _ if id.is_empty() || id.starts_with(OWN_ID) => {}
            Ok(index) => {
                let entry = &mut self.listed[index];
                entry.found = entry.found.saturating_add(1);
                if entry.is_repeated() && self.repeated.len() < MAX_KEPT {
                    self.repeated.insert(identity, id);
                }
            }
            Err(_) if at.is_some_and(|at| self.window.contains(&at)) => {
                self.unknown += 1;
                if self.unknown_ids.len() < MAX_KEPT {
                    self.unknown_ids.push(id);
                }
            }
            Err(_) => self.outside += 1,
        }
    }
}

// === impl Verify ===

impl Verify {
    fn new(args: VerifyArgs, given: &ArgMatches) -> Result<Self, Failure> {
        let mut flags = args.flags.clone();
        (flags.audit.enabled, flags.tickets.enabled) = (true, false);
        flags.web.config_file = None;
        let settings = ExporterSettings::resolve(&flags, &cli::variable);
        let settings = settings.map_err(Failure::of_settings)?;
        let (excluded, privacy) = match settings.audit {
            Some(audit) => (audit.excluded, audit.privacy),
            None => Default::default(),
        };
        let now = Timestamp::now();
        let is_default = given.value_source("state.path") == Some(ValueSource::DefaultValue);
        let (before, dead_letters) = match &settings.ledger.path {
            Some(path) if !is_default || path.exists() => {
                let (created_at, dead_letters) = stored(path)?;
                let start = args.flags.audit.start.from(created_at);
                // Who sends what is missing wants history too.
                let before = start.unwrap_or(created_at);
                (Some(before).filter(|_| !args.send_missing), dead_letters)
            }
            _ => Default::default(),
        };
        let sending = match (args.send_missing, settings.otlp) {
            (false, _) => None,
            (true, None) => {
                let message = "--send-missing needs a collector; set --otlp.endpoint";
                return Err(Failure::in_settings(message));
            }
            (true, Some(delivery)) => {
                let patience = settings.api.timeout * PATIENCE;
                let sending = Sending::new(delivery, privacy, patience);
                Some(sending.map_err(Failure::in_settings)?)
            }
        };
        let to_stderr = sending.as_ref().is_some_and(Sending::is_to_stdout);
        Ok(Self {
            client: Client::new(settings.api, ()).map_err(Failure::in_settings)?,
            excluded,
            from: args.from.and_then(|from| from.from(now)).unwrap_or(now),
            before,
            organization: None,
            report: Output::new(args.format, to_stderr),
            dead_letters,
            sending,
            args,
        })
    }

    async fn run(&mut self, file: Box<dyn Read + Send>) -> Result<(), Failure> {
        let (listed, window) = self.list().await?;
        let (mut compared, export) = self.read(file, listed, window.clone()).await?;
        let listed = &compared.listed;
        let count = |is_one: fn(&Listed) -> bool| {
            let those = listed.iter().filter(|entry| is_one(entry));
            those.count() as u64
        };
        let expected = count(|entry| entry.expected == Expected::Yes);
        let before = count(|entry| entry.expected == Expected::Before);
        let anonymous = count(|entry| entry.expected == Expected::WithoutId);
        let (missing, repeated) = (count(Listed::is_missing), count(Listed::is_repeated));
        for (identity, id) in &compared.repeated {
            let times = position(listed, *identity).map(|index| listed[index].found);
            let fields = [("id", json!(id)), ("times", json!(times.unwrap_or(0)))];
            self.report.line("repeated", &fields);
        }
        for id in &compared.unknown_ids {
            self.report.line("unknown", &[("id", json!(id))]);
        }
        let mut gone = missing;
        let named = self.name_missing(&mut compared.listed, &mut gone).await;
        let sent = self.sending.as_ref();
        let (accepted, rejected) = sent.map_or((0, 0), |sent| (sent.accepted, sent.rejected));
        let counts = [
            ("listed", "listed by the API", expected),
            ("found", "found in the export", expected - missing),
            ("missing", "missing", missing),
            ("repeated", "in the export more than once", repeated),
            ("unknown", "unknown to the API", compared.unknown),
            ("gone", "missing, and no longer listed by the API", gone),
            (
                "before_first_sync",
                "created before the state file, not compared",
                before,
            ),
            (
                "listed_without_id",
                "listed without an id, not compared",
                anonymous,
            ),
            ("outside", "records outside of the window", compared.outside),
            ("without_id", "lines without an id", export.without_id),
            ("broken", "lines that are not JSON", export.broken),
            ("long", "lines longer than 16 MiB", export.long),
            ("accepted", "sent and accepted", accepted),
            ("rejected", "sent and rejected", rejected),
        ];
        let api = self.client.settings();
        let filters = json!({
            "activity_types": api.filters.activity_types, "deal_ids": api.filters.deal_ids,
            "actor_emails": api.filters.actor_emails, "target_emails": api.filters.target_emails,
            "excluded": self.args.flags.otlp.exclude_activity_types,
        });
        let fields = [
            (
                "api",
                json!({ "host": api.base_url.host(), "organization": self.organization }),
            ),
            ("filters", filters),
            ("from", json!(window.start)),
            ("until", json!(window.end)),
        ];
        let title = format!("created from {:.3} until {:.3}:", window.start, window.end);
        self.report.summary(&title, &export, &fields, &counts)?;
        named.map_err(Failure::at_run_time)?;
        match missing == accepted {
            true => Ok(()),
            // The report says why.
            false => Err(Failure::new(1, "")),
        }
    }

    /// Lists the window. Returns the entries, sorted by id.
    async fn list(&mut self) -> Result<(Vec<Listed>, Window), Failure> {
        let mut listing = self.listing("listing audit logs");
        let (mut listed, mut oldest, mut window) = (Vec::new(), Timestamp::MAX, None);
        let cannot = |error| not_compared(format!("cannot compare: {error}"));
        while let Some(page) = listing.page().await.map_err(cannot)? {
            let window = match &mut window {
                Some(window) => window,
                none => none.insert(self.window(listing::now(&page))?),
            };
            for (entry, _, at) in listing.entries(&page) {
                oldest = at.min(oldest);
                self.organization = self.organization.or_else(|| entry.organization_id());
                listed.push(Listed {
                    id: entry.id,
                    found: 0,
                    expected: match self.expected(&entry, at) {
                        expected if window.contains(&at) => expected,
                        _ => Expected::No,
                    },
                });
            }
        }
        let Some(mut window) = window.filter(|_| !listed.is_empty()) else {
            let why = "the API lists no audit logs; check the key, and that the --audit filters match anything";
            return Err(cannot(why.to_owned()));
        };
        if listing.is_over && oldest < window.end {
            // The API may have nothing older.
            window.start = window.start.max(oldest);
        }
        listed.sort_unstable_by_key(|entry| entry.id);
        listed.dedup_by(|other, entry| {
            let is_same = other.id == entry.id;
            if is_same {
                entry.expected = entry.expected.max(other.expected);
            }
            is_same
        });
        Ok((listed, window))
    }

    /// Reads the export, and notes in the listing what it has.
    async fn read(
        &self,
        file: Box<dyn Read + Send>,
        listed: Vec<Listed>,
        window: Window,
    ) -> Result<(Compared, ExportSummary), Failure> {
        let path = &self.args.file;
        let compared = Compared {
            listed,
            window,
            outside: 0,
            unknown: 0,
            unknown_ids: Vec::new(),
            repeated: BTreeMap::new(),
        };
        let (compared, export) = read(&self.report, path, file, compared, Compared::take).await?;
        if export.records == 0 && export.lines > 0 {
            return Err(not_compared(format!(
                "cannot compare: {} has no id in {}; an id is a string at log.record.uid: in an attribute of OTLP JSON, one request or record per line; as the key log.record.uid; or as the key log_record_uid",
                path.display(),
                counted(export.lines, "line", "lines"),
            )));
        }
        Ok((compared, export))
    }

    /// Lists the window again, prints the missing entries, and sends them. `missing` becomes the number of those that are not listed again.
    async fn name_missing(
        &mut self,
        listed: &mut [Listed],
        missing: &mut u64,
    ) -> Result<(), String> {
        let mut listing = self.listing("listing the missing entries");
        let mut walked = Ok(());
        while *missing > 0 {
            let page = match listing.page().await {
                Ok(Some(page)) => page,
                end => {
                    walked = end.map(drop);
                    break;
                }
            };
            for (entry, json, at) in listing.entries(&page) {
                let one = position(listed, entry.id).map(|index| &mut listed[index]);
                let Some(one) = one.ok().filter(|one| one.is_missing()) else {
                    continue;
                };
                // Once.
                one.expected = Expected::No;
                *missing -= 1;
                let fields = [
                    ("created_at", json!(at)),
                    ("type", json!(entry.activity_type())),
                    ("id", json!(entry.id_text())),
                    ("dead_letter", json!(self.dead_letters.get(&entry.id))),
                ];
                self.report.line("missing", &fields);
                if let Some(sending) = &mut self.sending {
                    sending.add(json, at, listing::now(&page));
                    if sending.is_full() {
                        sending.send(&mut self.report).await?;
                    }
                }
            }
        }
        if let Some(sending) = &mut self.sending {
            sending.send(&mut self.report).await?;
        }
        walked.map_err(|error| format!("cannot list the missing entries: {error}"))
    }

    /// Returns the window, at the time of the first page.
    fn window(&self, now: Timestamp) -> Result<Window, Failure> {
        let until = match self.args.until {
            Some(until) => until.from(now).unwrap_or(now).min(now),
            None => {
                let audit = &self.args.flags.audit;
                let late = audit.reread_window.saturating_add(audit.reread_interval);
                let until = Start::Ago(late.saturating_add(DELIVERY)).from(now);
                until.unwrap_or(now)
            }
        };
        let from = self.from;
        if from >= until {
            return Err(Failure::in_settings(format!(
                "--from {from:.0} is not before the end of the window, {until:.0} (--until); the window is empty"
            )));
        }
        Ok(from..until)
    }

    /// Returns whether the exporter sends a log record of an entry of this time.
    fn expected(&mut self, entry: &Entry<'_>, at: Timestamp) -> Expected {
        let kind = entry.activity_type().unwrap_or_default();
        let is_sent =
            entry.matches(&self.client.settings().filters) && !self.excluded.records.matches(&kind);
        match is_sent {
            false => Expected::No,
            true if entry.id_text().is_none() => Expected::WithoutId,
            true if self.before.is_some_and(|before| at < before) => Expected::Before,
            true => Expected::Yes,
        }
    }

    /// Begins a walk, of which the bar shows this.
    fn listing(&self, what: &str) -> Listing {
        let template = format!("{{spinner}} {what}: {{human_pos}} {{msg}}");
        let bar = self.report.show(&template).clone();
        let page_size = self.args.flags.api.page_size;
        Listing::new(self.client.clone(), bar, self.from, page_size)
    }
}
