//! A Unix socket: a file that its process leaves behind when it is killed.

use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::BACKLOG;
use super::error::TakenError;

/// For the user and the group of the process: a proxy in front is given its group.
const MODE: u32 = 0o660;

/// A listening Unix socket, whose file goes when the last handle goes.
#[derive(Debug)]
pub(in crate::web) struct Socket {
    pub(in crate::web) listener: UnixListener,
    /// The file, where this process made it; what systemd made is systemd's to remove.
    file: Option<(PathBuf, Id)>,
}

/// Which file it is: another process may have put its own in its place.
type Id = (u64, u64);

// === impl Socket ===

impl Socket {
    /// Listens at a path. The file of a process that is gone is replaced; a socket that somebody answers at is not.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = match Self::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_room(path)?;
                Self::bind(path)?
            }
            socket => socket?,
        };
        // Nobody can connect before `listen`, so nobody can before the mode is right.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        let file = Some((path.to_owned(), id(&fs::symlink_metadata(path)?)));
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            listener: socket.into(),
            file,
        })
    }

    /// A socket that another process made.
    pub(super) fn inherited(listener: UnixListener) -> Self {
        Self {
            listener,
            file: None,
        }
    }

    fn bind(path: &Path) -> io::Result<socket2::Socket> {
        use socket2::{Domain, SockAddr, Socket, Type};
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some((path, made)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|found| id(&found) == *made)
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self
            .listener
            .local_addr()
            .ok()
            .as_ref()
            .and_then(|address| address.as_pathname())
        {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => f.write_str("unix"),
        }
    }
}

/// Whether a socket could be opened at a path, without opening it.
pub(super) fn try_open(path: &Path) -> io::Result<()> {
    match is_abandoned(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Ok(rustix::fs::access(
        directory,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )?)
}

fn make_room(path: &Path) -> io::Result<()> {
    if is_abandoned(path)? {
        fs::remove_file(path)
    } else {
        Ok(())
    }
}

/// Whether a socket is there and nobody is behind it any more; false where it has just gone.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other(TakenError(
            "a file that is no socket is there",
        )));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Ok(_) => Err(io::Error::other(TakenError(
            "another process listens there",
        ))),
        Err(error) => Err(error),
    }
}

fn id(metadata: &Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_dead_process_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.sock");
        // Dropped without its file being removed, as by a kill.
        drop(UnixListener::bind(&path).unwrap());
        let live = Socket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        let error = Socket::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "another process listens there");
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(Socket::open(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn the_file_of_a_successor_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.sock");
        let old = Socket::open(&path).unwrap();
        // Kept beside it, so that the successor cannot get the same number.
        fs::rename(&path, dir.path().join("old.sock")).unwrap();
        let _successor = Socket::open(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
