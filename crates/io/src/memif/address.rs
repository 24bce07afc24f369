//! The address of a control socket.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io;
use rustix::net::SocketAddrUnix;

/// A path, or a name in the abstract namespace of sockets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Path(PathBuf),
    /// Without the `@` that begins it in the chain file.
    Abstract(String),
}

impl Address {
    /// The address that a text names: a path, or `@` and a name.
    pub(super) fn new(text: PathBuf) -> Result<Self, String> {
        let name = text.to_str().and_then(|text| text.strip_prefix('@')).map(str::to_owned);
        let address = name.map_or(Self::Path(text), Self::Abstract);
        let is_empty = match &address {
            Self::Path(path) => path.as_os_str().is_empty(),
            Self::Abstract(name) => name.is_empty(),
        };
        if is_empty || address.socket().is_err() {
            return Err(format!("'{address}' is not the name of a socket"));
        }
        Ok(address)
    }

    /// The address as the system has it.
    pub(super) fn socket(&self) -> io::Result<SocketAddrUnix> {
        match self {
            Self::Path(path) => SocketAddrUnix::new(path),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }

    /// The file that it is, unless it is abstract.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Abstract(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}
