//! One history: lives of the exporter, one after the other, in one thread and on a paused clock.

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use humantime::format_duration;
use orgdata_exporter::api::{self, Client, ClientSettings, Filters};
use orgdata_exporter::app::{Failure, Parts};
use orgdata_exporter::cli::{ExporterSettings, Flags};
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::{LedgerHandle, LedgerOptions, LedgerState, OpenError};
use orgdata_exporter::machine::Machine as _;
use orgdata_exporter::metrics::Metrics;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::Sender;
use super::plan::End;
use super::service::transport;
use super::support::settings;
use super::world::World;

/// The time that the exporter may take to stop in addition to the grace period, for calls under way.
const STOP: Duration = Duration::from_secs(2);

/// The time after which an exporter that lost its file is asked to stop. It may have had nothing to write.
const NOTICE: Duration = Duration::from_secs(600);

/// The service's; nothing is ever sent there.
const BASE_URL: &str = "http://127.0.0.1:1";

/// An open state file, or why there is none.
type Opened = Result<(LedgerHandle, LedgerState), OpenError>;

/// How a life ended.
#[derive(PartialEq)]
enum Ended {
    Crash,
    /// As it was asked to, or because the file could not be opened.
    Itself,
    Done,
}

/// What a history was.
pub(super) struct Played {
    /// The same for the same seed.
    pub(super) trace: u64,
    pub(super) commits: u64,
    pub(super) lives: u32,
}

/// Plays the history of a seed.
pub(super) fn history(seed: u64, prints: bool) -> Result<Played, String> {
    thread_local! {
        static DIRECTORY: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
    }
    let path = DIRECTORY.with_borrow_mut(|directory| {
        // In memory if possible: what a disk adds is simulated.
        let make = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.get_or_insert_with(|| make().unwrap());
        directory.path().join("state.db")
    });
    let world = World::new(seed, path.clone(), prints);
    let settings = resolved(&world, &path);
    world.state().files.remove();
    // Jitter and fencing tokens; making the directory took some of it.
    fastrand::seed(seed);
    loop {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let ended = runtime.block_on(live(&world, &settings));
        let remains = (ended == Ended::Crash).then(|| world.state().files.remains());
        runtime.block_on(async { world.end_runtime() });
        // Whatever was under way is gone.
        drop(runtime);
        match remains {
            Some(remains) => world.state().files.put_back(remains),
            None => world.state().files.close(),
        }
        if ended == Ended::Done || world.state().failure.is_some() {
            break;
        }
    }
    let mut result = world.check_end(&settings.ledger);
    let state = &mut *world.state();
    state.files.remove();
    if let Some(failure) = state.failure.take() {
        result = Err(failure);
    }
    result.map_err(|error| format!("seed {seed}: {error}"))?;
    Ok(Played {
        trace: state.trace(),
        commits: state.counts.get("commits").copied().unwrap_or(0),
        lives: state.life,
    })
}

/// One life, from its start or the start of the pause before it.
async fn live(world: &Arc<World>, settings: &ExporterSettings) -> Ended {
    world.begin_runtime();
    let mut script = pin!(world.script());
    let pause = world.begin_life();
    tokio::select! {
        biased;
        () = &mut script => {}
        () = sleep(pause) => {}
    }
    let metrics = Metrics::new(world.plan.zero_hold);
    let mut open = pin!(open(world, settings.ledger.clone()));
    let opened = tokio::select! {
        biased;
        () = world.crashed.notified() => return Ended::Crash,
        opened = &mut open => opened,
        () = &mut script => return Ended::Crash,
    };
    let (ledger, state) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => {
            let state = &mut *world.state();
            state.note("cannot open", 0, 0);
            if state.calm_at.is_some() {
                world.fail(state, error.to_string());
            }
            return Ended::Itself;
        }
        None => return Ended::Crash,
    };
    let parts = Parts {
        metrics: metrics.clone(),
        client: client(world, &metrics),
        sender: Some(Sender(world.clone())),
    };
    world.state().metrics = Some(metrics);
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let run = parts.run(ledger, state, settings, "", &health, &shutdown);
    let mut run = pin!(run);
    let end = world.state().end;
    let (stop, takeover) = match end {
        End::Stop(after) => (after, Duration::MAX),
        End::Takeover(after) => (after + NOTICE, after),
        _ => (Duration::MAX, Duration::MAX),
    };
    let taken_over = async {
        sleep(takeover).await;
        world.take_over();
        std::future::pending::<Infallible>().await
    };
    let mut taken_over = pin!(taken_over);
    let is_done = tokio::select! {
        biased;
        () = world.crashed.notified() => return Ended::Crash,
        outcome = &mut run => {
            let state = &mut *world.state();
            if !(state.files.is_taken && outcome.as_ref().is_err_and(is_fenced)) {
                world.fail(state, format!("the exporter ended: {outcome:?}"));
            }
            state.note("ended", 0, 0);
            return Ended::Crash;
        }
        () = world.done.notified() => true,
        () = sleep(stop) => false,
        never = &mut taken_over => match never {},
        () = &mut script => return Ended::Crash,
    };
    let stuck = health.stuck();
    if !stuck.is_empty() {
        world.fail(&mut world.state(), format!("stuck: {stuck:?}"));
    }
    world.state().note("stop", 0, 0);
    shutdown.cancel();
    let asked = Instant::now();
    let stopped = tokio::select! {
        biased;
        () = world.crashed.notified() => return Ended::Crash,
        stopped = timeout(world.plan.grace + STOP, run) => stopped,
        () = &mut script => return Ended::Crash,
    };
    let state = &mut *world.state();
    match stopped {
        Ok(Ok(())) => {}
        Ok(Err(failure)) if state.files.is_taken && is_fenced(&failure) => {}
        other => {
            let failure = format!("asked to stop: {other:?} after {:?}", asked.elapsed());
            world.fail(state, failure);
        }
    }
    state.note("stopped", 0, 0);
    if is_done { Ended::Done } else { Ended::Itself }
}

/// Opens the state file, as a call of the disk.
async fn open(world: &Arc<World>, options: LedgerOptions) -> Option<Opened> {
    let (sender, mut opened) = oneshot::channel();
    let call = move || drop(sender.send(LedgerHandle::open(options)));
    world.clone().start(Box::new(call)).await.ok()?;
    opened.try_recv().ok()
}

/// Returns a client of the world's service.
fn client(world: &Arc<World>, metrics: &Metrics) -> Client {
    let settings = ClientSettings {
        max_requests_per_second: world.plan.requests_per_second,
        filters: Filters {
            activity_types: world.state().filters.clone(),
            ..Filters::default()
        },
        ..settings::api(BASE_URL)
    };
    Client::simulated(transport(world), settings, metrics.api.clone())
}

/// Whether an exporter ended because another process opened its file.
fn is_fenced(failure: &Failure) -> bool {
    failure.status == 3
}

/// Returns the settings as the flags give them, but of a file on the world's disk, which may be smaller than they allow.
fn resolved(world: &Arc<World>, path: &Path) -> ExporterSettings {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }
    let plan = &world.plan;
    let shown = |time: Duration| format_duration(time).to_string();
    let flags = [
        ("api.base-url", BASE_URL.to_owned()),
        ("api.page-size", plan.page_size.to_string()),
        ("audit.start", plan.start.to_string()),
        ("audit.poll-interval", shown(plan.poll)),
        ("audit.reread-interval", shown(plan.reread)),
        ("audit.reread-window", shown(plan.window)),
        ("tickets.scan-interval", shown(plan.scan)),
        ("state.path", path.display().to_string()),
        ("otlp.endpoint", "http://collector.example:4318".to_owned()),
        ("otlp.batch-size", plan.batch.to_string()),
        ("shutdown.grace", shown(plan.grace)),
    ];
    let flags = flags.map(|(name, value)| format!("--{name}={value}"));
    let command = Command::parse_from(std::iter::once(String::new()).chain(flags));
    let env = |name: &str| (name == api::KEY_VARIABLE).then(|| "demo-key".to_owned());
    let mut settings = ExporterSettings::resolve(&command.flags, &env).unwrap();
    settings.ledger = LedgerOptions {
        max_size: plan.max_size,
        machine: world.clone(),
        ..settings.ledger
    };
    settings
}
