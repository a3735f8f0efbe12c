//! The API key, from a variable or from a file.

use std::path::{Path, PathBuf};

use connections::{ReadFile, SecretFile, secret};
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

/// The variable that holds the key if no file is named.
pub const KEY_VARIABLE: &str = "ORGDATA_API_KEY";

/// What it is, for errors.
const NAME: &str = "API key";

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
    /// Checks the key once at start; see [`SecretFile::check`].
    ///
    /// # Errors
    /// Returns why there is no usable key. The message never contains the key.
    pub fn check(&self, read: ReadFile) -> Result<(), String> {
        match self {
            Self::Value(value) => {
                secret(value.expose_secret().as_bytes(), NAME, KEY_VARIABLE).map(drop)
            }
            Self::File(path) => file(path).check(read),
        }
    }

    /// Returns the key as a header value that is never printed. A file has to be read until a deadline.
    pub(super) async fn header(
        &self,
        read: ReadFile,
        deadline: Instant,
    ) -> Result<HeaderValue, String> {
        match self {
            Self::Value(value) => secret(value.expose_secret().as_bytes(), NAME, KEY_VARIABLE),
            Self::File(path) => file(path).read(read, deadline).await,
        }
    }
}

fn file(path: &Path) -> SecretFile {
    SecretFile {
        name: NAME,
        path: path.to_owned(),
    }
}
