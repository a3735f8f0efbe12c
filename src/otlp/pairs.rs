//! Lists of `key=value` pairs in variables, values percent-encoded as in W3C Baggage.

use super::settings::{Given, SettingsError};

/// Reads the pairs, in order; of two with one key the last one counts.
///
/// # Errors
/// Where a pair has no `=` or no key, or a value's percent-encoding is wrong.
pub(super) fn parse(given: &Given, right: &str) -> Result<Vec<(String, String)>, SettingsError> {
    read(&given.value)
        .map_err(|pair| SettingsError::new(&given.name, format!("'{pair}' is wrong; give {right}")))
}

/// The same, with an error that does not show the value.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_hidden(
    given: &Given,
    right: &str,
) -> Result<Vec<(String, String)>, SettingsError> {
    read(&given.value).map_err(|_| {
        SettingsError::new(
            &given.name,
            format!("a pair is wrong (values are not shown); {right}"),
        )
    })
}

/// `Err` is the pair that is wrong.
fn read(text: &str) -> Result<Vec<(String, String)>, &str> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (key, value) = pair.split_once('=').ok_or(pair)?;
        let key = key.trim();
        let value = percent_decode(value.trim()).ok_or(pair)?;
        if key.is_empty() {
            return Err(pair);
        }
        pairs.retain(|(known, _)| known != key);
        pairs.push((key.to_owned(), value));
    }
    Ok(pairs)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?].map(|digit| char::from(digit).to_digit(16));
            let [Some(high), Some(low)] = digits else {
                return None;
            };
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_decoded_and_spaces_trimmed() {
        let pairs = read(" a = b%20c , d=e=f,,g=").expect("pairs");
        let expected = [("a", "b c"), ("d", "e=f"), ("g", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_last_of_two_counts_and_wrong_pairs_are_named() {
        assert_eq!(
            read("a=1,b=2,a=3").expect("pairs"),
            [
                ("b".to_owned(), "2".to_owned()),
                ("a".to_owned(), "3".to_owned())
            ]
        );
        for (text, wrong) in [
            ("a=1,b", "b"),
            ("=1", "=1"),
            ("a=%", "a=%"),
            ("a=%zz", "a=%zz"),
            ("a=%ff", "a=%ff"),
        ] {
            assert_eq!(read(text), Err(wrong));
        }
    }
}
