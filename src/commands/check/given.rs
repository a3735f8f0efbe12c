//! Which settings were given, and where each one came from.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _};
use orgdata_api::{KEY_VARIABLE, location};
use serde::Serialize;

use crate::commands::Cli;

/// Flags that are shown with their defaults too.
const IMPORTANT: [&str; 6] = [
    "api.base-url",
    "audit.enabled",
    "tickets.enabled",
    "state.path",
    "state.max-size",
    "web.listen-address",
];

/// A setting, its value and its origin.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// A flag with its dashes, or a variable that has no flag.
    pub(super) name: String,
    pub(super) value: String,
    /// `flag`, `variable` or `default`.
    pub(super) from: &'static str,
    /// The variable of a flag that was set by it.
    pub(super) variable: Option<String>,
}

/// Returns the settings that were given, and the important ones. Secrets are not shown.
pub(super) fn settings(given: &ArgMatches) -> Vec<Setting> {
    let command = Cli::command();
    let flags = command
        .get_arguments()
        .filter_map(|argument| of_flag(argument, given));
    let key = match given.value_source("api.key-file") {
        Some(_) => "(not used: --api.key-file is given)",
        None => "(not shown)",
    };
    let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let variables = variables.filter_map(|(name, _)| {
        let name = name.to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        let value = match &*name {
            KEY_VARIABLE => key,
            // The standard variables hold tokens and passwords too often to be shown.
            _ if upper.starts_with("OTEL_") || upper.starts_with("SSL_CERT_") => "(set)",
            _ if upper.ends_with("_PROXY") => "(set)",
            _ => return None,
        };
        Some(Setting {
            name,
            value: value.to_owned(),
            from: "variable",
            variable: None,
        })
    });
    let mut variables: Vec<Setting> = variables.collect();
    variables.sort_by(|one, other| one.name.cmp(&other.name));
    flags.chain(variables).collect()
}

fn of_flag(argument: &clap::Arg, given: &ArgMatches) -> Option<Setting> {
    let name = argument.get_long()?;
    let source = given.value_source(name)?;
    if source == ValueSource::DefaultValue && !IMPORTANT.contains(&name) {
        return None;
    }
    let variable = argument
        .get_env()
        .map(|name| name.to_string_lossy().into_owned());
    let (from, variable) = match source {
        ValueSource::CommandLine => ("flag", None),
        ValueSource::EnvVariable => ("variable", variable),
        _ => ("default", None),
    };
    let values = given.get_raw(name)?.map(OsStr::to_string_lossy);
    let values = values.collect::<Vec<_>>().join(",");
    let value = match &*values {
        "" => return None,
        url if url.contains("://") || name == "api.base-url" => {
            location(url, &[]).trim_end_matches('/').to_owned()
        }
        // A report is meant to be passed on, and e-mail addresses are personal.
        address if address.contains('@') => "(not shown)".to_owned(),
        _ => values,
    };
    Some(Setting {
        name: format!("--{name}"),
        value,
        from,
        variable,
    })
}
