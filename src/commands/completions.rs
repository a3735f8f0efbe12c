//! The commands `completions` and `man`: files for packages, generated from the flags.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, Failure, print, printed};

const NAME: &str = "orgdata-exporter";

/// `completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(ignore_case = true)]
    shell: Shell,
}

/// `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// A command, as in `man dead-letters list`; without one, the program
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
}

/// Prints the completions of a shell.
///
/// # Errors
/// If they cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    // The generator panics on a broken pipe, but not on a buffer.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut text);
    if args.shell != Shell::Bash {
        return print(text);
    }
    // The script spells a name with a hyphen in two ways, so nothing is completed after a command (clap-rs/clap#6421).
    let text = String::from_utf8_lossy(&text);
    print(text.replace("orgdata__subcmd__exporter", "orgdata__exporter"))
}

/// Prints the manual page of the program or of one of its commands.
///
/// # Errors
/// If there is no such command, or the page cannot be written.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut command = Cli::command();
    // Gives the pages of commands their full names.
    command.build();
    for name in &args.path {
        let Some(found) = command.find_subcommand(name) else {
            let path = command.get_bin_name().unwrap_or(NAME);
            let known = command.get_subcommands().map(clap::Command::get_name);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(Failure::in_settings(format!(
                "{path} has no command {name:?}; its commands are: {known}"
            )));
        };
        command = found.clone();
    }
    // The generator leaves out the text of a flag that `-h` hides.
    command = command.mut_args(|flag| flag.hide_short_help(false));
    let mut page = Vec::new();
    let man = Man::new(command).source(concat!("orgdata-exporter ", env!("CARGO_PKG_VERSION")));
    printed(man.render(&mut page))?;
    print(page)
}
