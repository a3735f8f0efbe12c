//! The `orgdata-exporter` binary: parse, install telemetry and the TLS provider, dispatch; nothing else.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use orgdata_exporter::cli::{self, Cli, Command, Given, LogSettings, Settings};
use orgdata_exporter::telemetry::Telemetry;
use orgdata_exporter::{
    app, backfill, check, dead_letters, demo, healthcheck, otlp, shutdown, simulator,
};

/// Wrong flags or settings.
const WRONG_SETTINGS: u8 = 2;

fn main() -> ExitCode {
    // One TLS provider for everything; the HTTP client cannot be built before it is there.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let mut runtime = match cli.command {
        // One request, every few seconds: starting threads would be most of its work.
        Some(Command::Healthcheck(_)) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return failed(
                1,
                &format!("the system gives no threads to run on: {error}"),
            );
        }
    };
    let context = runtime.enter();
    // What is no UTF-8 is not taken for missing: whoever reads the variable says what is wrong with it.
    let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let (settings, log) = match cli.command {
        Some(Command::Check(args)) => {
            let status = check(&runtime, &args, matches.subcommand_matches("check"), &env);
            drop(context);
            // A name server or a disk that hangs keeps a thread: nobody waits for it.
            runtime.shutdown_background();
            return status;
        }
        Some(Command::Completions { shell }) => {
            return printed(cli::completions(shell, &mut std::io::stdout().lock()));
        }
        Some(Command::Man { path }) => {
            return printed(cli::man(&path, &mut std::io::stdout().lock()));
        }
        Some(Command::Simulate { args }) => return simulate(&runtime, *args),
        Some(Command::DeadLetters(args)) => {
            return match dead_letters::run(args, &mut std::io::stdout().lock()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(error.exit_status(), &error.to_string()),
            };
        }
        Some(Command::Healthcheck(args)) => {
            let checked = runtime.block_on(healthcheck::run(&args));
            // A name that is still looked up must not outlast the time-out.
            drop(context);
            runtime.shutdown_background();
            return match checked {
                Ok(line) => {
                    // The status is what counts, also when nobody reads the line.
                    let _ = writeln!(std::io::stdout(), "{line}");
                    ExitCode::SUCCESS
                }
                Err(error) => failed(error.exit_status(), &error.to_string()),
            };
        }
        Some(Command::Backfill(args)) => {
            let given = matches
                .subcommand_matches("backfill")
                .map_or_else(Given::default, Given::from);
            let log = LogSettings::from(&*args.flags);
            let _telemetry = Telemetry::install(log, otlp::span_provider(&env));
            let run = async { backfill::run(*args, &given, &env, shutdown::on_signal()).await };
            return match runtime.block_on(run) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(error.exit_status(), &given.with_origin(&error.to_string())),
            };
        }
        Some(Command::Demo { flags }) => {
            let given = matches
                .subcommand_matches("demo")
                .map_or_else(Given::default, Given::from);
            let log = LogSettings::from(&*flags);
            let _telemetry = Telemetry::install(log, otlp::span_provider(&env));
            return ended(runtime.block_on(demo::run(*flags, &given, &env)), &given);
        }
        None => (
            Settings::resolve(&cli.flags, &env),
            LogSettings::from(&cli.flags),
        ),
    };
    let given = Given::from(&matches);
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => return failed(WRONG_SETTINGS, &given.with_origin(&error.to_string())),
    };
    let telemetry = Telemetry::install(log, otlp::span_provider(&env));
    let run = async {
        // A signal that comes while the state file is opened stops the exporter once it is open.
        let shutdown = shutdown::on_signal();
        shutdown::on_hangup(settings.web.config.clone());
        let app = app::App::open(settings).await?;
        telemetry.report_problem();
        app.run(shutdown).await
    };
    ended(runtime.block_on(run), &given)
}

fn check(
    runtime: &tokio::runtime::Runtime,
    args: &check::CheckArgs,
    matches: Option<&clap::ArgMatches>,
    env: &dyn Fn(&str) -> Option<String>,
) -> ExitCode {
    let names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    let none = clap::ArgMatches::default();
    let report = runtime.block_on(check::run(
        args,
        matches.unwrap_or(&none),
        check::Environment {
            read: env,
            names: &names,
        },
    ));
    // Colours for a terminal, unless NO_COLOR is set.
    match report.write(args.format, &mut anstream::stdout().lock()) {
        Ok(()) => ExitCode::from(report.level().exit_status()),
        Err(error) => failed(WRONG_SETTINGS, &format!("cannot write: {error}")),
    }
}

fn printed(result: std::io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            failed(WRONG_SETTINGS, &error.to_string())
        }
        Err(error) => failed(1, &format!("cannot write: {error}")),
    }
}

fn simulate(runtime: &tokio::runtime::Runtime, args: simulator::Args) -> ExitCode {
    let listen = args.listen;
    runtime.block_on(async {
        let shutdown = shutdown::on_signal();
        let listener = match tokio::net::TcpListener::bind(listen).await {
            Ok(listener) => listener,
            Err(error) => {
                return failed(
                    WRONG_SETTINGS,
                    &format!(
                        "--listen {listen}: {error}; give another address, or port 0 for a free one"
                    ),
                );
            }
        };
        let address = listener.local_addr().unwrap_or(listen);
        let simulator = simulator::Simulator::new(args.into_config());
        // Whoever reads it may be gone already.
        let _ = writeln!(
            std::io::stdout(),
            "The simulator listens on http://{address}/ (that page names its control endpoints)"
        );
        match simulator::serve(simulator, listener, shutdown.cancelled_owned()).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(1, &format!("the simulator cannot go on: {error}")),
        }
    })
}

fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let variable = cli::variable(error, std::env::args_os(), |name| {
            std::env::var_os(name).is_some()
        });
        return failed(
            WRONG_SETTINGS,
            &cli::from_variable(cli::one_line(error), variable.as_deref()),
        );
    }
    // Help and version are no errors.
    match error.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn ended(result: Result<(), app::RunError>, given: &Given) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error.exit_status(), &given.with_origin(&error.to_string())),
    }
}

fn failed(status: u8, message: &str) -> ExitCode {
    // The status is what counts, also when nobody reads the message.
    let _ = writeln!(std::io::stderr(), "orgdata-exporter: {message}");
    ExitCode::from(status)
}
