//! A server that answers byte for byte as a test says: also what no HTTP library would send.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The request line and the headers.
    pub(crate) head: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// These bytes, then nothing, and the connection stays open.
    Held(Vec<u8>),
    /// These bytes, then the connection is reset.
    Reset(Vec<u8>),
    /// The first bytes, then the second ones again and again, with a pause each time.
    Drip(Vec<u8>, Vec<u8>, Duration),
}

/// A server on loopback; it stops when this is dropped.
pub(crate) struct Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

/// A whole answer: its length is right, and the connection ends with it.
pub(crate) fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let head = head(status, headers, body.len());
    Reply::Bytes([head.as_bytes(), body].concat())
}

pub(crate) fn json(status: &str, body: impl AsRef<[u8]>) -> Reply {
    answer(status, &["content-type: application/json"], body)
}

/// The status line and headers of an answer with so many bytes of body.
pub(crate) fn head(status: &str, headers: &[&str], length: usize) -> String {
    let headers = headers.iter().map(|header| format!("{header}\r\n"));
    let headers: String = headers.collect();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n")
}

pub(crate) const NO_TICKETS: &str = r#"{"items":[],"limit":100,"offset":0,"totalCount":0}"#;

pub(crate) const NO_ENTRIES: &str =
    r#"{"items":[],"startCursor":null,"endCursor":null,"hasPrevious":false,"hasMore":false}"#;

impl Seen {
    /// What was asked for: the path and the query.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

impl Peer {
    /// Starts a server; the script gets each request and its number, from 1.
    pub(crate) async fn start(
        script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_, _| reply.clone()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<S>(mut stream: TcpStream, script: Arc<S>, log: Arc<Mutex<Vec<Seen>>>)
where
    S: Fn(&Seen, usize) -> Reply,
{
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let seen = Seen {
        head: String::from_utf8_lossy(&head).into_owned(),
    };
    let number = {
        let mut log = log.lock().unwrap();
        log.push(seen.clone());
        log.len()
    };
    let reply = script(&seen, number);
    let (Reply::Bytes(first) | Reply::Held(first) | Reply::Reset(first) | Reply::Drip(first, ..)) =
        &reply;
    // A client that goes away is what some tests are about.
    let _ = stream.write_all(first).await;
    match reply {
        Reply::Bytes(_) => drop(stream.shutdown().await),
        // Until the client goes; what else it sends is taken.
        Reply::Held(_) => while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {},
        Reply::Reset(_) => drop(socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
        Reply::Drip(_, again, pause) => {
            while stream.write_all(&again).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        }
    }
}
