//! The API key: from a file that is read for every request, so that a rotated key heals without a restart, or from a variable.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

/// The largest key file that is read, in bytes; a larger one is some other file.
const MAX_KEY_BYTES: usize = 16 * 1024;

/// The variable that holds the key where no file is named.
pub const KEY_VARIABLE: &str = "ORGDATA_API_KEY";

/// Where the key comes from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// The variable `ORGDATA_API_KEY`.
    Value(SecretString),
    /// `--api.key-file`.
    File(PathBuf),
}

/// Why there is no usable key. The key itself is never part of a message.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the API key file {}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// Nothing but white space.
    #[error("the API key in {0} is empty")]
    Empty(String),
    /// Something that cannot be part of a header.
    #[error(
        "the API key in {0} contains control characters or characters outside ASCII; it must be one line of printable ASCII"
    )]
    Unprintable(String),
    /// Too large to be a key.
    #[error("{0} is larger than {MAX_KEY_BYTES} bytes; it cannot be an API key")]
    TooLarge(String),
}

// === impl KeySource ===

impl KeySource {
    /// The key as a header value that is never printed.
    ///
    /// # Errors
    /// Where there is no usable key.
    pub async fn header(&self) -> Result<HeaderValue, KeyError> {
        match self {
            Self::Value(value) => check(value.expose_secret(), KEY_VARIABLE),
            Self::File(path) => {
                let owned = path.clone();
                let text = tokio::task::spawn_blocking(move || read(&owned))
                    .await
                    .unwrap_or_else(|error| Err(io::Error::other(error)));
                Self::check_file(
                    path,
                    &text.map_err(|error| KeyError::Unreadable(path.clone(), error))?,
                )
            }
        }
    }

    /// Checks the key once at start, without a runtime. A file whose directory is there and empty is awaited: so Kubernetes mounts an
    /// optional Secret before somebody makes it, and the application beside must not suffer for that.
    ///
    /// # Errors
    /// Where there is no usable key.
    pub fn check(&self) -> Result<(), KeyError> {
        match self {
            Self::Value(value) => check(value.expose_secret(), KEY_VARIABLE).map(drop),
            Self::File(path) => match read(path) {
                Ok(text) => Self::check_file(path, &text).map(drop),
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_awaited(path) => Ok(()),
                Err(error) => Err(KeyError::Unreadable(path.clone(), error)),
            },
        }
    }

    fn check_file(path: &Path, text: &[u8]) -> Result<HeaderValue, KeyError> {
        let name = path.display().to_string();
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLarge(name));
        }
        let text = std::str::from_utf8(text).map_err(|_| KeyError::Unprintable(name.clone()))?;
        check(text, &name)
    }
}

/// Whether nothing is in the file's directory but what Kubernetes keeps there for itself (`..data`).
fn is_awaited(path: &Path) -> bool {
    let entries = path
        .parent()
        .and_then(|directory| std::fs::read_dir(directory).ok());
    entries.is_some_and(|mut entries| {
        entries.all(|entry| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b".."))
        })
    })
}

/// No more than it takes to see that a file is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_KEY_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// Surrounding white space goes (an editor's newline); anything else that is not printable ASCII is refused.
fn check(text: &str, source: &str) -> Result<HeaderValue, KeyError> {
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

    #[tokio::test]
    async fn a_newline_at_the_end_is_trimmed() {
        let header = value("secret\r\n").header().await.expect("a key");
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
                source
                    .header()
                    .await
                    .expect("a key")
                    .to_str()
                    .expect("ASCII"),
                key.trim()
            );
        }
        drop(file);
        let error = source.header().await.expect_err("gone");
        assert!(
            error.to_string().contains("cannot read the API key file"),
            "{error}"
        );
    }
}
