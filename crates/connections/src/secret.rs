//! A secret in a file, such as a key or a token: read for every request, so that a rotated one needs no restart.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use tokio::time::Instant;

/// The maximum size of such a file, in bytes. A larger one is another file.
const MAX_BYTES: usize = 16 * 1024;

/// Reads a file that a user names, within limits of time and size: it may be on a file system that hangs.
pub type ReadFile = fn(&Path) -> io::Result<Vec<u8>>;

/// A file that holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// What it holds, for errors: `API key`.
    pub name: &'static str,
    /// Its path.
    pub path: PathBuf,
}

// === impl SecretFile ===

impl SecretFile {
    /// Checks the file once at start. A missing file in an empty directory is not an error: Kubernetes mounts an optional
    /// Secret like this before it exists, and the exporter waits for it.
    ///
    /// # Errors
    /// Returns why there is no usable secret. The message never contains it.
    pub fn check(&self, read: ReadFile) -> Result<(), String> {
        match is_expected(&self.path) {
            true => Ok(()),
            false => self.header(read(&self.path)).map(drop),
        }
    }

    /// Reads the file, until a deadline. The value is never printed.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub async fn read(&self, read: ReadFile, deadline: Instant) -> Result<HeaderValue, String> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || read(&path));
        let text = tokio::time::timeout_at(deadline, async { reading.await? }).await;
        let late = |_| Err(io::Error::other("it could not be read in time"));
        self.header(text.unwrap_or_else(late))
    }

    fn header(&self, text: io::Result<Vec<u8>>) -> Result<HeaderValue, String> {
        let (name, path) = (self.name, self.path.display().to_string());
        let text = text.map_err(|error| format!("cannot read the {name} file {path}: {error}"))?;
        secret(&text, name, &path)
    }
}

/// Returns whether the file is missing and its directory contains nothing but the entries of Kubernetes itself (`..data`).
fn is_expected(path: &Path) -> bool {
    let is_kubernetes = |name: OsString| name.as_encoded_bytes().starts_with(b"..");
    match path.parent().map(std::fs::read_dir) {
        Some(Ok(mut entries)) => {
            entries.all(|entry| entry.is_ok_and(|entry| is_kubernetes(entry.file_name())))
        }
        _ => false,
    }
}

/// Makes a header value of a secret without surrounding white space, such as an editor's newline. `name` says what it is, and `source` where it is.
///
/// # Errors
/// If it is not one line of printable ASCII.
pub fn secret(text: &[u8], name: &str, source: &str) -> Result<HeaderValue, String> {
    if text.len() > MAX_BYTES {
        return Err(format!(
            "{source} is larger than {MAX_BYTES} bytes; it cannot be the {name}"
        ));
    }
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(format!("the {name} in {source} is empty"));
    }
    let is_printable = text.iter().all(|byte| (0x20..0x7f).contains(byte));
    let header = HeaderValue::from_bytes(text).ok().filter(|_| is_printable);
    let mut header = header.ok_or_else(|| format!("the {name} in {source} contains control characters or characters outside ASCII; it must be one line of printable ASCII"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_line_of_printable_ascii_and_never_shown() {
        let header = |text: &str| secret(text.as_bytes(), "API key", "ORGDATA_API_KEY");
        let found = header(" secret\r\n").expect("a key");
        assert_eq!(found.to_str().expect("ASCII"), "secret");
        assert!(!format!("{found:?}").contains("secret"));
        for (text, problem) in [
            ("secret\nsecret", "control characters"),
            ("secret\u{7}", "control characters"),
            ("sécret", "outside ASCII"),
            (" \n", "empty"),
            (&"secret".repeat(3000), "larger than 16384 bytes"),
        ] {
            let error = header(text).expect_err(problem);
            let is_named = error.contains("ORGDATA_API_KEY") && error.contains(problem);
            assert!(is_named && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_only_expected_in_an_empty_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        let name = "API key";
        let file = SecretFile { name, path };
        let check = || file.check(|path| std::fs::read(path));
        std::fs::create_dir(directory.path().join("..data")).expect("created");
        assert_eq!(check(), Ok(()));
        std::fs::write(directory.path().join("other"), "").expect("written");
        let error = check().expect_err("missing");
        assert!(error.contains("cannot read the API key file"), "{error}");
    }
}
