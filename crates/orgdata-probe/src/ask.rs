//! Requests, and what came of them.

use std::io::Read as _;
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response};
use orgdata_api::{Client, Endpoint};
use serde_json::Value;
use tokio::time::sleep;

/// The maximum number of requests.
pub const MAX_REQUESTS: u32 = 80;
/// How often a request is sent that fails.
const ATTEMPTS: u32 = 3;
/// How often a refusal or an empty page has to come.
const TIMES: u32 = 3;
/// The wait before a request is sent again, and the longest one if the service asks for a pause.
const WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The maximum size of a body in bytes, after decompression.
const MAX_BODY: u64 = 32 << 20;

/// Something that is known, or why it is not.
pub(crate) type Known<T> = Result<T, String>;

/// An answer and its evidence.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) answer: String,
    pub(crate) evidence: String,
}

pub(crate) fn found(answer: impl Into<String>, evidence: impl Into<String>) -> Known<Found> {
    Ok(Found {
        answer: answer.into(),
        evidence: evidence.into(),
    })
}

/// Sends requests, and counts them.
#[derive(Debug)]
pub(crate) struct Asker {
    client: Client,
    pub(crate) requests: u32,
    /// Whether pages of entries have to be turned around.
    pub(crate) is_oldest_first: bool,
}

/// A page, or a refusal.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body without the items.
    pub(crate) body: Value,
    /// The items, without an immediate repetition of one.
    pub(crate) items: Vec<Value>,
    /// When the request was sent, and when the response was there.
    pub(crate) sent: SystemTime,
    pub(crate) received: SystemTime,
}

// === impl Asker ===

impl Asker {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            requests: 0,
            is_oldest_first: false,
        }
    }

    /// Requests audit log entries, which are returned newest first once their order is known.
    pub(crate) async fn audit(&mut self, query: &[(&str, &str)]) -> Known<Page> {
        let mut page = self.page(Endpoint::AuditLogs, query).await?;
        if self.is_oldest_first {
            page.items.reverse();
        }
        Ok(page)
    }

    /// Requests the entries below a cursor, or the newest ones. A refusal is an error.
    pub(crate) async fn below(&mut self, limit: &str, cursor: Option<&str>) -> Known<Page> {
        let before = cursor.map(|cursor| ("before", cursor));
        let query: Vec<_> = [("limit", limit)].into_iter().chain(before).collect();
        self.audit(&query).await?.succeeded()
    }

    /// Requests tickets.
    pub(crate) async fn tickets(&mut self, limit: usize, offset: usize) -> Known<Page> {
        let (limit, offset) = (limit.to_string(), offset.to_string());
        let query = [("limit", &*limit), ("offset", &*offset)];
        self.page(Endpoint::Tickets, &query).await
    }

    /// Requests a page. A refusal or an empty page has to come three times in a row; the first one is returned.
    pub(crate) async fn page(&mut self, endpoint: Endpoint, query: &[(&str, &str)]) -> Known<Page> {
        let page = self.get(endpoint, query).await?;
        for _ in 1..TIMES {
            if !page.items.is_empty() {
                break;
            }
            let again = self.get(endpoint, query).await?;
            if again.status != page.status || !again.items.is_empty() {
                return Err("the same request was answered in different ways".to_owned());
            }
        }
        Ok(page)
    }

    /// Tells how a request was answered that the contract does not describe. `top` is a page with the first item alone.
    pub(crate) async fn outcome(
        &mut self,
        endpoint: Endpoint,
        query: &[(&str, &str)],
        top: &Page,
    ) -> Known<Found> {
        let page = self.page(endpoint, query).await?;
        let evidence = format!("status {}, {} items", page.status, page.items.len());
        let (ids, top) = (page.ids()?, top.ids()?);
        match top.first() {
            _ if page.status != 200 => found("refused", evidence),
            None => Err("there is nothing to list".to_owned()),
            Some(_) if ids.is_empty() => found("an empty page", evidence),
            Some(top) if ids.contains(top) => found("the first page", evidence),
            Some(_) => Err(format!("it was answered with other items ({evidence})")),
        }
    }

    /// Requests a page or a refusal, and does so again if the service fails.
    async fn get(&mut self, endpoint: Endpoint, query: &[(&str, &str)]) -> Known<Page> {
        let mut why = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(WAIT).await;
            }
            if self.requests == MAX_REQUESTS {
                return Err(format!("{MAX_REQUESTS} requests were sent"));
            }
            self.requests += 1;
            let sent = SystemTime::now();
            why = match self.client.get(endpoint, query).await {
                Ok(response) => match Page::read(response, sent) {
                    Ok(page) => return Ok(page),
                    Err(why) => why,
                },
                Err(error) => {
                    sleep(error.retry_after().unwrap_or_default().min(MAX_WAIT)).await;
                    error.summary()
                }
            };
        }
        Err(why)
    }
}

// === impl Page ===

impl Page {
    fn read(response: Response<Vec<u8>>, sent: SystemTime) -> Known<Self> {
        let (parts, mut body) = response.into_parts();
        let status = parts.status.as_u16();
        let is_refusal = parts.status.is_client_error() && ![401, 403, 408, 429].contains(&status);
        if status != 200 && !is_refusal {
            return Err(format!("status {status}"));
        }
        let mut page = Self {
            status,
            headers: parts.headers,
            body: Value::Null,
            items: Vec::new(),
            sent,
            received: SystemTime::now(),
        };
        if is_refusal {
            return Ok(page);
        }
        if page.is_compressed() {
            let mut plain = Vec::new();
            let mut decoder = GzDecoder::new(&*body).take(MAX_BODY);
            let read = decoder.read_to_end(&mut plain);
            read.map_err(|_| "the body is not gzip".to_owned())?;
            body = plain;
        }
        page.body = serde_json::from_slice(&body).unwrap_or_default();
        let Some(Value::Array(items)) = page.body.get_mut("items").map(Value::take) else {
            return Err("the answer is not a page".to_owned());
        };
        page.items = items;
        page.items.dedup();
        Ok(page)
    }

    /// Returns the page, or why it is a refusal.
    pub(crate) fn succeeded(self) -> Known<Self> {
        match self.status {
            200 => Ok(self),
            status => Err(format!("status {status}")),
        }
    }

    pub(crate) fn is_compressed(&self) -> bool {
        let encoding = self.headers.get(CONTENT_ENCODING);
        encoding.is_some_and(|encoding| encoding == "gzip")
    }

    /// Returns the ids of the items as JSON, in the order of the page.
    pub(crate) fn ids(&self) -> Known<Vec<String>> {
        self.items.iter().map(id).collect()
    }

    /// Returns a flag with the value that is right.
    pub(crate) fn flag(&self, name: &'static str, right: bool) -> (&'static str, bool, Value) {
        (name, right, self.body[name].clone())
    }

    /// Returns a cursor; `None` if it is missing, null or empty.
    pub(crate) fn cursor(&self, name: &str) -> Option<&str> {
        self.body[name].as_str().filter(|cursor| !cursor.is_empty())
    }
}

/// Returns the id of an item as JSON.
pub(crate) fn id(item: &Value) -> Known<String> {
    let id = item.get("id").filter(|id| !id.is_null());
    id.map(Value::to_string)
        .ok_or_else(|| "an item has no id".to_owned())
}
