//! Faults as text: what the command line and the control endpoint say.
//!
//! A fault is written `KIND[=VALUE][,on=audit|tickets][,times=N][,every=N][,chance=P]`, the same on the command line
//! and at the control endpoint:
//!
//! | kind | what the client sees |
//! |---|---|
//! | `STATUS[=MESSAGE]`, as `500`, `503`, `401`, `404` | that status with a body `{"message": MESSAGE}` |
//! | `429[=WAIT]` | 429; `WAIT` is `10s` (`Retry-After` in seconds), `date:10s` (as a date) or nothing (no header) |
//! | `redirect=URL` | 307 to that address |
//! | `delay=DURATION` | the right answer, later; goes together with another fault |
//! | `reset` | the connection is reset before an answer |
//! | `reset-body` | the connection is reset in the middle of the body |
//! | `truncated-json` | half of the body, with a `Content-Length` that says so |
//! | `truncated-transfer` | half of the body the header promised, then the end of the connection |
//! | `stall` | half of the body, then nothing |
//! | `hang` | no answer, ever |
//! | `html[=STATUS]` | an HTML page, with 200 unless said |
//! | `empty[=STATUS]` | no body, with 200 unless said |
//! | `oversized=BYTES` | a valid page made so large by white space |
//! | `expired-cursor[=STATUS]` | any `after` or `before` is refused with that status (400 unless said) |
//! | `expired-cursor=empty` | any `after` or `before` is answered with an empty page |
//! | `too-large=LIMIT` | 500 when more than so many are asked for |
//! | `poison=ID` | 500 for every page that holds the entry or ticket with this id |
//! | `empty-page[=OFFSET]` | a page without items; with an offset, only the page that begins there or holds it |
//! | `unknown-fields` | a page and items with fields that the specification does not name |
//! | `wrong-types`, `missing-id`, `not-an-object` | the first item of the page is malformed in that way |
//! | `duplicate` | the first item of the page comes twice |

use std::fmt;
use std::str::FromStr;

use http::StatusCode;

use super::fault::{Endpoint, Fault, FaultKind, RetryAfter};

/// Why a fault could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault {spec:?}: {problem}")]
pub struct FaultError {
    spec: String,
    problem: String,
}

// === impl Fault ===

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(spec: &str) -> Result<Self, FaultError> {
        let error = |problem: String| FaultError {
            spec: spec.to_owned(),
            problem,
        };
        // Options are taken from the end, so that a message or an address may hold commas.
        let mut rest = spec.trim();
        let (mut on, mut times, mut every, mut chance) = (None, None, None, None);
        while let Some((before, option)) = rest.rsplit_once(',') {
            let option = option.trim();
            let count = |text: &str| match text.parse() {
                Ok(0) | Err(_) => Err(error(format!("{option:?} needs a number of at least 1"))),
                Ok(count) => Ok(Some(count)),
            };
            match option.split_once('=') {
                Some(("on", name)) => {
                    on = match name {
                        "audit" => Some(Endpoint::Audit),
                        "tickets" => Some(Endpoint::Tickets),
                        "both" => None,
                        _ => return Err(error(format!("on={name}: audit, tickets or both"))),
                    };
                }
                Some(("times", text)) => times = count(text)?,
                Some(("every", text)) => every = count(text)?,
                Some(("chance", text)) => {
                    let within = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
                    chance =
                        Some(within.ok_or_else(|| {
                            error(format!("chance={text}: a number from 0 to 1"))
                        })?);
                }
                _ => break,
            }
            rest = before.trim_end();
        }
        let (name, value) = rest
            .split_once('=')
            .map_or((rest, None), |(name, value)| (name, Some(value)));
        let kind = FaultKind::parse(name, value).map_err(error)?;
        Ok(Self {
            kind,
            on,
            times,
            every,
            chance,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if let Some(on) = self.on {
            write!(f, ",on={on}")?;
        }
        if let Some(times) = self.times {
            write!(f, ",times={times}")?;
        }
        if let Some(every) = self.every {
            write!(f, ",every={every}")?;
        }
        if let Some(chance) = self.chance {
            write!(f, ",chance={chance}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Audit => "audit",
            Self::Tickets => "tickets",
        })
    }
}

// === impl FaultKind ===

impl FaultKind {
    fn parse(name: &str, value: Option<&str>) -> Result<Self, String> {
        let required = || value.ok_or_else(|| format!("{name} needs a value: {name}=…"));
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("{text:?} is not a number"))
        };
        let wait =
            |text: &str| humantime::parse_duration(text).map_err(|e| format!("{text:?}: {e}"));
        let status_or = |default| value.map_or(Ok(default), status);
        let kind = match name {
            "429" => Self::TooManyRequests(match value {
                None | Some("") => RetryAfter::Absent,
                Some(text) => match text.strip_prefix("date:") {
                    Some(text) => RetryAfter::Date(wait(text)?),
                    None => RetryAfter::Seconds(wait(text)?.as_secs()),
                },
            }),
            "redirect" => Self::Redirect(required()?.to_owned()),
            "delay" => Self::Delay(wait(required()?)?),
            "oversized" => Self::Oversized(number(required()?)?),
            "too-large" => Self::TooLarge(number(required()?)?),
            "poison" => Self::Poison(required()?.to_owned()),
            "empty-page" => Self::EmptyPage(value.map(number).transpose()?),
            "expired-cursor" if value == Some("empty") => Self::ExpiredCursorEmpty,
            "expired-cursor" => Self::ExpiredCursor(status_or(StatusCode::BAD_REQUEST)?),
            "html" => Self::Html(status_or(StatusCode::OK)?),
            "empty" => Self::Empty(status_or(StatusCode::OK)?),
            _ => {
                if let Some((kind, _)) = PLAIN.iter().find(|(_, plain)| *plain == name) {
                    return if value.is_none() {
                        Ok(kind.clone())
                    } else {
                        Err(format!("{name} takes no value"))
                    };
                }
                let status = status(name).map_err(|_| format!("unknown kind {name:?}"))?;
                let message =
                    value.map_or_else(|| format!("Simulated failure: {status}"), str::to_owned);
                Self::Status(status, message)
            }
        };
        Ok(kind)
    }
}

/// Kinds without a value.
const PLAIN: &[(FaultKind, &str)] = &[
    (FaultKind::Reset, "reset"),
    (FaultKind::ResetBody, "reset-body"),
    (FaultKind::TruncatedJson, "truncated-json"),
    (FaultKind::TruncatedTransfer, "truncated-transfer"),
    (FaultKind::Stall, "stall"),
    (FaultKind::Hang, "hang"),
    (FaultKind::UnknownFields, "unknown-fields"),
    (FaultKind::WrongTypes, "wrong-types"),
    (FaultKind::MissingId, "missing-id"),
    (FaultKind::NotAnObject, "not-an-object"),
    (FaultKind::Duplicate, "duplicate"),
];

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status, message) => write!(f, "{}={message}", status.as_u16()),
            Self::TooManyRequests(RetryAfter::Absent) => f.write_str("429"),
            Self::TooManyRequests(RetryAfter::Seconds(seconds)) => write!(f, "429={seconds}s"),
            Self::TooManyRequests(RetryAfter::Date(wait)) => {
                write!(f, "429=date:{}", humantime::format_duration(*wait))
            }
            Self::Redirect(to) => write!(f, "redirect={to}"),
            Self::Delay(delay) => write!(f, "delay={}", humantime::format_duration(*delay)),
            Self::Html(status) => write!(f, "html={}", status.as_u16()),
            Self::Empty(status) => write!(f, "empty={}", status.as_u16()),
            Self::Oversized(bytes) => write!(f, "oversized={bytes}"),
            Self::ExpiredCursor(status) => write!(f, "expired-cursor={}", status.as_u16()),
            Self::ExpiredCursorEmpty => f.write_str("expired-cursor=empty"),
            Self::TooLarge(limit) => write!(f, "too-large={limit}"),
            Self::Poison(id) => write!(f, "poison={id}"),
            Self::EmptyPage(None) => f.write_str("empty-page"),
            Self::EmptyPage(Some(offset)) => write!(f, "empty-page={offset}"),
            plain => f.write_str(
                PLAIN
                    .iter()
                    .find(|(kind, _)| kind == plain)
                    .map_or("", |(_, name)| name),
            ),
        }
    }
}

fn status(text: &str) -> Result<StatusCode, String> {
    let good = text
        .parse::<u16>()
        .ok()
        .filter(|code| (200..600).contains(code));
    good.and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or_else(|| format!("{text:?} is not a status from 200 to 599"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        for spec in [
            "500=out of order, sorry,on=audit,times=3",
            "503=Simulated failure: 503 Service Unavailable",
            "429,on=tickets",
            "429=30s,every=2",
            "429=date:1m 5s,chance=0.25",
            "redirect=http://127.0.0.1:9/x?a=1",
            "delay=250ms",
            "reset",
            "reset-body",
            "truncated-json",
            "truncated-transfer",
            "stall",
            "hang,times=1",
            "html=502",
            "empty=200",
            "oversized=1000000",
            "expired-cursor=410,on=audit",
            "expired-cursor=empty",
            "too-large=500",
            "poison=abc",
            "empty-page=200",
            "empty-page",
            "unknown-fields",
            "wrong-types",
            "missing-id",
            "not-an-object",
            "duplicate",
        ] {
            assert_eq!(spec.parse::<Fault>().unwrap().to_string(), spec);
        }
    }

    #[test]
    fn a_wrong_fault_is_refused_with_the_reason() {
        for (spec, reason) in [
            ("explode", "unknown kind"),
            ("delay", "needs a value"),
            ("delay=soon", "soon"),
            ("500,times=0", "at least 1"),
            ("500,chance=2", "from 0 to 1"),
            ("500,on=users", "audit, tickets or both"),
            ("html=99", "not a status"),
            ("hang=5", "takes no value"),
        ] {
            let text = spec.parse::<Fault>().unwrap_err().to_string();
            assert!(text.contains(reason) && text.contains(spec), "{text}");
        }
    }
}
