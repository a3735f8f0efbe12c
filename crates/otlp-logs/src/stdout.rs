//! Log records on standard output, as lines.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use tokio::sync::Mutex;

use crate::verdict::{Reason, Rejection, Verdict};

/// The maximum time for writing the lines of a request. A pipe takes nothing without a reader.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The pause before a non-blocking pipe that is full is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes the lines of a request.
pub type Render = fn(&ExportLogsServiceRequest) -> Result<Vec<u8>, String>;

/// Returns a request as one line of OTLP JSON, the form of OpenTelemetry's file exporter.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn json_line(request: &ExportLogsServiceRequest) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(line)
}

/// Writes the lines of a request on a thread of their own. `is_cut` says whether the last line may be incomplete. It stays locked
/// while lines are written, also after the time limit, so that no two requests are mixed.
pub(crate) async fn print(
    render: Render,
    request: ExportLogsServiceRequest,
    is_cut: Arc<Mutex<bool>>,
) -> Verdict {
    let writing = async {
        let mut is_cut = is_cut.lock_owned().await;
        let write = move || {
            // An empty request only asks whether there is a collector.
            let lines = Some(&request).filter(|request| !request.resource_logs.is_empty());
            let lines = lines.map(render).transpose();
            let lines = lines.map_err(|error| rejection(Reason::BadRecord, error))?;
            // Without the buffer of `Stdout`, which keeps lines that could not be written.
            let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            let lines = lines.unwrap_or_default();
            let written = stdout.and_then(|mut out| write(&mut out, &mut is_cut, &lines));
            written.map_err(|error| rejection(Reason::Unavailable, error))
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|error| Err(rejection(Reason::Unavailable, error)))
    };
    let unread = format!("it was not read for {MAX_TIME:?}");
    let written = tokio::time::timeout(MAX_TIME, writing).await;
    let written = written.unwrap_or_else(|_| Err(rejection(Reason::Timeout, unread)));
    written.map_or_else(Verdict::Rejected, |()| Verdict::Accepted)
}

fn rejection(reason: Reason, error: impl std::fmt::Display) -> Rejection {
    Rejection::new(reason, format!("cannot write to standard output: {error}"))
}

/// Writes lines. A line that was cut by a failure is ended first: otherwise the next one would be lost with it.
fn write(out: &mut impl Write, is_cut: &mut bool, lines: &[u8]) -> io::Result<()> {
    let end: &[u8] = if *is_cut { b"\n" } else { b"" };
    for mut rest in [end, lines] {
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    *is_cut = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a number of bytes, some at a time, and fails then.
    struct Failing(Vec<u8>, usize);

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1).min(3);
            if taken == 0 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.1 -= taken;
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        const LINE: &[u8] = b"{\"a\":1}\n";
        for (room, expected) in [
            (0, "{\"a\":1}\n"),
            (4, "{\"a\"\n{\"a\":1}\n"),
            (8, "{\"a\":1}\n{\"a\":1}\n"),
        ] {
            let (mut out, mut is_cut) = (Failing(Vec::new(), room), false);
            let first = write(&mut out, &mut is_cut, LINE);
            assert_eq!(first.is_ok(), room == 8);
            // The second attempt writes nothing at all.
            for (room, is_written) in [(0, false), (usize::MAX, true)] {
                out.1 = room;
                let written = write(&mut out, &mut is_cut, LINE);
                assert_eq!(written.is_ok(), is_written);
            }
            assert_eq!(String::from_utf8_lossy(&out.0), expected, "{room}");
        }
    }
}
