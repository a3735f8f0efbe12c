//! The base address, cursors and filters of a request (specification, section 4).

use std::collections::BTreeSet;
use std::fmt;

use url::Url;

const NO_ADDRESS: &str = "it is not an http or https address; give the URL before /v1, such as https://api.example.com, without user, password, query and fragment; the key belongs in --api.key-file or ORGDATA_API_KEY";

/// The API's filters of the audit log listing. An empty one filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Activity types.
    pub activity_types: Vec<String>,
    /// Deal ids.
    pub deal_ids: Vec<String>,
    /// E-mail addresses of actors.
    pub actor_emails: Vec<String>,
    /// E-mail addresses of target users.
    pub target_emails: Vec<String>,
}

/// The base address of the API: `http` or `https`, a host and possibly a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(Url);

// === impl Filters ===

impl Filters {
    /// Returns whether nothing is filtered.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the parameters of a request: one value in the single form, several in the array form.
    pub(super) fn query(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.parameters().into_iter().flat_map(|(names, values)| {
            let name = names[usize::from(values.len() > 1)];
            values.iter().map(move |value| (name, value.clone()))
        })
    }

    fn parameters(&self) -> [([&'static str; 2], &Vec<String>); 4] {
        [
            (["activityTypes", "activityTypes[]"], &self.activity_types),
            (["dealIds", "dealIds[]"], &self.deal_ids),
            (["actorUserEmails", "actorUserEmails[]"], &self.actor_emails),
            (
                ["targetUserEmails", "targetUserEmails[]"],
                &self.target_emails,
            ),
        ]
    }

    /// Returns a text that is the same for the same filters in any order, to notice when they change.
    pub fn fingerprint(&self) -> String {
        let pairs = self.parameters().into_iter();
        let pairs = pairs.flat_map(|([name, _], values)| values.iter().map(move |v| (name, v)));
        let pairs: BTreeSet<(&str, &String)> = pairs.collect();
        serde_json::to_string(&pairs).expect("pairs of strings are always JSON")
    }
}

// === impl BaseUrl ===

impl BaseUrl {
    /// Parses a base address.
    ///
    /// # Errors
    /// Returns what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).ok().filter(|url| {
            let is_plain = url.username().is_empty() && url.password().is_none();
            let ends = url.query().is_none() && url.fragment().is_none();
            matches!(url.scheme(), "http" | "https") && is_plain && ends
        });
        let url = url.ok_or(NO_ADDRESS)?;
        Ok(Self(url))
    }

    /// Returns the address of a path below it. `path` begins with a slash.
    pub fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}{path}", self.0.path().trim_end_matches('/')));
        url
    }

    /// Returns the host.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Returns whether the key would cross a network unencrypted: plain http to a host that is not loopback.
    pub fn is_plain_remote(&self) -> bool {
        self.0.scheme() == "http" && !self.is_loopback()
    }

    /// Returns whether the API is on this machine.
    pub fn is_loopback(&self) -> bool {
        connections::is_loopback(self.host())
    }

    pub(super) fn scheme(&self) -> &str {
        self.0.scheme()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_and_a_trailing_slash_goes() {
        for (text, base) in [
            ("https://api.example.com", "https://api.example.com"),
            ("https://api.example.com/", "https://api.example.com"),
            (
                "http://[::1]:8080/base/path//",
                "http://[::1]:8080/base/path",
            ),
        ] {
            let joined = BaseUrl::parse(text).expect("valid").join("/v1/tickets");
            assert_eq!(joined.as_str(), format!("{base}/v1/tickets"));
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        let texts = "api.example.com?key=1 localhost:8080 ftp://x https://u:p@x u:p@x https://x/?key=1 https://";
        for text in texts.split(' ') {
            assert_eq!(BaseUrl::parse(text).expect_err(text), NO_ADDRESS);
        }
    }

    #[test]
    fn only_plain_http_beyond_loopback_is_a_risk() {
        let is_risk = |text| BaseUrl::parse(text).expect("valid").is_plain_remote();
        let safe = "http://127.0.0.1:1 http://127.9.9.9 http://localhost http://[::1]:1 https://api.example";
        assert!(!safe.split(' ').any(is_risk));
        let risks = "http://api.example http://127.evil.example http://x.localhost";
        assert!(risks.split(' ').all(is_risk));
    }

    #[test]
    fn one_value_is_sent_alone_and_several_as_an_array() {
        let filters = Filters {
            activity_types: vec!["A".into()],
            deal_ids: vec!["1".into(), "2".into()],
            ..Filters::default()
        };
        let query: Vec<String> = filters.query().map(|(a, b)| format!("{a}={b}")).collect();
        assert_eq!(query, ["activityTypes=A", "dealIds[]=1", "dealIds[]=2"]);
    }

    #[test]
    fn the_order_of_filters_is_not_a_change() {
        let one = Filters {
            deal_ids: vec!["1".into(), "2".into()],
            ..Filters::default()
        };
        let two = Filters {
            deal_ids: vec!["2".into(), "1".into(), "1".into()],
            ..Filters::default()
        };
        assert_eq!(one.fingerprint(), two.fingerprint());
        assert_ne!(one.fingerprint(), Filters::default().fingerprint());
    }
}
