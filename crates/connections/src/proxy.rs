//! The proxy that the environment names: the HTTP client passes over one that it cannot use, and connects directly.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// Checks the proxy for an address, unless `NO_PROXY` excepts the address.
///
/// # Errors
/// Returns an error if the proxy is not an HTTP proxy. The value is not shown: it may contain a password.
pub fn check_proxy(address: &str) -> Result<(), String> {
    check(address, |name| std::env::var(name).ok())
}

fn check(address: &str, env: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    // By the rules of the HTTP client.
    let excepted = env("NO_PROXY").or_else(|| env("no_proxy"));
    let any = Matcher::builder().all("http://proxy");
    let any = any.no(excepted.unwrap_or_default()).build();
    let address: Uri = address.parse().unwrap_or_default();
    if any.intercept(&address).is_none() {
        return Ok(());
    }
    let scheme = address.scheme_str().unwrap_or_default();
    let of_scheme = format!("{scheme}_proxy");
    let names = [
        of_scheme.to_uppercase(),
        of_scheme,
        "ALL_PROXY".to_owned(),
        "all_proxy".to_owned(),
    ];
    let is_set = |name: String| Some((env(&name).filter(|value| !value.is_empty())?, name));
    let Some((value, name)) = names.into_iter().find_map(is_set) else {
        return Ok(());
    };
    const RIGHT: &str = "give http://HOST:PORT or https://HOST:PORT";
    let proxy = value.parse::<Uri>().ok();
    let proxy = proxy.filter(|proxy| proxy.host().is_some_and(|host| !host.is_empty()));
    let proxy = proxy.ok_or_else(|| format!("{name} is not the URL of a proxy; {RIGHT}"))?;
    match proxy.scheme_str() {
        None | Some("http" | "https") => Ok(()),
        Some(other) => Err(format!(
            "{name}: {other} proxies are not supported; {RIGHT}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_that_counts_is_an_http_proxy() {
        for (variables, wrong) in [
            ("", ""),
            ("HTTPS_PROXY=http://p:3128", ""),
            ("https_proxy=HTTPS://user:hush@p", ""),
            ("HTTPS_PROXY=p:3128 ALL_PROXY=socks5://p", ""),
            ("HTTPS_PROXY= http_proxy=socks5://p", ""),
            ("ALL_PROXY=socks5://p NO_PROXY=.example,10.0.0.0/8", ""),
            ("ALL_PROXY=socks5://p no_proxy=*", ""),
            (
                "ALL_PROXY=socks5://p NO_PROXY=other",
                "ALL_PROXY: socks5 proxies",
            ),
            (
                "HTTPS_PROXY=socks5://user:hush@p:1",
                "HTTPS_PROXY: socks5 proxies",
            ),
            ("https_proxy=ftp://p", "https_proxy: ftp proxies"),
            ("all_proxy=socks5h://p", "all_proxy: socks5h proxies"),
            ("HTTPS_PROXY=http://user:hush@", "HTTPS_PROXY is not"),
            ("HTTPS_PROXY=http:/p:3128", "HTTPS_PROXY is not the URL"),
        ] {
            let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            let env = |name: &str| {
                let (_, value) = pairs.clone().find(|(known, _)| *known == name)?;
                Some(value.to_owned())
            };
            let error = check("https://api.example/v1", env)
                .err()
                .unwrap_or_default();
            let is_right = error.starts_with(wrong) && error.is_empty() == wrong.is_empty();
            assert!(is_right && !error.contains("hush"), "{variables}: {error}");
        }
    }
}
