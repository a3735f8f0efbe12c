//! Which settings were given, and where each came from.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};

use super::{Environment, Finding, What};
use crate::api::KEY_VARIABLE;
use crate::cli::{Cli, DEFAULT_STATE_PATH, without_secrets};

/// Shown also where nobody gave them.
const IMPORTANT: [&str; 6] = [
    "api.base-url",
    "audit.enabled",
    "tickets.enabled",
    "state.path",
    "state.max-size",
    "web.listen-address",
];

/// Their values are addresses of the web, which may hold what is secret.
const ADDRESSES: [&str; 2] = ["api.base-url", "otlp.endpoint"];

/// Their values are e-mail addresses, and a report is made to be passed on.
const EMAILS: [&str; 2] = ["audit.actor-emails", "audit.target-emails"];

/// Variables that are not the exporter's own and change what it does.
const STANDARD: [&str; 13] = [
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// The beginning of the standard variables of collectors.
const OTLP: &str = "OTEL_EXPORTER_OTLP_";

/// A setting, its value and its origin.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Setting {
    /// A flag with its dashes, or a variable without a flag.
    pub(super) name: String,
    pub(super) value: String,
    /// `flag`, `variable` or `default`.
    pub(super) from: &'static str,
    /// The variable of a flag, where the value is from there.
    pub(super) variable: Option<String>,
}

/// The settings that were given, and the important ones.
pub(super) fn shown(matches: &ArgMatches, env: Environment<'_>) -> Vec<Setting> {
    let mut shown: Vec<Setting> = command()
        .get_arguments()
        .filter_map(|argument| of_flag(argument, matches))
        .collect();
    if (env.read)(KEY_VARIABLE).is_some() {
        let used = matches
            .value_source("api.key-file")
            .is_none_or(|source| source == ValueSource::DefaultValue);
        let value = if used {
            "(not shown)"
        } else {
            "(not used: --api.key-file is given)"
        };
        shown.push(of_variable(KEY_VARIABLE, value.to_owned()));
    }
    let mut names: Vec<&String> = env
        .names
        .iter()
        .filter(|name| name.starts_with(OTLP) || STANDARD.contains(&name.as_str()))
        .collect();
    names.sort();
    for name in names {
        let Some(value) = (env.read)(name).filter(|value| !value.trim().is_empty()) else {
            continue;
        };
        let value = match name.as_str() {
            secret if secret.ends_with("HEADERS") => "(not shown)".to_owned(),
            _ if value.contains("://") || value.contains('@') => without_secrets(&value),
            _ => value,
        };
        shown.push(of_variable(name, value));
    }
    shown
}

/// Variables that begin like the exporter's own and are none: a typing error leaves a default in force unseen.
pub(super) fn unknown_variables(env: Environment<'_>) -> Vec<Finding> {
    let mut known = vec![KEY_VARIABLE.to_owned()];
    let commands = Cli::command();
    let all = std::iter::once(&commands)
        .chain(commands.get_subcommands())
        .flat_map(Command::get_arguments);
    known.extend(all.filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned)));
    // Kubernetes makes variables for each Service, by its name.
    let is_kubernetes = |name: &str| {
        name.starts_with("ORGDATA_EXPORTER_")
            || name.contains("_SERVICE_")
            || name.contains("_PORT")
    };
    let unknown = env.names.iter().filter(|name| {
        name.starts_with("ORGDATA_") && !known.contains(name) && !is_kubernetes(name)
    });
    unknown
        .map(|name| {
            let advice = "correct its name (--help lists them all), or take it away";
            Finding::warning(
                What::Variables,
                format!("{name} is no variable of the exporter and does nothing"),
                advice,
            )
        })
        .collect()
}

fn of_flag(argument: &clap::Arg, matches: &ArgMatches) -> Option<Setting> {
    let id = argument.get_id().as_str();
    // Not the exporter's: `--format`, `--help`.
    let variable = argument.get_env()?.to_str()?;
    let source = matches
        .value_source(id)
        .unwrap_or(ValueSource::DefaultValue);
    if source == ValueSource::DefaultValue && !IMPORTANT.contains(&id) {
        return None;
    }
    let values: Vec<String> = matches
        .get_raw(id)
        .map(|values| {
            values
                .map(|value| value.to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    let value = match values.len() {
        0 if id == "state.path" => DEFAULT_STATE_PATH.to_owned(),
        0 => return None,
        count if EMAILS.contains(&id) => format!("({count} not shown)"),
        _ if ADDRESSES.contains(&id) => without_secrets(&values.join(",")),
        _ => values.join(","),
    };
    let from_variable = source == ValueSource::EnvVariable;
    let from = match source {
        ValueSource::CommandLine => "flag",
        ValueSource::EnvVariable => "variable",
        _ => "default",
    };
    Some(Setting {
        name: format!("--{id}"),
        value,
        from,
        variable: from_variable.then(|| variable.to_owned()),
    })
}

fn of_variable(name: &str, value: String) -> Setting {
    Setting {
        name: name.to_owned(),
        value,
        from: "variable",
        variable: None,
    }
}

fn command() -> Command {
    let commands = Cli::command();
    commands
        .find_subcommand("check")
        .cloned()
        .unwrap_or(commands)
}
