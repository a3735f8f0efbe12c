//! Tells the crate which commit and which compiler it is built from.

use std::process::Command;

fn main() {
    // Where the sources come without their history, as in the build of an image, whoever builds says it.
    let told = std::env::var("ORGDATA_BUILD_REVISION")
        .ok()
        .filter(|revision| !revision.is_empty());
    let revision = told
        .or_else(|| output("git", &["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"])
        .and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ORGDATA_REVISION={revision}");
    println!("cargo:rustc-env=ORGDATA_RUSTC={version}");
    println!("cargo:rerun-if-env-changed=ORGDATA_BUILD_REVISION");
    println!("cargo:rerun-if-changed=build.rs");
    // A path that does not exist would make cargo run this again at every build.
    for path in [".git/HEAD", ".git/refs/heads"] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
