//! Where a value came from: a message about a wrong one names the variable when it was not the command line.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;

/// The flags that were given, on the command line or as variables; the others have their defaults.
#[derive(Clone, Debug, Default)]
pub struct Given {
    flags: Vec<String>,
    variables: Vec<String>,
}

// === impl Given ===

impl From<&ArgMatches> for Given {
    fn from(matches: &ArgMatches) -> Self {
        let from = |source: ValueSource| {
            let ids = matches.ids().map(|id| id.as_str());
            ids.filter(|id| matches.value_source(id) == Some(source))
                .map(str::to_owned)
                .collect()
        };
        Self {
            flags: from(ValueSource::CommandLine),
            variables: from(ValueSource::EnvVariable),
        }
    }
}

impl Given {
    /// Whether a flag was given in one way or the other; `id` is its name without dashes in front.
    pub fn contains(&self, id: &str) -> bool {
        self.flags
            .iter()
            .chain(&self.variables)
            .any(|given| given == id)
    }

    /// A message that begins with a flag, with the variable where the value came from one.
    pub fn with_origin(&self, message: &str) -> String {
        let flag = flag_of(message).filter(|flag| self.variables.iter().any(|given| given == flag));
        from_variable(message.to_owned(), flag.map(variable_of).as_deref())
    }
}

/// The variable that a usage error is about, unless the flag was on the command line.
pub fn variable(
    error: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
    is_set: impl Fn(&str) -> bool,
) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = flag_of(argument)?;
    let long = format!("--{flag}");
    let on_the_command_line = arguments.skip(1).any(|argument| {
        let argument = argument.to_string_lossy();
        argument == long
            || argument
                .strip_prefix(&long)
                .is_some_and(|rest| rest.starts_with('='))
    });
    Some(variable_of(flag)).filter(|name| !on_the_command_line && is_set(name))
}

/// The message, with the variable that its value came from.
pub fn from_variable(message: String, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("{message} (the value is from the variable {variable})"),
        None => message,
    }
}

/// The flag that a text begins with, without its dashes.
fn flag_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("--")?;
    let end = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-')
        .unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.')).filter(|flag| !flag.is_empty())
}

fn variable_of(flag: &str) -> String {
    format!("ORGDATA_{}", flag.to_uppercase().replace(['.', '-'], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_at_the_beginning_of_a_message_is_found() {
        for (text, flag) in [
            ("--api.base-url \"x\": wrong", Some("api.base-url")),
            ("--api.ca-file: cannot read", Some("api.ca-file")),
            ("--state.path", Some("state.path")),
            ("cannot listen; see --web.listen-address", None),
            ("-- ", None),
        ] {
            assert_eq!(flag_of(text), flag, "{text}");
        }
    }
}
