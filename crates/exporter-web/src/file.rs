//! Files that a user names: a file system may hang, a pipe may never be written, and a device may never end.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// The maximum size of a file, in bytes. The certificates of all public authorities take a quarter of a megabyte.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// The maximum time for reading a file.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The files that are read at a time. Each one that hangs keeps one of the runtime's threads for what blocks; most of them
/// are left for others.
static READS: Semaphore = Semaphore::const_new(64);

/// Reads a file of at most 4 MiB within 5 seconds, on one of the tokio runtime's threads for what blocks.
///
/// The caller is blocked for as long, so it must not be a thread of the runtime once that serves requests.
///
/// # Errors
/// If the file cannot be read, is larger, or takes longer.
///
/// # Panics
/// Outside of a runtime.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it could not be read in time");
    let permit = READS.try_acquire().map_err(|_| late())?;
    let (path, (sender, receiver)) = (path.to_owned(), mpsc::channel());
    tokio::task::spawn_blocking(move || {
        // A late result has no receiver.
        let _ = sender.send(read(&path));
        drop(permit);
    });
    let result = receiver.recv_timeout(MAX_TIME);
    result.unwrap_or_else(|_| Err(late()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path)?;
    if file.take(MAX_SIZE + 1).read_to_end(&mut content)? as u64 > MAX_SIZE {
        return Err(io::Error::other("it is larger than 4 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pipe_without_a_writer_is_given_up_and_not_tried_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let free = READS.available_permits();
        let attempts = (0..free + 2).map(|_| {
            let pipe = pipe.clone();
            tokio::task::spawn_blocking(move || read_file(&pipe).unwrap_err().kind())
        });
        for attempt in attempts.collect::<Vec<_>>() {
            assert_eq!(attempt.await.unwrap(), io::ErrorKind::TimedOut);
        }
        assert_eq!(READS.available_permits(), 0);
        // Once there is a writer, all of them end.
        std::fs::write(&pipe, "late").unwrap();
        while READS.available_permits() < free {
            tokio::task::yield_now().await;
        }
    }
}
