//! Files that a user names: a file system may hang, a pipe may never be written, and a device may never end.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::lock;

/// The maximum size of a file, in bytes. The certificates of all public authorities take a quarter of a megabyte.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// The maximum time for reading a file.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The maximum number of threads that wait for the same file.
const MAX_WAITING: usize = 4;

/// The files that are being read.
static WAITING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Reads a file of at most 4 MiB within 5 seconds, on a thread of its own.
///
/// The caller is blocked for as long, so it must not be a thread of an async runtime once that serves requests.
///
/// # Errors
/// If the file cannot be read, is larger, or takes longer. A thread that hangs in the file system is left behind; while four
/// of them wait for the same file, it is not tried again.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut waiting = lock(&WAITING);
    if waiting.iter().filter(|other| *other == path).count() >= MAX_WAITING {
        return Err(timed_out());
    }
    waiting.push(path.to_owned());
    drop(waiting);
    let (path, (sender, receiver)) = (path.to_owned(), mpsc::channel());
    let reader = thread::Builder::new().name("read-file".to_owned());
    let started = reader.spawn({
        let path = path.clone();
        move || {
            let result = read(&path);
            done(&path);
            // A late result has no receiver.
            let _ = sender.send(result);
        }
    });
    if let Err(error) = started {
        done(&path);
        return Err(error);
    }
    let result = receiver.recv_timeout(MAX_TIME);
    result.unwrap_or_else(|_| Err(timed_out()))
}

fn done(path: &Path) {
    let mut waiting = lock(&WAITING);
    if let Some(index) = waiting.iter().position(|other| other == path) {
        waiting.swap_remove(index);
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path)?;
    if file.take(MAX_SIZE + 1).read_to_end(&mut content)? as u64 > MAX_SIZE {
        return Err(io::Error::other("it is larger than 4 MiB"));
    }
    Ok(content)
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it could not be read in time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_writer_is_given_up_and_not_tried_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let attempts = || {
            let pipe = pipe.clone();
            thread::spawn(move || read_file(&pipe).unwrap_err().kind())
        };
        let kinds = [(); MAX_WAITING + 2].map(|()| attempts());
        let kinds = kinds.map(|attempt| attempt.join().unwrap());
        assert_eq!(kinds, [io::ErrorKind::TimedOut; MAX_WAITING + 2]);
        assert_eq!(
            lock(&WAITING).iter().filter(|path| **path == pipe).count(),
            MAX_WAITING
        );
        // Once there is a writer, all of them end.
        std::fs::write(&pipe, "late").unwrap();
        while lock(&WAITING).contains(&pipe) {
            thread::yield_now();
        }
    }
}
