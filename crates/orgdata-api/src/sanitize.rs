//! Makes text from a peer safe to log: one bounded line without secrets and e-mail addresses.

use std::error::Error;

use url::{Position, Url};

/// The number of bytes of a text that are examined. The rest is not read.
pub(crate) const MAX_EXAMINED: usize = 2048;

/// The maximum length of a sanitized text, in characters.
pub const MAX_SHOWN: usize = 200;

/// The maximum length of an error with its sources, in characters.
const MAX_CHAIN: usize = 400;

/// The minimum length of a secret, in bytes. A shorter one would match parts of ordinary words.
const MIN_SECRET: usize = 6;

/// Replaces a secret.
const SECRET: &str = "[secret]";

/// Replaces a word with an e-mail address.
const ADDRESS: &str = "[e-mail address]";

/// Returns what may be shown of a text from a peer: one line of at most [`MAX_SHOWN`] characters of the first 2 KiB,
/// without `secrets` and e-mail addresses.
///
/// A text ends before the first word with a character of JSON, percent or HTML escapes, so that an escaped secret is not
/// shown, and nothing has to be decoded. A word is what is between white space.
pub fn sanitize(text: &str, secrets: &[&str]) -> String {
    let mut shown = prefix(text, MAX_EXAMINED).to_owned();
    let is_cut = shown.len() < text.len();
    let secrets = secrets.iter().filter(|secret| secret.len() >= MIN_SECRET);
    for secret in secrets.clone() {
        shown = shown.replace(secret, SECRET);
    }
    if is_cut {
        // The end may be the beginning of a secret, each byte of which may be an escape of six.
        let longest = secrets.map(|secret| secret.len()).max().unwrap_or(0);
        shown = prefix(&shown, shown.len().saturating_sub(6 * longest)).to_owned();
    }
    let mut words: Vec<&str> = Vec::new();
    for word in shown.split_whitespace() {
        if word.contains(['\\', '&', '%']) {
            words.push("…");
            break;
        }
        words.push(if word.contains('@') { ADDRESS } else { word });
    }
    one_line(&words.join(" "), MAX_SHOWN)
}

/// Returns the text on one line of at most `max` characters, with spaces in place of control characters.
pub fn one_line(text: &str, max: usize) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    match text.chars().nth(max) {
        None => shown.collect(),
        Some(_) => shown.take(max - 1).chain(['…']).collect(),
    }
}

/// Returns the scheme, host and path of an address. User, password, query and fragment may contain secrets.
pub fn location(address: &str, secrets: &[&str]) -> String {
    let Ok(url) = Url::parse(address) else {
        return "an invalid address".to_owned();
    };
    let place = &url[Position::BeforeHost..Position::AfterPath];
    sanitize(&format!("{}://{place}", url.scheme()), secrets)
}

/// Returns an error and its sources on one line, without repeating what the line already says.
pub fn error_chain(error: &dyn Error) -> String {
    one_line(&connections::error_chain(error), MAX_CHAIN)
}

/// Returns the beginning of a text, at most `max` bytes.
pub(crate) fn prefix(text: &str, max: usize) -> &str {
    let end = (0..=text.len().min(max)).rfind(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk_live/a+b=c&d";

    #[test]
    fn no_secret_address_or_control_character_is_shown() {
        for (text, shown) in [
            ("Unknown sk_live/a+b=c&d!", "Unknown [secret]!"),
            // An escaped one ends the text.
            (r"key sk_live\/a+b=c&d!", "key …"),
            (r"key sk\u005flive\u002Fa\u002bb\u003dc!", "key …"),
            ("key sk_live%2Fa%2Bb%3Dc%26d!", "key …"),
            ("key sk_live&#47;a&#x2b;b&equals;c&amp;d!", "key …"),
            // One that looks escaped itself does not.
            (r"<abc\ndef> is wrong", "<[secret]> is wrong"),
            ("from ada.l@example.com.", "from [e-mail address]"),
            ("'o'brien+x@mail.example.com' x", "[e-mail address] x"),
            ("for ?a=ada%40example.com&l=1", "for …"),
            ("\u{1b}[31mred\r\nblue\0", "[31mred blue"),
            ("caf\u{e9} 日本", "café 日本"),
        ] {
            assert_eq!(sanitize(text, &[r"abc\ndef", KEY]), shown, "{text}");
        }
    }

    #[test]
    fn a_secret_at_the_end_of_the_examined_part_is_removed() {
        for escaped in [KEY, "sk%5Flive%2Fa%2Bb%3Dc%26d"] {
            for visible in MAX_EXAMINED - escaped.len()..MAX_EXAMINED {
                let text = format!("{}{escaped}", " ".repeat(visible));
                let shown = sanitize(&text, &[KEY]);
                let is_hidden = ["", "…", "[secret]"].contains(&&*shown);
                assert!(is_hidden, "{visible}: {shown}");
            }
        }
    }
}
