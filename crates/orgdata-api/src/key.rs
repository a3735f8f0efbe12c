//! The API key, from a variable or from a file. The file is read for every request, so that a rotated key needs no restart.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

/// The maximum size of a key file, in bytes. A larger one is another file.
const MAX_KEY_BYTES: usize = 16 * 1024;

/// The variable that holds the key if no file is named.
pub const KEY_VARIABLE: &str = "ORGDATA_API_KEY";

/// Reads a file that a user names, within limits of time and size: it may be on a file system that hangs.
pub type ReadFile = fn(&Path) -> io::Result<Vec<u8>>;

/// The source of the key.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// The variable `ORGDATA_API_KEY`.
    Value(SecretString),
    /// `--api.key-file`.
    File(PathBuf),
}

// === impl KeySource ===

impl KeySource {
    /// Checks the key once at start. A missing file in an empty directory is not an error: Kubernetes mounts an optional
    /// Secret like this before it exists, and the exporter waits for the key.
    ///
    /// # Errors
    /// Returns why there is no usable key. The message never contains the key.
    pub fn check(&self, read: ReadFile) -> Result<(), String> {
        match self {
            Self::Value(value) => header(value.expose_secret().as_bytes(), KEY_VARIABLE).map(drop),
            Self::File(path) if is_expected(path) => Ok(()),
            Self::File(path) => header_from_file(path, read(path)).map(drop),
        }
    }

    /// Returns the key as a header value that is never printed. A file has to be read until a deadline.
    pub(super) async fn header(
        &self,
        read: ReadFile,
        deadline: Instant,
    ) -> Result<HeaderValue, String> {
        let path = match self {
            Self::Value(value) => return header(value.expose_secret().as_bytes(), KEY_VARIABLE),
            Self::File(path) => path.clone(),
        };
        let reading = tokio::task::spawn_blocking({
            let path = path.clone();
            move || read(&path)
        });
        let text = tokio::time::timeout_at(deadline, async { reading.await? }).await;
        let late = |_| Err(io::Error::other("it could not be read in time"));
        header_from_file(&path, text.unwrap_or_else(late))
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

fn header_from_file(path: &Path, text: io::Result<Vec<u8>>) -> Result<HeaderValue, String> {
    let name = path.display().to_string();
    let text = text.map_err(|error| format!("cannot read the API key file {name}: {error}"))?;
    header(&text, &name)
}

/// Makes a header value of a key without surrounding white space, such as an editor's newline.
fn header(text: &[u8], source: &str) -> Result<HeaderValue, String> {
    if text.len() > MAX_KEY_BYTES {
        return Err(format!(
            "{source} is larger than {MAX_KEY_BYTES} bytes; it cannot be an API key"
        ));
    }
    let key = text.trim_ascii();
    if key.is_empty() {
        return Err(format!("the API key in {source} is empty"));
    }
    let is_printable = key.iter().all(|byte| (0x20..0x7f).contains(byte));
    let header = HeaderValue::from_bytes(key).ok().filter(|_| is_printable);
    let mut header = header.ok_or_else(|| format!("the API key in {source} contains control characters or characters outside ASCII; it must be one line of printable ASCII"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_of_printable_ascii_and_never_shown() {
        let header = |text: &str| header(text.as_bytes(), KEY_VARIABLE);
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
            let is_named = error.contains(KEY_VARIABLE) && error.contains(problem);
            assert!(is_named && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_only_expected_in_an_empty_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = KeySource::File(directory.path().join("key"));
        let check = || source.check(|path| std::fs::read(path));
        std::fs::create_dir(directory.path().join("..data")).expect("created");
        assert_eq!(check(), Ok(()));
        std::fs::write(directory.path().join("other"), "").expect("written");
        let error = check().expect_err("missing");
        assert!(error.contains("cannot read the API key file"), "{error}");
    }
}
