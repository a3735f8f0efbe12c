//! Makes text from a peer safe to log: one bounded line without secrets and e-mail addresses.

use std::error::Error;

use percent_encoding::percent_decode_str;
use url::{Position, Url};

/// The number of bytes of a text that are examined. The rest is not read.
pub(crate) const MAX_EXAMINED: usize = 2048;

/// The maximum length of a sanitized text, in characters.
pub const MAX_SHOWN: usize = 200;

/// The maximum length of an error with its sources, in characters.
const MAX_CHAIN: usize = 400;

/// The minimum length of a secret, in bytes. A shorter one would match parts of ordinary words.
const MIN_SECRET: usize = 6;

/// How often escapes are decoded: a URL in a JSON string in an HTML page needs three passes.
const MAX_PASSES: usize = 4;

/// The maximum length of an escape, in bytes.
const MAX_ESCAPE: usize = 12;

/// Replaces a secret.
const SECRET: &str = "[secret]";

/// Replaces an e-mail address.
const ADDRESS: &str = "[e-mail address]";

/// Returns what may be shown of a text from a peer: one line of at most [`MAX_SHOWN`] characters.
///
/// The first 2 KiB are examined, in linear time. JSON, percent and HTML escapes are decoded before
/// `secrets` and e-mail addresses are removed, so that an escaped secret is found too.
pub fn sanitize(text: &str, secrets: &[&str]) -> String {
    let examined = prefix(text, MAX_EXAMINED);
    let mut shown = without_secrets(examined, secrets);
    for _ in 0..MAX_PASSES {
        shown = without_secrets(&decode(&shown), secrets);
    }
    if examined.len() < text.len() {
        // The end may be the beginning of a secret, and that of an escape.
        let longest = secrets.iter().map(|secret| secret.len()).max();
        let doubtful = longest.unwrap_or(0) + MAX_ESCAPE;
        shown = prefix(&shown, shown.len().saturating_sub(doubtful)).to_owned();
    }
    let shown = without_addresses(&shown);
    let words: Vec<&str> = shown.split_whitespace().collect();
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
    let mut text = error.to_string();
    let sources = std::iter::successors(error.source(), |&error| error.source());
    for cause in sources.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.extend([": ", &cause]);
        }
    }
    one_line(&text, MAX_CHAIN)
}

/// Returns the beginning of a text, at most `max` bytes.
pub(crate) fn prefix(text: &str, max: usize) -> &str {
    let end = (0..=text.len().min(max)).rfind(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn without_secrets(text: &str, secrets: &[&str]) -> String {
    let secrets = secrets.iter().filter(|secret| secret.len() >= MIN_SECRET);
    secrets.fold(text.to_owned(), |text, secret| text.replace(secret, SECRET))
}

/// Decodes JSON, percent and HTML escapes once. What is not a complete escape stays as it is.
fn decode(text: &str) -> String {
    let text = percent_decode_str(text).decode_utf8_lossy();
    let mut decoded = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find(['\\', '&']) {
        let (before, escape) = rest.split_at(at);
        let escaped = json_escape(escape).or_else(|| html_escape(escape));
        let (c, length) = escaped.unwrap_or((char::from(escape.as_bytes()[0]), 1));
        decoded.push_str(before);
        decoded.push(c);
        rest = &escape[length..];
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the character of the JSON escape at the beginning of `text`, and the length of the escape.
fn json_escape(text: &str) -> Option<(char, usize)> {
    let escaped = text.strip_prefix('\\')?;
    match escaped.chars().next()? {
        c @ ('"' | '\\' | '/') => Some((c, 2)),
        'b' | 'f' | 'n' | 'r' | 't' => Some((' ', 2)),
        'u' => {
            let code = u32::from_str_radix(escaped.get(1..5)?, 16).ok()?;
            Some((char::from_u32(code).unwrap_or('\u{fffd}'), 6))
        }
        _ => None,
    }
}

/// Returns the character of the HTML escape at the beginning of `text`, and the length of the escape.
fn html_escape(text: &str) -> Option<(char, usize)> {
    let escape = prefix(text, MAX_ESCAPE).strip_prefix('&')?;
    let (name, _) = escape.split_once(';')?;
    // The named entities that encoders write. All others are numeric.
    let c = match name {
        "amp" => '&',
        "apos" => '\'',
        "commat" => '@',
        "equals" => '=',
        "gt" => '>',
        "lt" => '<',
        "quot" => '"',
        "sol" => '/',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((c, name.len() + 2))
}

/// Replaces each e-mail address.
fn without_addresses(text: &str) -> String {
    let is_local = |c: char| c.is_alphanumeric() || "._%+-!#$'*^`{|}~".contains(c);
    let is_domain = |c: char| c.is_alphanumeric() || ".-_".contains(c);
    let mut parts = text.split('@');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let before = shown.trim_end_matches(is_local).len();
        let after = part.trim_start_matches(is_domain);
        if before < shown.len() && after.len() < part.len() {
            shown.truncate(before);
            shown.extend([ADDRESS, after]);
        } else {
            shown.extend(["@", part]);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk_live/a+b=c&d";

    #[test]
    fn an_escaped_secret_is_removed() {
        for text in [
            "sk_live/a+b=c&d",
            r"sk_live\/a+b=c&d",
            r"sk\u005flive\u002Fa\u002bb\u003dc\u0026d",
            "sk_live%2Fa%2Bb%3Dc%26d",
            "sk_live%252fa%252bb%253dc%2526d",
            "sk_live%25252Fa%25252Bb%25253Dc%252526d",
            "sk_live&#47;a&#x2b;b&equals;c&amp;d",
            "sk&#95;live&sol;a&#43;b&#61;c&amp;d",
            r"sk_live\u00252Fa%5Cu002Bb&#37;3Dc&amp;amp;d",
        ] {
            let shown = sanitize(&format!("Unknown key {text}!"), &["other-key", KEY]);
            assert_eq!(shown, "Unknown key [secret]!", "{text}");
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
        for escaped in [
            KEY,
            "sk%5Flive%2Fa%2Bb%3Dc%26d",
            r"sk_live\u002fa\u002bb=c&amp;d",
        ] {
            for visible in MAX_EXAMINED - escaped.len()..MAX_EXAMINED {
                let text = format!("{}{escaped}", " ".repeat(visible));
                let shown = sanitize(&text, &[KEY]);
                assert!(["", "[secret]"].contains(&&*shown), "{visible}: {shown}");
            }
        }
    }

    #[test]
    fn addresses_are_removed_in_any_encoding() {
        for (text, shown) in [
            ("from ada.l@example.com.", "from [e-mail address]"),
            ("'o'brien+x@mail.example.com' x", "[e-mail address]' x"),
            ("?a=ada%40example.com&l=1", "?a=[e-mail address]&l=1"),
            ("?n=%3Fa%3Dada%2540example.com", "?n=?a=[e-mail address]"),
            (r"ada\u0040example.com", "[e-mail address]"),
            ("ada&commat;example&#46;com", "[e-mail address]"),
            ("5 @ 6", "5 @ 6"),
            ("@here", "@here"),
            ("a@", "a@"),
            ("100%", "100%"),
        ] {
            assert_eq!(sanitize(text, &[]), shown, "{text}");
        }
    }

    #[test]
    fn the_result_is_one_bounded_line() {
        assert_eq!(
            sanitize("\u{1b}[31mred\r\nand \\u000a\\nblue\0", &[]),
            "[31mred and blue"
        );
        assert_eq!(
            sanitize(&"x".repeat(MAX_SHOWN), &[]).chars().count(),
            MAX_SHOWN
        );
        let long = sanitize(&"é".repeat(5000), &[]);
        assert!(long.chars().count() == MAX_SHOWN && long.ends_with('…'));
        assert_eq!(sanitize("caf\u{e9} 日本", &[]), "café 日本");
    }

    #[test]
    fn a_hostile_text_takes_linear_time() {
        let started = std::time::Instant::now();
        for text in ["!%40", "a@", "%25", "&amp;", "\\\\", "&#", "\\u00", "%"] {
            let long = text.repeat(1_000_000);
            assert!(sanitize(&long, &[&"a@".repeat(1000)]).chars().count() <= MAX_SHOWN);
        }
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    #[test]
    fn a_location_has_no_password_query_or_fragment() {
        for (address, shown) in [
            (
                "https://me:pw@c.example:1/v1?api_key=s#f",
                "https://c.example:1/v1",
            ),
            (
                "http://c.example/ada%2540example.com",
                "http://c.example/[e-mail address]",
            ),
            ("http://me:p w@[oops/x", "an invalid address"),
            ("/relative?key=s", "an invalid address"),
        ] {
            assert_eq!(location(address, &[]), shown);
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
