//! Which settings were given, and where each one came from.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory as _};

use crate::commands::Cli;

/// The placeholder for a value that is not shown.
const HIDDEN: &str = "(not shown)";

/// Returns the settings that were given, like `--audit.start=24h (flag)`. Secrets are not shown.
pub(super) fn settings(given: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let flags = command.get_arguments();
    flags.filter_map(|flag| line(flag, given)).collect()
}

fn line(flag: &Arg, given: &ArgMatches) -> Option<String> {
    let name = flag.get_long()?;
    let from = match given.value_source(name)? {
        ValueSource::CommandLine => "flag".into(),
        ValueSource::EnvVariable => flag.get_env()?.to_string_lossy(),
        _ => return None,
    };
    let values = given.get_raw(name)?.map(OsStr::to_string_lossy);
    let value = values.collect::<Vec<_>>().join(",");
    let is_url = flag
        .get_value_names()
        .is_some_and(|names| names[0] == "URL");
    let end = value.find(['?', '#']).filter(|_| is_url);
    let value = match value.contains('@') {
        // A report is meant to be passed on, and e-mail addresses are personal. Before an @ in a URL there may be a password.
        true => HIDDEN,
        false => &value[..end.unwrap_or(value.len())],
    };
    Some(format!("--{name}={value} ({from})"))
}
