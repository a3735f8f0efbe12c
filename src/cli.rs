//! The exporter's flags, their variables, and the settings that follow from them.
//!
//! Arguments come in two stages: [`Flags`] as they were given, and [`ExporterSettings`] as the parts of the program take them.

mod flags;
mod resolve;
pub(crate) mod values;

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

pub use flags::Flags;
pub(crate) use flags::{DEFAULT_STATE_PATH, with_variable};
pub use resolve::ExporterSettings;

/// Returns a usage error as one line. If the value came from a variable the line names it.
pub(crate) fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let text = text.replace("\n\n", "\n").replace("\n  tip:", "; tip:");
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    if let (ErrorKind::ArgumentConflict, Some(ContextValue::String(command))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        return format!("{line}; put the flags after {command}");
    }
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => with_origin(line, flag),
        _ => line.to_owned(),
    }
}

/// Adds the variable to a message if `flag` begins with a flag that was set by its variable.
pub(crate) fn with_origin(message: &str, flag: &str) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let flag = flag.split(|letter| !is_name(letter)).next();
    let flag = flag.unwrap_or_default().trim_end_matches('.');
    let name = flag.strip_prefix("--").map(variable_of).unwrap_or_default();
    let is_flag = |argument: OsString| argument.to_string_lossy().split('=').next() == Some(flag);
    if variable(&name).is_none() || std::env::args_os().skip(1).any(is_flag) {
        return message.to_owned();
    }
    format!("{message} (the value is from the variable {name})")
}

/// Reads a variable; an empty one is unset. Bytes that are not UTF-8 are replaced, so that a malformed value is not
/// taken for a missing one.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?;
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Returns what is wrong with the variables of the exporter that are in quotes. Docker's env files keep them, and a filter or
/// a path with quotes matches nothing.
pub(crate) fn quoted_variables() -> Vec<String> {
    let variables = std::env::vars_os().filter(|(name, value)| {
        let is_ours = name.as_encoded_bytes().starts_with(b"ORGDATA_") && !is_demo();
        is_ours && is_quoted(value)
    });
    let problem = |(name, _): (OsString, _)| {
        format!(
            "the variable {} is in quotes, which become part of its value, as in a Docker env file; remove the quotes",
            name.to_string_lossy()
        )
    };
    variables.map(problem).collect()
}

fn is_quoted(value: &OsStr) -> bool {
    let value = value.as_encoded_bytes();
    let quote = value.first().filter(|first| b"\"'".contains(first));
    quote.is_some() && value.len() > 1 && value.last() == quote
}

/// Returns whether the command is `demo`. It reads no variable: they may be those of an exporter, whose collector or state file
/// would get invented events.
fn is_demo() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "demo")
}

pub(crate) fn variable_of(flag: &str) -> String {
    format!("ORGDATA_{}", flag.to_uppercase().replace(['.', '-'], "_"))
}
