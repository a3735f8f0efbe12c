//! The command `verify`: lists a window of the audit logs again, and compares it with an export of the log store.
//!
//! First the window is listed, then the export is read once, and then the window is listed again to name the missing entries and to send them.
//! So memory depends on the number of entries in the window alone.

mod export;
mod listing;
mod report;
mod send;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use orgdata_api::Client;
use otlp_logs::Target;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::audit::{Entry, Excluded, Start};
use crate::cli::{self, ExporterSettings, Flags, values};
use crate::ledger::{DeadLetters, EventId, OpenError, RecordKind};
use crate::metrics::Metrics;
use crate::util::{self, counted};
use export::Export;
use listing::Listing;
use report::{Report, ReportFormat, Summary};
use send::Sending;

/// The window ends this long before the last pass that is surely complete: records need a moment to be delivered and indexed.
const DELIVERY: SignedDuration = SignedDuration::from_mins(10);

/// A page of the API, or a request to the collector, is tried again for this many times `--api.timeout`.
const PATIENCE: u32 = 10;

/// The size of a read.
const BUFFER: usize = 256 << 10;

/// `verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// The export: JSON lines with log.record.uid, or - for standard input. Of an empty one, everything is missing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The beginning of the window: oldest, a duration ago like 7d, or a time like 2026-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = values::start)]
    from: Start,
    /// The end of the window, excluded: now, a duration ago, or a time
    /// [default: --audit.reread-interval and ten minutes ago, when late entries have been found and delivered]
    #[arg(long, value_name = "WHEN", value_parser = values::start)]
    until: Option<Start>,
    /// Send the missing entries to the collector as log records
    #[arg(long)]
    send_missing: bool,
    /// Lines for people, or one JSON object per line
    #[arg(long, default_value = "text", ignore_case = true)]
    format: ReportFormat,
    /// The exporter's flags.
    #[command(flatten)]
    flags: Flags,
}

/// The times that are compared: those of creation, without the end.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Timestamp,
    until: Timestamp,
}

/// An entry of the listing.
#[derive(Clone, Copy, Debug)]
struct Listed {
    id: EventId,
    /// How often the export has it.
    found: u32,
    /// It is in the window, and not excluded.
    is_expected: bool,
}

/// The command at work.
struct Verify {
    args: VerifyArgs,
    client: Client,
    excluded: Excluded,
    from: Timestamp,
    patience: Duration,
    bar: ProgressBar,
    report: Report,
    dead_letters: HashMap<EventId, String>,
    sending: Option<Sending>,
}

/// Hides the exporter's flags that have no effect here; they are accepted, because an exporter's variables may be set.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    const GROUPS: [&str; 5] = ["tickets.", "web.", "metrics.", "log.", "shutdown."];
    const FLAGS: [&str; 5] = [
        "audit.enabled",
        "audit.poll-interval",
        "audit.start",
        "audit.reread-window",
        "state.max-size",
    ];
    let id = argument.get_id().as_str();
    let is_hidden = GROUPS.iter().any(|group| id.starts_with(group)) || FLAGS.contains(&id);
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
    let file = open(&args.file)?;
    let mut verify = Verify::new(args, given)?;
    let result = shutdown.run_until_cancelled(verify.run(file)).await;
    verify.bar.finish_and_clear();
    result.unwrap_or_else(|| {
        let accepted = verify
            .sending
            .as_ref()
            .map_or(0, |sending| sending.accepted);
        let sent = counted(accepted, "record was sent", "records were sent");
        Err(not_compared(format!("stopped before the end; {sent}")))
    })
}

/// Exit status 2.
fn not_compared(message: impl Into<String>) -> Failure {
    Failure::new(2, message)
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    not_compared(format!("cannot read {}: {error}", path.display()))
}

/// Returns the dead letters of a state file as they are named in the report.
fn dead_letters(path: &Path) -> Result<HashMap<EventId, String>, OpenError> {
    let letters = DeadLetters::open(path)?;
    let mut named = HashMap::new();
    for id in letters.ids(None)? {
        let stored = letters.letter(id)?;
        if let Some(stored) = stored.filter(|stored| stored.letter.kind == RecordKind::Entry) {
            let name = format!("{id} ({})", stored.letter.reason.as_str());
            named.insert(Entry::read(&stored.letter.raw).id, name);
        }
    }
    Ok(named)
}

/// Returns the index of an entry.
fn position(listed: &[Listed], id: EventId) -> Result<usize, usize> {
    listed.binary_search_by_key(&id, |entry| entry.id)
}

// === impl Window ===

impl Window {
    fn contains(&self, at: Timestamp) -> bool {
        (self.from..self.until).contains(&at)
    }
}

// === impl Listed ===

impl Listed {
    fn is_missing(&self) -> bool {
        self.is_expected && self.found == 0
    }

    fn is_repeated(&self) -> bool {
        self.is_expected && self.found > 1
    }
}

// === impl Verify ===

impl Verify {
    fn new(args: VerifyArgs, given: &ArgMatches) -> Result<Self, Failure> {
        let mut flags = args.flags.clone();
        (flags.audit.enabled, flags.tickets.enabled) = (true, false);
        flags.web.config_file = None;
        let settings = ExporterSettings::resolve(&flags, &cli::variable);
        let settings = settings.map_err(Failure::in_settings)?;
        let now = util::now();
        let from = args.from.from(now).unwrap_or(now);
        let is_given = |flag| {
            let source = given.value_source(flag);
            matches!(
                source,
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            )
        };
        let dead_letters = match &settings.ledger.path {
            Some(path) if is_given("state.path") || path.exists() => dead_letters(path),
            _ => Ok(HashMap::new()),
        };
        let patience = settings.api.timeout * PATIENCE;
        let sending = match (args.send_missing, settings.otlp) {
            (false, _) => None,
            (true, Some(delivery)) => {
                let sending = Sending::new(delivery, settings.ledger.encoder.clone(), patience);
                Some(sending.map_err(Failure::in_settings)?)
            }
            (true, None) => {
                let message = "--send-missing needs a collector; set --otlp.endpoint";
                return Err(Failure::in_settings(message));
            }
        };
        let is_stdout = |sending: &Sending| matches!(sending.delivery.target, Target::Stdout(_));
        let bar = ProgressBar::no_length();
        Ok(Self {
            // The observer is not read.
            client: Client::new(settings.api, Metrics::new(Duration::ZERO).api.clone())
                .map_err(Failure::in_settings)?,
            excluded: settings
                .audit
                .map(|audit| audit.excluded)
                .unwrap_or_default(),
            from,
            patience,
            // Standard output has the records.
            report: Report::new(
                args.format,
                sending.as_ref().is_some_and(is_stdout),
                bar.clone(),
            ),
            bar,
            dead_letters: dead_letters.map_err(|error| not_compared(error.to_string()))?,
            sending,
            args,
        })
    }

    async fn run(&mut self, file: Box<dyn Read + Send>) -> Result<(), Failure> {
        let (mut listed, mut summary) = self.list().await?;
        let export = self.read(file, &mut listed, summary.window).await?;
        let count = |is_one: fn(&Listed) -> bool| {
            let those = listed.iter().filter(|entry| is_one(entry));
            those.count() as u64
        };
        summary.listed = count(|entry| entry.is_expected);
        summary.missing = count(Listed::is_missing);
        summary.repeated = count(Listed::is_repeated);
        for (id, name) in &export.repeated {
            if let Ok(index) = position(&listed, *id) {
                self.report.repeated(name, listed[index].found);
            }
        }
        for id in &export.unknown_ids {
            self.report.unknown(id);
        }
        let named = self.name_missing(&mut listed, &mut summary).await;
        let sent = self.sending.as_ref();
        let sent = sent.map(|sending| (sending.accepted, sending.rejected));
        self.report.summary(&summary, &export, sent)?;
        named.map_err(Failure::at_run_time)?;
        match summary.missing == sent.map_or(0, |(accepted, _)| accepted) {
            true => Ok(()),
            // The report says why.
            false => Err(Failure::new(1, "")),
        }
    }

    /// Lists the window. The entries are sorted by id.
    async fn list(&mut self) -> Result<(Vec<Listed>, Summary), Failure> {
        self.show("{spinner} listing audit logs: {human_pos} {msg}", None);
        let (mut listing, mut listed) = (self.listing(), Vec::new());
        let (mut window, mut oldest, mut without_id) = (None, Timestamp::MAX, 0);
        loop {
            let page = match listing.page().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    let unread = listing.reached.map_or("nothing was read".to_owned(), |at| {
                        let from = self.args.from;
                        format!(
                            "the audit logs before {at:.0}, from --from {from} on, were not read"
                        )
                    });
                    return Err(not_compared(format!("cannot compare: {error}; {unread}")));
                }
            };
            let now = page.server_time.min(util::now());
            let window = match window {
                Some(window) => window,
                None => *window.insert(self.window(now)?),
            };
            for json in page.items() {
                let entry = Entry::read(json);
                let at = listing.time_of(&entry, now);
                oldest = at.min(oldest);
                let is_expected = window.contains(at) && self.is_expected(&entry);
                // Its record has no id either.
                if entry.id_text().is_none() {
                    without_id += u64::from(is_expected);
                    continue;
                }
                listed.push(Listed {
                    id: entry.id,
                    found: 0,
                    is_expected,
                });
            }
        }
        let Some(mut window) = window.filter(|_| listing.reached.is_some()) else {
            let message = "cannot compare: the API lists no audit logs; check the key, and that the --audit filters match anything";
            return Err(not_compared(message));
        };
        if listing.is_over && oldest < window.until {
            // The API may have nothing older.
            window.from = window.from.max(oldest);
        }
        listed.sort_unstable_by_key(|entry| entry.id);
        listed.dedup_by(|other, entry| {
            let is_same = other.id == entry.id;
            entry.is_expected |= is_same && other.is_expected;
            is_same
        });
        Ok((listed, Summary::new(window, without_id)))
    }

    /// Reads the export.
    async fn read(
        &mut self,
        file: Box<dyn Read + Send>,
        listed: &mut Vec<Listed>,
        window: Window,
    ) -> Result<Export, Failure> {
        let length = self.args.file.metadata().ok().filter(|file| file.is_file());
        let template = match length {
            Some(_) => "reading the export [{bar:30}] {bytes}/{total_bytes}, {eta} left",
            None => "{spinner} reading the export: {bytes}",
        };
        self.show(template, length.map(|file| file.len()));
        let (mut entries, bar) = (std::mem::take(listed), self.bar.clone());
        let work = tokio::task::spawn_blocking(move || {
            let reader = BufReader::with_capacity(BUFFER, file);
            let export = export::read(reader, &mut entries, &window, &bar);
            (entries, export)
        });
        let (entries, export) = work
            .await
            .map_err(|error| not_compared(error.to_string()))?;
        *listed = entries;
        let export = export.map_err(|error| unreadable(&self.args.file, &error))?;
        if export.ids == 0 && export.lines > 0 {
            return Err(not_compared(format!(
                "cannot compare: {} has no id in {}; an id is a string at log.record.uid: in an attribute of OTLP JSON, one request or record per line; as the key log.record.uid; or as the key log_record_uid",
                self.args.file.display(),
                counted(export.lines, "line", "lines"),
            )));
        }
        Ok(export)
    }

    /// Lists the window again, prints the missing entries, and sends them.
    async fn name_missing(
        &mut self,
        listed: &mut [Listed],
        summary: &mut Summary,
    ) -> Result<(), String> {
        self.show(
            "{spinner} listing the missing entries: {human_pos} {msg}",
            None,
        );
        summary.gone = summary.missing;
        let mut listing = self.listing();
        let walked = loop {
            if summary.gone == 0 {
                break Ok(());
            }
            let page = match listing.page().await {
                Ok(Some(page)) => page,
                Ok(None) => break Ok(()),
                Err(error) => break Err(format!("cannot list the missing entries: {error}")),
            };
            let now = page.server_time.min(util::now());
            for json in page.items() {
                let entry = Entry::read(json);
                let at = listing.time_of(&entry, now);
                let index = position(listed, entry.id).ok();
                let Some(one) = index.map(|index| &mut listed[index]) else {
                    continue;
                };
                if !one.is_missing() {
                    continue;
                }
                // Once.
                one.is_expected = false;
                summary.gone -= 1;
                let dead_letter = self.dead_letters.get(&entry.id);
                self.report.missing(&entry, at, dead_letter);
                if let Some(sending) = &mut self.sending {
                    sending.add(json, at, now);
                    if sending.is_full() {
                        self.send().await?;
                    }
                }
            }
        };
        let sent = self.send().await;
        walked.and(sent)
    }

    /// Sends the records that wait.
    async fn send(&mut self) -> Result<(), String> {
        let Some(sending) = &mut self.sending else {
            return Ok(());
        };
        let result = sending.send(&self.bar).await;
        for (id, said) in sending.rejections.drain(..) {
            self.report.rejected(id.as_deref(), &said);
        }
        result
    }

    /// Returns the window, at the time of the first page.
    fn window(&self, now: Timestamp) -> Result<Window, Failure> {
        let until = match self.args.until {
            Some(until) => until.from(now).unwrap_or(now).min(now),
            None => {
                let reread = SignedDuration::try_from(self.args.flags.audit.reread_interval);
                let ago = reread
                    .unwrap_or(SignedDuration::MAX)
                    .saturating_add(DELIVERY);
                now.checked_sub(ago).unwrap_or(Timestamp::MIN)
            }
        };
        let from = self.from;
        if from >= until {
            return Err(Failure::in_settings(format!(
                "--from {from:.0} is not before the end of the window, {until:.0} (--until); nothing lies between them"
            )));
        }
        Ok(Window { from, until })
    }

    /// Reports whether the exporter sends a log record of an entry.
    fn is_expected(&mut self, entry: &Entry<'_>) -> bool {
        let kind = entry.activity_type().unwrap_or_default();
        entry.matches(&self.client.settings().filters) && !self.excluded.records.matches(&kind)
    }

    fn listing(&self) -> Listing {
        let page_size = self.args.flags.api.page_size;
        let (client, bar) = (self.client.clone(), self.bar.clone());
        Listing::new(client, bar, self.from, page_size, self.patience)
    }

    /// Begins to show another activity.
    fn show(&self, template: &str, length: Option<u64>) {
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        self.bar.set_style(style);
        self.bar.reset();
        match length {
            Some(length) => self.bar.set_length(length),
            None => self.bar.unset_length(),
        }
    }
}
