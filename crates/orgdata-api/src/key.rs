//! The API key, from a variable or from a file. The file is read for every request, so that a rotated key needs no restart.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The maximum size of a key file, in bytes. A larger one is another file.
const MAX_KEY_BYTES: usize = 16 * 1024;

/// The variable that holds the key if no file is named.
pub const KEY_VARIABLE: &str = "ORGDATA_API_KEY";

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
    /// Checks the key once at start, without a runtime. A missing file in an empty directory is not an error: Kubernetes
    /// mounts an optional Secret like this before it exists, and the exporter waits for the key.
    ///
    /// # Errors
    /// Returns why there is no usable key. The message never contains the key.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Value(value) => header(value.expose_secret().as_bytes(), KEY_VARIABLE).map(drop),
            Self::File(path) => match read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_expected(path) => {
                    Ok(())
                }
                text => header_from_file(path, text).map(drop),
            },
        }
    }

    /// Returns the key as a header value that is never printed. The file has to be read until a deadline. `lock` is held
    /// meanwhile, so that a file system that hangs takes one thread and not one for each request.
    pub(super) async fn header(
        &self,
        lock: &Arc<Mutex<()>>,
        deadline: Instant,
    ) -> Result<HeaderValue, String> {
        let path = match self {
            Self::Value(value) => return header(value.expose_secret().as_bytes(), KEY_VARIABLE),
            Self::File(path) => path,
        };
        let reading = async {
            let guard = Arc::clone(lock).lock_owned().await;
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                let text = read(&path);
                drop(guard);
                text
            })
            .await?
        };
        let text = tokio::time::timeout_at(deadline, reading).await;
        header_from_file(path, text.unwrap_or_else(|error| Err(error.into())))
    }
}

/// Returns whether the file's directory contains nothing but the entries of Kubernetes itself (`..data`).
fn is_expected(path: &Path) -> bool {
    let is_kubernetes = |name: OsString| name.as_encoded_bytes().starts_with(b"..");
    match path.parent().map(std::fs::read_dir) {
        Some(Ok(mut entries)) => {
            entries.all(|entry| entry.is_ok_and(|entry| is_kubernetes(entry.file_name())))
        }
        _ => false,
    }
}

/// Reads as much as is needed to see that a file is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_KEY_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
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
    use std::time::Duration;

    use super::*;

    fn value(text: &str) -> KeySource {
        KeySource::Value(SecretString::from(text.to_owned()))
    }

    async fn read_by(source: &KeySource) -> Result<HeaderValue, String> {
        source
            .header(&Arc::default(), Instant::now() + Duration::from_secs(5))
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
            let error = value(text).check().expect_err("refused");
            assert!(
                error.contains("ORGDATA_API_KEY") && !error.contains("ret\""),
                "{error}"
            );
        }
        let error = value(" \n").check().expect_err("refused");
        assert_eq!(error, "the API key in ORGDATA_API_KEY is empty");
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
        let (source, lock) = (KeySource::File(path.clone()), Arc::default());
        let limit = Duration::from_millis(50);
        for _ in 0..3 {
            let error = source
                .header(&lock, Instant::now() + limit)
                .await
                .expect_err("nothing to read");
            assert!(error.to_string().contains("timed out"), "{error}");
        }
        // The one thread that waits goes on, and the next request reads the key.
        std::fs::write(&path, "").expect("it is read");
        drop(lock.lock().await);
        let (header, written) = tokio::join!(
            source.header(&lock, Instant::now() + Duration::from_secs(10)),
            tokio::task::spawn_blocking(move || std::fs::write(path, "secret"))
        );
        written.expect("no panic").expect("written");
        assert_eq!(header.expect("a key"), "secret");
    }
}
