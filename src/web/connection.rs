//! A connection's stream, which ends when the client is too slow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Limits;
use super::activity::Activity;

/// A stream with two deadlines of [`Limits`]: for the headers of a request, and for reading an answer.
///
/// hyper has one deadline for a request's headers and the silence before it, and none for writing. That one is set to
/// [`Limits::idle_timeout`]: shorter, it would close a scraper's connection between scrapes; alone, it would let a client send
/// its headers a byte a second.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    /// What was read to see what the client speaks, and is to be read again.
    first: Option<u8>,
    activity: Arc<Activity>,
    limits: Limits,
    read_deadline: Deadline,
    write_deadline: Deadline,
    /// Since when the client has not taken everything that is ready for it.
    blocked_since: Option<Instant>,
}

/// A timer that is set only when its deadline changes.
#[derive(Debug, Default)]
struct Deadline(Option<Pin<Box<Sleep>>>);

// === impl Guarded ===

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, limits: Limits) -> Self {
        Self {
            stream,
            first: None,
            activity,
            limits,
            read_deadline: Deadline::default(),
            write_deadline: Deadline::default(),
            blocked_since: None,
        }
    }

    /// The first byte that the client sends; it is read again.
    pub(super) async fn first_byte(&mut self) -> io::Result<u8>
    where
        S: AsyncRead + Unpin,
    {
        let byte = self.read_u8().await?;
        self.first = Some(byte);
        Ok(byte)
    }

    /// Follows one write: `length` bytes were ready, and `written` says how many were taken.
    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let all = matches!(written, Poll::Ready(Ok(taken)) if taken == length);
        if all {
            self.blocked_since = None;
        } else {
            self.blocked_since.get_or_insert_with(Instant::now);
        }
        let blocked = self.blocked_since.is_some();
        self.activity.set_blocked(blocked);
        match (written, self.blocked_since) {
            (Poll::Pending, Some(since)) => {
                ready!(
                    self.write_deadline
                        .poll(cx, since, self.limits.write_timeout)
                );
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            (written, _) => written,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(byte) = this.first.take() {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        let filled = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Pending => {
                let Some(since) = this.activity.headers_since() else {
                    return Poll::Pending;
                };
                ready!(
                    this.read_deadline
                        .poll(cx, since, this.limits.header_timeout)
                );
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read => {
                if buffer.filled().len() > filled {
                    this.activity.received();
                }
                read
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buffer);
        this.wrote(cx, buffer.len(), written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, buffers);
        this.wrote(cx, buffers.iter().map(|buffer| buffer.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

// === impl Deadline ===

impl Deadline {
    /// Ready once `from + after` has passed.
    fn poll(&mut self, cx: &mut Context<'_>, from: Instant, after: Duration) -> Poll<()> {
        let deadline = from + after;
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn limits() -> Limits {
        Limits {
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            ..Limits::default()
        }
    }

    fn pair(
        activity: &Arc<Activity>,
    ) -> (tokio::io::DuplexStream, Guarded<tokio::io::DuplexStream>) {
        let (client, server) = tokio::io::duplex(64);
        (client, Guarded::new(server, activity.clone(), limits()))
    }

    #[tokio::test(start_paused = true)]
    async fn headers_a_byte_at_a_time_are_given_up() {
        let (mut client, mut server) = pair(&Activity::new());
        let start = Instant::now();
        let slow = tokio::spawn(async move {
            while client.write_all(b"G").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await
            }
        });
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 10);
        slow.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_being_answered_has_no_deadline_for_reading() {
        let activity = Activity::new();
        let (_client, mut server) = pair(&activity);
        let _answering = activity.answering();
        let read = tokio::time::timeout(Duration::from_secs(1000), server.read_u8()).await;
        assert!(read.is_err(), "{read:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_of_a_further_request_starts_the_deadline() {
        let activity = Activity::new();
        let (mut client, mut server) = pair(&activity);
        drop(activity.answering());
        tokio::time::sleep(Duration::from_secs(100)).await;
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        let start = Instant::now();
        assert_eq!(
            server.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_a_byte_at_a_time_is_given_up() {
        let activity = Activity::new();
        let (mut client, mut server) = pair(&activity);
        let slow = tokio::spawn(async move {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await
            }
        });
        let start = Instant::now();
        let answer = [b'x'; 4096];
        let mut rest = &answer[..];
        // As hyper does it: what is left is offered again until all is taken.
        let error = loop {
            match server.write(rest).await {
                Ok(taken) => rest = &rest[taken..],
                Err(error) => break error,
            }
            assert_eq!(
                activity.disposable_since(),
                None,
                "an answer on its way is nothing to dispose of"
            );
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(
            (30..=31).contains(&start.elapsed().as_secs()),
            "{:?}",
            start.elapsed()
        );
        slow.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_in_time_ends_the_deadline() {
        let activity = Activity::new();
        let (mut client, mut server) = pair(&activity);
        for _ in 0..5 {
            let reader = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(29)).await;
                client.read_exact(&mut [0; 100]).await.unwrap();
                client
            });
            server.write_all(&[b'x'; 100]).await.unwrap();
            client = reader.await.unwrap();
        }
        assert!(
            activity.disposable_since().is_some(),
            "nothing is on its way any more"
        );
    }
}
