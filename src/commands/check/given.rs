//! Which settings were given, and where each one came from.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _};

use orgdata_api::location;

use crate::commands::Cli;

/// Returns the settings that were given, like `--audit.start=24h (flag)`. Secrets are not shown.
pub(super) fn settings(given: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let flags = command.get_arguments();
    flags.filter_map(|flag| setting(flag, given)).collect()
}

fn setting(flag: &clap::Arg, given: &ArgMatches) -> Option<String> {
    let name = flag.get_long()?;
    let from = match given.value_source(name)? {
        ValueSource::CommandLine => "flag".into(),
        ValueSource::EnvVariable => flag.get_env()?.to_string_lossy(),
        _ => return None,
    };
    let values = given.get_raw(name)?.map(OsStr::to_string_lossy);
    let value = match values.collect::<Vec<_>>().join(",") {
        url if url.contains("://") || name == "api.base-url" => {
            location(&url, &[]).trim_end_matches('/').to_owned()
        }
        // A report is meant to be passed on, and e-mail addresses are personal.
        address if address.contains('@') => "(not shown)".to_owned(),
        value => value,
    };
    Some(format!("--{name}={value} ({from})"))
}
