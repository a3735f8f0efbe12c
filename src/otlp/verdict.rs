//! What an answer means for a batch: one verdict for each, as tonic and real collectors really answer.

use std::time::Duration;

use super::FailureReason;

/// How much of the collector's own words is kept, in characters.
const MAX_WORDS: usize = 300;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The collector has the records. It may have said something all the same.
    Acknowledged {
        /// A warning: the protocol calls a message without rejected records one.
        warning: Option<String>,
    },
    /// The collector took the request and refused some of its records for good, without saying which. It must not be sent again.
    PartlyRejected {
        /// How many.
        rejected: u64,
        /// The collector's words.
        message: String,
    },
    /// The request is larger than the collector takes: halves may pass.
    TooLarge(Refusal),
    /// A record in it may be one that the collector cannot take.
    Suspect(Refusal),
    /// Nothing is wrong with the records: try again later.
    Hold(Refusal),
}

/// Why a request was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The label.
    pub reason: FailureReason,
    /// What happened, with the collector's own words: one line.
    pub message: String,
    /// How long the collector asks to be left alone.
    pub retry_after: Option<Duration>,
    /// Somebody has to change a setting: the collector's, or the exporter's.
    pub configuration: bool,
}

// === impl Verdict ===

impl Verdict {
    /// Success, unless the partial success says otherwise.
    pub(super) fn from_partial_success(partial: Option<(i64, String)>) -> Self {
        match partial {
            Some((rejected, message)) if rejected > 0 => Self::PartlyRejected {
                rejected: rejected.unsigned_abs(),
                message: one_line(&message),
            },
            Some((_, message)) if !message.trim().is_empty() => Self::Acknowledged {
                warning: Some(one_line(&message)),
            },
            _ => Self::Acknowledged { warning: None },
        }
    }

    /// Somebody else's words in it.
    pub(super) fn words(&mut self) -> Option<&mut String> {
        match self {
            Self::Acknowledged { warning } => warning.as_mut(),
            Self::PartlyRejected { message, .. } => Some(message),
            Self::TooLarge(refusal) | Self::Suspect(refusal) | Self::Hold(refusal) => {
                Some(&mut refusal.message)
            }
        }
    }

    /// The label of a failure; `None` for an acknowledgement.
    pub fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Acknowledged { .. } => None,
            Self::PartlyRejected { .. } => Some(FailureReason::PartlyRejected),
            Self::TooLarge(refusal) | Self::Suspect(refusal) | Self::Hold(refusal) => {
                Some(refusal.reason)
            }
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// A refusal that time may heal.
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
            configuration: false,
        }
    }

    /// A refusal that somebody has to do something about.
    pub fn configuration(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            configuration: true,
            ..Self::new(reason, message)
        }
    }

    /// The words say that it is about size: then a large record is at fault, and not a quota.
    pub(super) fn names_size(&self) -> bool {
        self.reason == FailureReason::TooLarge
            && (speaks_of_size(&self.message) || self.message.contains("413"))
    }

    pub(super) fn after(self, retry_after: Option<Duration>) -> Self {
        Self {
            retry_after,
            ..self
        }
    }
}

/// Somebody else's words on one line, bounded, without control characters.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::new();
    let words = text
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty());
    for (count, letter) in words
        .flat_map(|word| std::iter::once(' ').chain(word.chars()))
        .skip(1)
        .enumerate()
    {
        if count == MAX_WORDS {
            line.push('…');
            break;
        }
        line.push(letter);
    }
    line
}

/// Whether words speak of a size limit, as the servers of the field put it: "received message larger than max", "decoded message
/// length too large", "request body too large", "message exceeds maximum size".
pub(super) fn speaks_of_size(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["larger than", "too large", "too big"]
        .iter()
        .any(|phrase| words.contains(phrase))
        || (words.contains("exceed")
            && ["size", "length", "bytes", "body"]
                .iter()
                .any(|noun| words.contains(noun)))
}

/// An error and its causes on one line; the outermost alone says little.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_one_bounded_line() {
        assert_eq!(one_line("  a\r\n\tb\u{7}c  "), "a b c");
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), MAX_WORDS + 1);
    }

    #[test]
    fn rejected_zero_with_a_message_is_a_warning() {
        assert_eq!(
            Verdict::from_partial_success(None),
            Verdict::Acknowledged { warning: None }
        );
        assert_eq!(
            Verdict::from_partial_success(Some((0, String::new()))),
            Verdict::Acknowledged { warning: None }
        );
        assert_eq!(
            Verdict::from_partial_success(Some((0, "old".into()))),
            Verdict::Acknowledged {
                warning: Some("old".into())
            }
        );
        assert_eq!(
            Verdict::from_partial_success(Some((2, "bad\nones".into()))),
            Verdict::PartlyRejected {
                rejected: 2,
                message: "bad ones".into()
            }
        );
        assert_eq!(
            Verdict::from_partial_success(Some((-1, String::new()))),
            Verdict::Acknowledged { warning: None }
        );
    }

    #[test]
    fn sizes_are_recognised_in_the_words_of_real_servers() {
        for words in [
            "grpc: received message larger than max (5242880 vs. 4194304)",
            "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes",
            "http: request body too large",
            "gRPC message exceeds maximum size 4194304: 5000000",
        ] {
            assert!(speaks_of_size(words), "{words}");
        }
        for words in [
            "rate limit exceeded",
            "quota exhausted",
            "ingestion limit exceeded",
            "",
        ] {
            assert!(!speaks_of_size(words), "{words}");
        }
    }
}
