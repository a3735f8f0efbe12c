//! Which settings were given, and where each one came from.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory as _};

use crate::commands::Cli;

/// The placeholder for a value that is not shown.
const HIDDEN: &str = "(not shown)";

/// The kinds of values that say nothing of an organization, a person or an address.
const PLAIN: [&str; 9] = [
    "BOOL", "DURATION", "FORMAT", "LEVEL", "MODE", "NUMBER", "PROTOCOL", "SIZE", "WHEN",
];

/// Returns the settings that were given, like `--audit.start=24h (flag)`. Secrets are not shown.
pub(super) fn settings(given: &ArgMatches) -> Vec<String> {
    lines(given, |kind, value| match kind {
        // A report is meant to be passed on, and e-mail addresses are personal. Before an @ in a URL there may be a password.
        _ if value.contains('@') => HIDDEN.to_owned(),
        "URL" => {
            let place = value.split(['?', '#']).next().unwrap_or_default();
            place.trim_end_matches('/').to_owned()
        }
        _ => value,
    })
}

/// Returns the same without names, addresses and ids.
pub(super) fn anonymous(given: &ArgMatches) -> Vec<String> {
    lines(given, |kind, value| match PLAIN.contains(&kind) {
        true => value,
        false => HIDDEN.to_owned(),
    })
}

/// `show` gets what the help calls the value, and the value.
fn lines(given: &ArgMatches, show: impl Fn(&str, String) -> String) -> Vec<String> {
    let command = Cli::command();
    let flags = command.get_arguments();
    flags.filter_map(|flag| line(flag, given, &show)).collect()
}

fn line(flag: &Arg, given: &ArgMatches, show: impl Fn(&str, String) -> String) -> Option<String> {
    let name = flag.get_long()?;
    let from = match given.value_source(name)? {
        ValueSource::CommandLine => "flag".into(),
        ValueSource::EnvVariable => flag.get_env()?.to_string_lossy(),
        _ => return None,
    };
    let values = given.get_raw(name)?.map(OsStr::to_string_lossy);
    let kind = flag.get_value_names().and_then(|names| names.first());
    let value = show(
        kind.map_or("", |kind| kind),
        values.collect::<Vec<_>>().join(","),
    );
    Some(format!("--{name}={value} ({from})"))
}
