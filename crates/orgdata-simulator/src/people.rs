//! The organization's users, all made up: names in several scripts, some without a first or a last name.

use serde::Serialize;

/// Number of the first user.
const FIRST: i64 = 1001;
/// The mail domain of every user; reserved for examples.
const DOMAIN: &str = "@example.com";

/// First and last names; either may be unknown.
const NAMES: &[(Option<&str>, Option<&str>)] = &[
    (Some("Ada"), Some("Berg")),
    (Some("Amélie"), Some("Fontaine")),
    (Some("Łukasz"), Some("Zieliński")),
    (Some("Zoë"), Some("van der Meer")),
    (Some("José"), Some("Nuñez")),
    (Some("さくら"), Some("山田")),
    (Some("Søren"), Some("Østergård")),
    (Some("Ольга"), Some("Иванова")),
    (Some("李"), Some("明")),
    (Some("Nour"), Some("حداد")),
    (Some("Priya"), Some("Raman")),
    (Some("Jürgen"), Some("Groß")),
    (Some("Siobhán"), Some("O’Dea")),
    (Some("Çağla"), Some("Yıldız")),
    (Some("Max"), None),
    (None, Some("Okafor")),
    (None, None),
    (Some("Anna-Lena"), Some("Müller \"Mü\"")),
    (Some("Δήμητρα"), Some("Παππά")),
    (Some("Tomáš"), Some("Dvořák")),
    (Some("Ines"), Some("Silva e Costa")),
    (Some("Kwame"), Some("Asante")),
    (Some("민준"), Some("김")),
    (Some("Freyja"), Some("Jónsdóttir")),
    (Some("Bob"), Some("Tester")),
    (Some("Eve"), Some("O'Hara")),
    (Some("Noa"), Some("לוי")),
    (Some("Mihai"), Some("Țepeș")),
    (Some("Linh"), Some("Nguyễn")),
    (Some("Arjun"), Some("मेहता")),
    (Some("Ylva"), Some("Åkesson")),
    (Some("Giulia"), Some("D’Angelo")),
    (Some("Robot 🤖"), None),
    (Some("Hana"), Some("Kovač")),
    (Some("Omar"), Some("Farouk")),
    (Some("Chloé"), Some("Lefèvre")),
    (Some("Ndidi"), Some("Eze")),
    (Some("Piotr"), Some("Wójcik")),
    (Some("Mei"), Some("Tan")),
    (Some("Test"), Some("Account\twith tab")),
];

/// The summary of a user inside an entry (section 2.1).
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    id: i64,
    first_name: Option<String>,
    last_name: Option<String>,
    profile_image_url: Option<String>,
}

/// How many users there are.
pub(super) fn count() -> u64 {
    NAMES.len() as u64
}

/// The number of the user at this place in the list.
pub(super) fn id(place: u64) -> i64 {
    FIRST.saturating_add_unsigned(place)
}

/// The numbers of all users.
pub(super) fn ids() -> impl Iterator<Item = i64> {
    (0..count()).map(id)
}

/// The summary of any user; one who is not in the list is made up from the number.
pub(super) fn summary(id: i64) -> Summary {
    let known = usize::try_from(id - FIRST)
        .ok()
        .and_then(|place| NAMES.get(place));
    let (first, last) = match known {
        Some(&(first, last)) => (first.map(str::to_owned), last.map(str::to_owned)),
        None => (Some("User".to_owned()), Some(id.to_string())),
    };
    let picture = (id % 3 != 0).then(|| format!("https://img.example.com/u/{id}.png"));
    Summary {
        id,
        first_name: first,
        last_name: last,
        profile_image_url: picture,
    }
}

/// The e-mail address of any user. Every fourth has a `+`, which a client must encode.
pub(super) fn mail(id: i64) -> String {
    let plus = if id % 4 == 0 { "+" } else { "" };
    format!("user{plus}{id}{DOMAIN}")
}

/// The user of an e-mail address, in any case.
pub(super) fn by_mail(address: &str) -> Option<i64> {
    let address = address.trim().to_ascii_lowercase();
    let digits = address.strip_suffix(DOMAIN)?.strip_prefix("user")?;
    let id = digits.strip_prefix('+').unwrap_or(digits).parse().ok()?;
    (mail(id) == address).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_user() {
        assert!(
            ids()
                .chain([7, 123_456])
                .all(|id| by_mail(&mail(id)) == Some(id))
        );
        assert_eq!(by_mail("USER1001@EXAMPLE.COM"), Some(1001));
        assert_eq!(by_mail("user1004@example.com"), None);
        assert_eq!(by_mail("nobody@example.com"), None);
    }
}
