//! The commands `completions` and `man`: what packages install beside the binary, made from the flags themselves.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

/// The name of the binary.
const NAME: &str = "orgdata-exporter";

/// Writes the completions of a shell.
///
/// # Errors
/// Where nobody reads them.
pub fn completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    // The generator panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut text);
    if shell == Shell::Bash {
        // Its loop and its branches spell a name with a hyphen differently, so that nothing is completed after a command
        // (clap-rs/clap#6421); where that is mended there is nothing to replace.
        text = String::from_utf8_lossy(&text)
            .replace("orgdata__subcmd__exporter", "orgdata__exporter")
            .into_bytes();
    }
    out.write_all(&text)
}

/// Writes the manual page of the program, or of one of its commands: `["dead-letters", "list"]`.
///
/// # Errors
/// Where there is no such command, or nobody reads it.
pub fn man(path: &[String], out: &mut dyn Write) -> io::Result<()> {
    let mut command = Cli::command();
    // Full names for the subcommands' pages.
    command.build();
    for name in path {
        let found = command
            .find_subcommand(name)
            .filter(|found| !found.is_hide_set())
            .cloned();
        command = found.ok_or_else(|| {
            let known: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            let known = if known.is_empty() {
                "it has none".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            let place = command.get_bin_name().unwrap_or(NAME);
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{place} has no command {name:?}; {known}"),
            )
        })?;
    }
    Man::new(command)
        .source(concat!("orgdata-exporter ", env!("CARGO_PKG_VERSION")))
        .render(out)
}
