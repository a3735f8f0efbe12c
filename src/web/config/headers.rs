//! `http_server_config.headers`: the few headers that the toolkit allows.

use std::collections::BTreeMap;

use http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS, X_XSS_PROTECTION,
};

use super::ConfigError;

/// A header that may be set, and the values it may have; none means any.
const ALLOWED: [(&str, HeaderName, &[&str]); 5] = [
    ("Strict-Transport-Security", STRICT_TRANSPORT_SECURITY, &[]),
    (
        "X-Content-Type-Options",
        X_CONTENT_TYPE_OPTIONS,
        &["nosniff"],
    ),
    ("X-Frame-Options", X_FRAME_OPTIONS, &["deny", "sameorigin"]),
    ("X-XSS-Protection", X_XSS_PROTECTION, &[]),
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY, &[]),
];

/// The headers that every answer gets; blank ones are left out.
pub(super) fn headers(
    given: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let mut headers = Vec::new();
    for (name, value) in given {
        let field = format!("http_server_config.headers.{name}");
        let Some((_, header, values)) = ALLOWED.iter().find(|(allowed, ..)| allowed == name) else {
            let allowed = ALLOWED.map(|(name, ..)| name).join(", ");
            return Err(ConfigError::new(
                field,
                format!("this header cannot be configured; {allowed} can"),
            ));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            return Err(ConfigError::new(
                field,
                format!("invalid value {value:?}; write {}", values.join(" or ")),
            ));
        }
        if value.is_empty() {
            continue;
        }
        let value = HeaderValue::from_str(value).map_err(|_| {
            ConfigError::new(
                field,
                "the value has characters that a header cannot have; leave them out",
            )
        })?;
        headers.push((header.clone(), value));
    }
    Ok(headers)
}
