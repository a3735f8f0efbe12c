//! The `orgdata-exporter` binary: parses the command line and runs a command.

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _};
use orgdata_exporter::cli::{self, ExporterSettings, Flags};
use orgdata_exporter::commands::{
    self, Cli, Command, Failure, check, completions, dead_letters, demo, healthcheck, simulate,
    verify,
};
use orgdata_exporter::telemetry::{Telemetry, span_provider};
use orgdata_exporter::{app, shutdown};
#[cfg(target_os = "linux")]
use rustix::process::DumpableBehavior;
use tokio::runtime::{Builder, Runtime};

/// The maximum number of threads for what does not block.
const MAX_THREADS: usize = 4;

fn main() -> ExitCode {
    // A core dump or another process of this user could read the key.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // The HTTP and gRPC clients use the process's TLS provider. Only a second call fails.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match commands::parse().and_then(|(cli, matches, wrong)| run(cli, &matches, wrong)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn run(cli: Cli, matches: &ArgMatches, wrong: Vec<String>) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        Failure::at_run_time(format!("cannot start the async runtime: {error}"))
    })?;
    let context = runtime.enter();
    let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
    let result = match cli.command {
        None => exporter(&runtime, &cli.flags),
        Some(Command::Demo(flags)) => {
            let _telemetry =
                Telemetry::install(flags.process.level, flags.process.format, Ok(None));
            runtime.block_on(demo::run(*flags, matches))
        }
        Some(Command::Check(args)) => runtime.block_on(check::run(&args, wrong)),
        Some(Command::Healthcheck(args)) => runtime.block_on(healthcheck::run(&args)),
        Some(Command::Simulate(args)) => runtime.block_on(simulate::run(*args)),
        Some(Command::Verify(args)) => {
            runtime.block_on(verify::run(*args, matches, shutdown::on_signal()))
        }
        Some(Command::DeadLetters(args)) => dead_letters::run(args),
        Some(Command::Completions(args)) => completions::completions(&args),
        Some(Command::Man(args)) => completions::man(&args),
        Some(Command::Version) => commands::print(Cli::command().render_version()),
    };
    drop(context);
    // A thread that waits for a name server or a disk must not keep the process.
    runtime.shutdown_background();
    result.map_err(Failure::with_origin)
}

/// A large machine has more processors than a container or a unit may have threads.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(MAX_THREADS))
}

fn exporter(runtime: &Runtime, flags: &Flags) -> Result<(), Failure> {
    let settings =
        ExporterSettings::resolve(flags, &cli::variable).map_err(Failure::of_settings)?;
    let _telemetry = telemetry(flags);
    runtime.block_on(async {
        // A signal is noticed from here on, also while the state file is opened.
        let shutdown = shutdown::on_signal();
        let web = settings.web_config.clone();
        shutdown::on_hangup(move || web.reload());
        app::App::bind(settings).await?.run(shutdown).await
    })
}

fn telemetry(flags: &Flags) -> Telemetry {
    let spans = span_provider(&cli::variable);
    let telemetry = Telemetry::install(flags.process.level, flags.process.format, spans);
    for problem in commands::variables_without_effect() {
        tracing::warn!(problem, "a variable has no effect");
    }
    telemetry
}
