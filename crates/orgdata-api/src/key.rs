//! The API key, from a variable or from a file. The file is read for every request, so that a rotated key needs no restart.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

/// The maximum size of a key file, in bytes. A larger one is another file.
const MAX_KEY_BYTES: usize = 16 * 1024;

/// The variable that holds the key if no file is named.
pub const KEY_VARIABLE: &str = "ORGDATA_API_KEY";

/// Where the key comes from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// The variable `ORGDATA_API_KEY`.
    Value(SecretString),
    /// `--api.key-file`.
    File(PathBuf),
}

/// Reads the key for each request.
#[derive(Debug)]
pub(super) struct KeyReader {
    source: KeySource,
    /// Held while the file is read, so that a file system that hangs takes one thread and not one for each request.
    reading: Arc<Mutex<()>>,
}

/// Why there is no usable key. The message never contains the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the API key file {}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// There is nothing but white space.
    #[error("the API key in {0} is empty")]
    Empty(String),
    /// It cannot be part of a header.
    #[error(
        "the API key in {0} contains control characters or characters outside ASCII; it must be one line of printable ASCII"
    )]
    Unprintable(String),
    /// It is too large.
    #[error("{0} is larger than {MAX_KEY_BYTES} bytes; it cannot be an API key")]
    TooLarge(String),
}

// === impl KeySource ===

impl KeySource {
    /// Checks the key once at start, without a runtime. A missing file in an empty directory is not an error: Kubernetes
    /// mounts an optional Secret like this before it exists, and the exporter waits for the key.
    ///
    /// # Errors
    /// Returns an error if there is no usable key.
    pub fn check(&self) -> Result<(), KeyError> {
        match self {
            Self::Value(value) => header(value.expose_secret(), KEY_VARIABLE).map(drop),
            Self::File(path) => match read(path) {
                Ok(text) => header_from_file(path, &text).map(drop),
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_expected(path) => {
                    Ok(())
                }
                Err(error) => Err(KeyError::Unreadable(path.clone(), error)),
            },
        }
    }
}

// === impl KeyReader ===

impl KeyReader {
    pub(super) fn new(source: KeySource) -> Self {
        Self {
            source,
            reading: Arc::default(),
        }
    }

    /// Returns the key as a header value that is never printed. Reading the file takes at most `limit`.
    pub(super) async fn header(&self, limit: Duration) -> Result<HeaderValue, KeyError> {
        let path = match &self.source {
            KeySource::Value(value) => return header(value.expose_secret(), KEY_VARIABLE),
            KeySource::File(path) => path,
        };
        let reading = async {
            let guard = Arc::clone(&self.reading).lock_owned().await;
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || {
                let text = read(&path);
                drop(guard);
                text
            });
            read.await
                .unwrap_or_else(|error| Err(io::Error::other(error)))
        };
        let text = tokio::time::timeout(limit, reading).await;
        let text = text.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        header_from_file(
            path,
            &text.map_err(|error| KeyError::Unreadable(path.clone(), error))?,
        )
    }
}

/// Returns whether the file's directory contains nothing but the entries of Kubernetes itself (`..data`).
fn is_expected(path: &Path) -> bool {
    let entries = path
        .parent()
        .and_then(|directory| std::fs::read_dir(directory).ok());
    entries.is_some_and(|mut entries| {
        entries.all(|entry| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b".."))
        })
    })
}

/// Reads as much as is needed to see that a file is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_KEY_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

fn header_from_file(path: &Path, text: &[u8]) -> Result<HeaderValue, KeyError> {
    let name = path.display().to_string();
    if text.len() > MAX_KEY_BYTES {
        return Err(KeyError::TooLarge(name));
    }
    let text = std::str::from_utf8(text).map_err(|_| KeyError::Unprintable(name.clone()))?;
    header(text, &name)
}

/// Makes a header value of a key without surrounding white space, such as an editor's newline.
fn header(text: &str, source: &str) -> Result<HeaderValue, KeyError> {
    let key = text.trim();
    if key.is_empty() {
        return Err(KeyError::Empty(source.to_owned()));
    }
    if !key.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(KeyError::Unprintable(source.to_owned()));
    }
    let mut header =
        HeaderValue::from_str(key).map_err(|_| KeyError::Unprintable(source.to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> KeySource {
        KeySource::Value(SecretString::from(text.to_owned()))
    }

    async fn read_by(source: &KeySource) -> Result<HeaderValue, KeyError> {
        KeyReader::new(source.clone())
            .header(Duration::from_secs(5))
            .await
    }

    #[tokio::test]
    async fn a_newline_at_the_end_is_trimmed() {
        let header = read_by(&value("secret\r\n")).await.expect("a key");
        assert_eq!(header.to_str().expect("ASCII"), "secret");
        assert!(header.is_sensitive() && !format!("{header:?}").contains("secret"));
    }

    #[test]
    fn control_characters_and_empty_keys_are_refused_without_showing_the_key() {
        for text in ["sec\nret", "sec\u{7}ret", "sécret", "\u{0}"] {
            let error = value(text).check().expect_err("refused").to_string();
            assert!(
                error.contains("ORGDATA_API_KEY") && !error.contains("ret\""),
                "{error}"
            );
        }
        assert!(matches!(value(" \n").check(), Err(KeyError::Empty(_))));
    }

    #[tokio::test]
    async fn a_rotated_file_is_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let source = KeySource::File(file.path().to_owned());
        for key in ["first\n", "second"] {
            std::fs::write(file.path(), key).expect("written");
            assert_eq!(
                read_by(&source)
                    .await
                    .expect("a key")
                    .to_str()
                    .expect("ASCII"),
                key.trim()
            );
        }
        drop(file);
        let error = read_by(&source).await.expect_err("gone");
        assert!(
            error.to_string().contains("cannot read the API key file"),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_system_that_hangs_costs_the_time_limit_and_one_thread() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        let status = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(status.expect("mkfifo").success());
        let reader = KeyReader::new(KeySource::File(path.clone()));
        let limit = Duration::from_millis(50);
        for _ in 0..3 {
            let error = reader.header(limit).await.expect_err("nothing to read");
            assert!(error.to_string().contains("timed out"), "{error}");
        }
        // The one thread that waits goes on, and the next request reads the key.
        std::fs::write(&path, "").expect("it is read");
        drop(reader.reading.lock().await);
        let (header, written) = tokio::join!(
            reader.header(Duration::from_secs(10)),
            tokio::task::spawn_blocking(move || std::fs::write(path, "secret"))
        );
        written.expect("no panic").expect("written");
        assert_eq!(header.expect("a key"), "secret");
    }
}
