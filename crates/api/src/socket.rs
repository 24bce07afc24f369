//! Unix sockets: taken over from a server that died, and refused while one lives.
//!
//! A locked file with the process number, `NAME.sock.pid`, decides who may have a socket: the
//! kernel releases the lock when its process ends, however it ends. The socket itself cannot
//! decide, since between the discovery that it is dead and its removal another server may have
//! replaced it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// The bytes of a path that the address of a socket can hold, without the zero at its end.
const MAX_PATH: usize = 107;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;

/// A unix socket that listens, and that only its owner may use. Dropping it removes it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    pid_path: PathBuf,
    /// Locked as long as the socket is in use.
    _pid_file: File,
}

/// Why a socket is not available.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A process listens there.
    #[error("{path}: in use by process {pid}", path = .0.display(), pid = .1)]
    InUse(PathBuf, u32),
    /// A process that does not give its number listens there.
    #[error("{}: in use by another process", .0.display())]
    InUseByUnknown(PathBuf),
    /// There is a file.
    #[error("{}: not a socket; expected the path of a socket, or of nothing", .0.display())]
    NotASocket(PathBuf),
    /// The path does not fit the address of a socket.
    #[error("{}: {} bytes are too long for the path of a socket; expected at most {MAX_PATH}",
        .0.display(), .0.as_os_str().len())]
    TooLong(PathBuf),
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Socket {
    /// Listens at `path`, with mode 0600. A socket that a dead server left is replaced.
    ///
    /// # Errors
    /// When a server listens there, with its process number; and when the system refuses.
    pub fn claim(path: &Path) -> Result<Self, SocketError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(SocketError::TooLong(path.into()));
        }
        let pid_path = pid_path(path);
        let mut pid_file = match thalweg_source::create(&pid_path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Err(in_use(path)),
            Err(e) => return Err(system(&pid_path, e)),
        };
        let claimed = write_pid(&mut pid_file)
            .map_err(|e| system(&pid_path, e))
            .and_then(|()| remove_dead(path))
            .and_then(|()| listen_at(path).map_err(|e| system(path, e)));
        match claimed {
            Ok(listener) => Ok(Self { listener, path: path.into(), pid_path, _pid_file: pid_file }),
            Err(error) => {
                let _ = fs::remove_file(&pid_path);
                Err(error)
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the socket to a user, which this process becomes; also its folder, if that is named for
    /// the program as those of [`Folders`](crate::Folders) are, so that the user can remove it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn give_to(&self, user: u32, group: u32) -> io::Result<()> {
        use std::os::unix::fs::chown;
        chown(&self.path, Some(user), Some(group))?;
        chown(&self.pid_path, Some(user), Some(group))?;
        let folder = self.path.parent();
        match folder.filter(|folder| folder.file_name().is_some_and(|name| name == "thalweg")) {
            Some(folder) => chown(folder, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// A listener on it.
    ///
    /// # Errors
    /// When the process has no more descriptors.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The lock is released last, so that neither file can be that of another server.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.pid_path);
    }
}

fn system(path: &Path, source: io::Error) -> SocketError {
    SocketError::System { path: path.into(), source }
}

fn pid_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pid");
    name.into()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    // Another user who may read the file could lock it.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{}", std::process::id())
}

/// The error about the live owner of a socket.
fn in_use(path: &Path) -> SocketError {
    // It may just be about to listen.
    let of_socket = match owner(path) {
        Owner::Process(pid) => Some(pid),
        Owner::Nothing | Owner::Unknown => None,
    };
    let of_file = || fs::read_to_string(pid_path(path)).ok()?.trim().parse().ok();
    match of_socket.or_else(of_file) {
        Some(pid) => SocketError::InUse(path.into(), pid),
        None => SocketError::InUseByUnknown(path.into()),
    }
}

/// Removes the socket of a dead server; its lock is ours.
fn remove_dead(path: &Path) -> Result<(), SocketError> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.into()));
    }
    match owner(path) {
        // Not one of our servers: they lock the file.
        Owner::Process(_) | Owner::Unknown => Err(in_use(path)),
        Owner::Nothing => fs::remove_file(path).map_err(|e| system(path, e)),
    }
}

/// The process that listens on a socket.
pub enum Owner {
    /// No process.
    Nothing,
    /// This process.
    Process(u32),
    /// A process that this one may not connect to, or that accepts no connections.
    Unknown,
}

/// The process that listens at `path`, as the kernel reports it. Waits for nothing, also if that
/// process is stuck and its queue of connections is full.
pub fn owner(path: &Path) -> Owner {
    match connect_at_once(path) {
        Ok(stream) => rustix::net::sockopt::socket_peercred(&stream)
            .map_or(Owner::Unknown, |credentials| {
                Owner::Process(credentials.pid.as_raw_nonzero().get().unsigned_abs())
            }),
        Err(e)
            if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
        {
            Owner::Nothing
        }
        Err(_) => Owner::Unknown,
    }
}

fn connect_at_once(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
    Ok(socket)
}

/// Listens at `path`. The mode is set between bind and listen: before listen, nothing connects.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_socket_is_for_its_owner_only_and_removed_at_the_end() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let socket = Socket::claim(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&path), mode(&pid_path(&path))], [0o600; 2]);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert_eq!(entries(folder.path()), 0);
    }

    #[test]
    fn one_of_a_live_server_is_refused_with_its_process() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let socket = Socket::claim(&path).unwrap();
        let error = Socket::claim(&path).unwrap_err();
        let pid = std::process::id();
        assert!(matches!(error, SocketError::InUse(_, owner) if owner == pid), "{error}");
        assert!(error.to_string().ends_with(&format!("a.sock: in use by process {pid}")));
        UnixStream::connect(&path).expect("the refused one changed nothing");
        drop(socket);
        Socket::claim(&path).unwrap();
    }

    #[test]
    fn one_that_a_dead_server_left_is_taken_over() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        fs::write(pid_path(&path), "1\n").unwrap();
        let socket = Socket::claim(&path).unwrap();
        let pid = fs::read_to_string(pid_path(&path)).unwrap();
        assert_eq!(pid, format!("{}\n", std::process::id()));
        drop(socket);
        assert_eq!(entries(folder.path()), 0);
    }

    #[test]
    fn one_of_another_program_and_a_file_are_left_alone() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(Socket::claim(&path), Err(SocketError::InUse(..))));
        UnixStream::connect(&path).unwrap();
        drop(other);
        let file = folder.path().join("b.sock");
        fs::write(&file, "text").unwrap();
        let error = Socket::claim(&file).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(entries(folder.path()), 2, "no file of a process is left");
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(MAX_PATH)));
        let error = Socket::claim(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("too long for the path of a socket; expected at most 107"),
            "{error}"
        );
    }

    /// Servers that start at the same time, over and over: never two at once.
    #[test]
    fn one_of_many_that_start_at_once_wins() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let (live, wins) =
            (std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    use std::sync::atomic::Ordering::SeqCst;
                    for _ in 0..200 {
                        let Ok(socket) = Socket::claim(&path) else { continue };
                        assert_eq!(live.fetch_add(1, SeqCst), 0, "two servers have one socket");
                        assert!(!matches!(owner(&path), Owner::Nothing), "the winner is reached");
                        wins.fetch_add(1, SeqCst);
                        live.fetch_sub(1, SeqCst);
                        drop(socket);
                    }
                });
            }
        });
        assert!(wins.into_inner() > 0);
        assert_eq!(entries(folder.path()), 0);
    }

    /// A process that is killed cannot remove its socket.
    #[test]
    fn one_of_a_killed_process_is_taken_over() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let script = "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\n\
                      s.bind(sys.argv[1])\ns.listen()\nprint('ready', flush=True)\ntime.sleep(60)";
        let child = Command::new("python3")
            .args(["-c", script, path.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { return thalweg_testkit::peer::missing("python3") };
        let mut ready = [0; 5];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let error = Socket::claim(&path).unwrap_err();
        assert!(matches!(error, SocketError::InUse(_, pid) if pid == child.id()), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        Socket::claim(&path).unwrap();
    }
}
