//! Passes the commit, the compiler and the address of the repository to the crate.

use std::path::Path;
use std::process::Command;

fn main() {
    // A build without the history, as in an image, sets the variable.
    let given = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    // An unpacked archive may lie in the repository of something else.
    let is_repository = Path::new(".git").exists();
    let revision = given("ORGDATA_BUILD_REVISION")
        .or_else(|| is_repository.then(|| output("git", &["rev-parse", "--short=12", "HEAD"]))?)
        .unwrap_or_else(|| "unknown".to_owned());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"])
        .and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned());
    let repository = given("ORGDATA_REPOSITORY").or_else(|| given("CARGO_PKG_REPOSITORY"));
    let repository = repository.unwrap_or_default();
    // `cargo run` passes them on, and the exporter warns of unknown variables that begin with ORGDATA_.
    println!("cargo:rustc-env=BUILD_REVISION={revision}");
    println!("cargo:rustc-env=BUILD_REPOSITORY={repository}");
    println!("cargo:rerun-if-env-changed=ORGDATA_REPOSITORY");
    println!("cargo:rustc-env=BUILD_RUSTC={version}");
    println!("cargo:rerun-if-env-changed=ORGDATA_BUILD_REVISION");
    println!("cargo:rerun-if-changed=build.rs");
    // With a path that does not exist, cargo would run this again at every build. In a worktree `.git` is a file.
    for name in ["HEAD", "refs/heads"] {
        let path = is_repository.then(|| output("git", &["rev-parse", "--git-path", name]));
        if let Some(path) = path.flatten().filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
