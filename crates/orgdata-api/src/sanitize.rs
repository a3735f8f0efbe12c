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
    fn a_secret_is_removed_and_an_escaped_one_ends_the_text() {
        assert_eq!(
            sanitize("Unknown sk_live/a+b=c&d!", &["other-key", KEY]),
            "Unknown [secret]!"
        );
        for text in [
            r"sk_live\/a+b=c&d",
            r"sk\u005flive\u002Fa\u002bb\u003dc\u0026d",
            "sk_live%2Fa%2Bb%3Dc%26d",
            "sk_live%252fa%252bb%253dc%2526d",
            "sk_live&#47;a&#x2b;b&equals;c&amp;d",
            r"sk_live\u00252Fa%5Cu002Bb&#37;3Dc&amp;amp;d",
        ] {
            let shown = sanitize(&format!("Unknown key {text}!"), &["other-key", KEY]);
            assert_eq!(shown, "Unknown key …", "{text}");
        }
    }

    #[test]
    fn a_secret_that_looks_escaped_itself_is_removed() {
        for key in [r"abc\ndef", "abc%41def", "abc&lt;def"] {
            assert_eq!(sanitize(&format!("<{key}>"), &[key]), "<[secret]>", "{key}");
        }
    }

    #[test]
    fn a_secret_at_the_end_of_the_examined_part_is_removed() {
        for escaped in [KEY, "sk%5Flive%2Fa%2Bb%3Dc%26d"] {
            for visible in MAX_EXAMINED - escaped.len()..MAX_EXAMINED {
                let text = format!("{}{escaped}", " ".repeat(visible));
                let shown = sanitize(&text, &[KEY]);
                assert!(
                    ["", "…", "[secret]"].contains(&&*shown),
                    "{visible}: {shown}"
                );
            }
        }
    }

    #[test]
    fn addresses_are_removed() {
        for (text, shown) in [
            ("from ada.l@example.com.", "from [e-mail address]"),
            ("'o'brien+x@mail.example.com' x", "[e-mail address] x"),
            ("for ?a=ada%40example.com&l=1", "for …"),
        ] {
            assert_eq!(sanitize(text, &[]), shown, "{text}");
        }
    }

    #[test]
    fn the_result_is_one_bounded_line() {
        assert_eq!(sanitize("\u{1b}[31mred\r\nblue\0", &[]), "[31mred blue");
        assert_eq!(
            sanitize(&"x".repeat(MAX_SHOWN), &[]).chars().count(),
            MAX_SHOWN
        );
        let long = sanitize(&"é".repeat(5000), &[]);
        assert!(long.chars().count() == MAX_SHOWN && long.ends_with('…'));
        assert_eq!(sanitize("caf\u{e9} 日本", &[]), "café 日本");
    }

    #[test]
    fn a_location_has_no_password_query_or_fragment() {
        for (address, shown) in [
            (
                "https://me:pw@c.example:1/v1?api_key=s#f",
                "https://c.example:1/v1",
            ),
            ("http://c.example/ada%2540example.com", "…"),
            ("http://me:p w@[oops/x", "an invalid address"),
            ("/relative?key=s", "an invalid address"),
            ("http://h;sk_live/a+b=c&d", "http://h;[secret]"),
        ] {
            assert_eq!(location(address, &[KEY]), shown);
        }
    }

    #[test]
    fn an_error_shows_its_sources_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer{}", if *repeats { ": inner" } else { "" })]
        struct Outer {
            repeats: bool,
            source: std::io::Error,
        }
        for repeats in [true, false] {
            let source = std::io::Error::other("inner");
            assert_eq!(error_chain(&Outer { repeats, source }), "outer: inner");
        }
        let long = std::io::Error::other("x\n".repeat(10_000));
        assert_eq!(error_chain(&long).chars().count(), MAX_CHAIN);
    }
}
