//! A server that answers byte for byte as a test says, also what no HTTP library would send, and a clock that can be fast.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRequest {
    /// The request line and the headers.
    pub(crate) head: String,
}

/// What happens to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// These bytes, then nothing, and the connection stays open.
    Held(Vec<u8>),
    /// These bytes, then the connection is reset.
    Reset(Vec<u8>),
    /// The first bytes, then the second ones again and again, as fast as they are taken.
    Endless(Vec<u8>, Vec<u8>),
    /// The first bytes, then the second ones again and again, with a pause each time.
    Drip(Vec<u8>, Vec<u8>, Duration),
}

/// A server on loopback; it stops when this is dropped.
pub(crate) struct Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    task: JoinHandle<()>,
}

/// Keeps the paused clock from jumping to the next timer while a socket is waited for: every answer would be too late.
pub(crate) struct Clock {
    _hold: mpsc::Sender<()>,
}

/// A whole answer: its length is right, and the connection ends with it.
pub(crate) fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut bytes = head(status, headers, body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

/// JSON with that status.
pub(crate) fn json(status: &str, body: impl AsRef<[u8]>) -> Reply {
    answer(status, &["content-type: application/json"], body)
}

/// The status line and headers of an answer with so many bytes of body.
pub(crate) fn head(status: &str, headers: &[&str], length: usize) -> String {
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n")
}

/// A ticket page without tickets.
pub(crate) const NO_TICKETS: &str = r#"{"items":[],"limit":100,"offset":0,"totalCount":0}"#;

/// An audit log page without entries.
pub(crate) const NO_ENTRIES: &str =
    r#"{"items":[],"startCursor":null,"endCursor":null,"hasPrevious":false,"hasMore":false}"#;

// === impl SeenRequest ===

impl SeenRequest {
    /// What was asked for: the path and the query.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|it| it.1)
    }
}

// === impl Peer ===

impl Peer {
    /// Starts a server; the script gets each request and its number, from 1.
    pub(crate) async fn start(
        script: impl Fn(&SeenRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
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

    /// A server that gives the same answer to everybody.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_, _| reply.clone()).await
    }

    /// Its base address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// How many requests came.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().expect("not poisoned").len()
    }
}

impl Clock {
    pub(crate) fn hold() -> Self {
        let (hold, held) = mpsc::channel();
        tokio::task::spawn_blocking(move || {
            let _ = held.recv();
        });
        Self { _hold: hold }
    }

    /// Waits for a future while time passes in small steps.
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = tokio::time::advance(Duration::from_millis(10)) => {}
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<S>(mut stream: TcpStream, script: Arc<S>, log: Arc<Mutex<Vec<SeenRequest>>>)
where
    S: Fn(&SeenRequest, usize) -> Reply,
{
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let seen = SeenRequest {
        head: String::from_utf8_lossy(&head).into_owned(),
    };
    let number = {
        let mut log = log.lock().expect("not poisoned");
        log.push(seen.clone());
        log.len()
    };
    // A client that goes away is what some tests are about.
    let _ = match script(&seen, number) {
        Reply::Bytes(bytes) => finish(&mut stream, &bytes).await,
        Reply::Held(bytes) => {
            let _ = stream.write_all(&bytes).await;
            // Until the client goes; what else it sends is taken.
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            Ok(())
        }
        Reply::Reset(bytes) => {
            let _ = stream.write_all(&bytes).await;
            stream.set_zero_linger()
        }
        Reply::Endless(first, again) => endless(&mut stream, &first, &again, None).await,
        Reply::Drip(first, again, pause) => endless(&mut stream, &first, &again, Some(pause)).await,
    };
}

async fn finish(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.shutdown().await
}

async fn endless(
    stream: &mut TcpStream,
    first: &[u8],
    again: &[u8],
    pause: Option<Duration>,
) -> std::io::Result<()> {
    stream.write_all(first).await?;
    loop {
        stream.write_all(again).await?;
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
}
