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
    fn other_texts_are_rejected() {
        let texts = "api.example.com?key=1 localhost:8080 ftp://x https://u:p@x u:p@x https://x/?key=1 https://";
        for text in texts.split(' ') {
            assert_eq!(BaseUrl::parse(text).expect_err(text), NO_ADDRESS);
        }
    }

    #[test]
    fn the_order_of_filters_is_not_a_change() {
        let fingerprint = |ids: &[&str]| {
            let deal_ids = ids.iter().map(|&id| id.to_owned()).collect();
            let filters = Filters {
                deal_ids,
                ..Filters::default()
            };
            filters.fingerprint()
        };
        assert_eq!(fingerprint(&["1", "2"]), fingerprint(&["2", "1", "1"]));
        assert_ne!(fingerprint(&["1", "2"]), fingerprint(&["1"]));
    }
}
