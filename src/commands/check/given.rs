//! Which settings were given, and where each one came from.

use clap::CommandFactory as _;
use clap::parser::ValueSource;
use orgdata_api::KEY_VARIABLE;
use serde::Serialize;

use crate::cli::{Cli, DEFAULT_STATE_PATH, Given, variable, without_secrets};

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
pub(super) fn settings(given: &Given) -> Vec<Setting> {
    let command = Cli::command();
    let flags = command
        .get_arguments()
        .filter_map(|argument| of_flag(argument, given));
    let key_value = if given.contains("api.key-file") {
        "(not used: --api.key-file is given)"
    } else {
        "(not shown)"
    };
    let key = variable(KEY_VARIABLE).map(|_| of_variable(KEY_VARIABLE.to_owned(), key_value));
    // These hold tokens and passwords too often to be shown.
    let standard = |name: &String| {
        let upper = name.to_uppercase();
        upper.starts_with("OTEL_") || upper.ends_with("_PROXY") || upper.starts_with("SSL_CERT_")
    };
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names
        .filter(standard)
        .filter(|name| variable(name).is_some())
        .collect();
    names.sort();
    let standard = names.into_iter().map(|name| of_variable(name, "(set)"));
    flags.chain(key).chain(standard).collect()
}

fn of_flag(argument: &clap::Arg, given: &Given) -> Option<Setting> {
    let name = argument.get_long()?;
    let source = given.origin(name);
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
    let values = given.values(name).join(",");
    let value = match name {
        "state.path" if values.is_empty() => DEFAULT_STATE_PATH.to_owned(),
        _ if values.is_empty() => return None,
        _ if values.contains("://") => without_secrets(&values),
        // A report is meant to be passed on, and e-mail addresses are personal.
        _ if values.contains('@') => "(not shown)".to_owned(),
        _ => values,
    };
    Some(Setting {
        name: format!("--{name}"),
        value,
        from,
        variable,
    })
}

fn of_variable(name: String, value: &str) -> Setting {
    Setting {
        name,
        value: value.to_owned(),
        from: "variable",
        variable: None,
    }
}
