//! Text from collectors made safe to log, and delays between attempts.

use std::error::Error;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use url::Url;

/// The number of bytes of a text that are examined.
const MAX_EXAMINED: usize = 2048;

/// The maximum length of a text, in characters.
const MAX_SHOWN: usize = 200;

/// The minimum length of a secret, in bytes.
const MIN_SECRET: usize = 6;

/// Returns what may be shown of a text: one bounded line without secrets.
pub(super) fn sanitize(text: &str, secrets: &[&str]) -> String {
    let mut end = text.len().min(MAX_EXAMINED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut text = percent_encoding::percent_decode_str(&text[..end])
        .decode_utf8_lossy()
        .into_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET) {
        text = text.replace(*secret, "[secret]");
    }
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MAX_SHOWN).collect()
}

/// Returns the scheme, host and path of an address.
pub(super) fn location(address: &str, secrets: &[&str]) -> String {
    let Ok(mut url) = Url::parse(address) else {
        return "an invalid address".to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    sanitize(url.as_str(), secrets)
}

/// Returns an error and its sources on one line.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text.chars().take(2 * MAX_SHOWN).collect()
}

/// An endless sequence of growing delays.
#[derive(Debug)]
pub(super) struct Backoff(ExponentialBackoff);

// === impl Backoff ===

impl Default for Backoff {
    fn default() -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(15))
            .with_jitter()
            .without_max_times();
        Self(builder.build())
    }
}

impl Backoff {
    /// Returns the next delay. A delay that the server gave wins.
    pub(super) fn next(&mut self, server: Option<Duration>) -> Duration {
        let own = self.0.next().unwrap_or(Duration::from_secs(1));
        server.map_or(own, |delay| delay.max(Duration::from_secs(1)))
    }

    /// Begins with the first delay again.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}
