//! Names of servers, and where their sockets are.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::socket::{Owner, owner};

/// The folder of the sockets of services.
const SYSTEM: &str = "/run/thalweg";
/// In place of all other folders, for tests and containers.
const OVERRIDE: &str = "THALWEG_RUNTIME_DIR";
/// The folder of a user's sockets is below the folder that this variable names.
const USER: &str = "XDG_RUNTIME_DIR";
/// The most characters of a name: with the folder it must fit a socket's address.
const MAX_NAME: usize = 64;
const SUFFIX: &str = ".sock";

/// Where a server listens: a name, which stands for a socket in one of the [`Folders`], or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `NAME.sock` in a folder for sockets.
    Name(String),
    /// A socket anywhere.
    Path(PathBuf),
}

/// A text that is neither a name nor a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is not a name of a socket; expected 1 to {MAX_NAME} letters, digits, '-', '_' or '.', the \
     first one a letter or digit, or a path with '/'",
    thalweg_source::shortened(.0, 80)
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('/') {
            return Ok(Self::Path(text.into()));
        }
        if is_name(text) {
            return Ok(Self::Name(text.into()));
        }
        Err(AddressError(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

fn is_name(text: &str) -> bool {
    let fits = (1..=MAX_NAME).contains(&text.len());
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    fits && starts && text.chars().all(is_allowed)
}

impl Address {
    /// The name that is most like `text`: what a name cannot hold becomes `-`. `None` if nothing
    /// is left.
    pub fn like(text: &str) -> Option<Self> {
        let is_kept = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name: String = text.chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
        let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        // All its characters are ASCII.
        let name = &name[..name.len().min(MAX_NAME)];
        (!name.is_empty()).then(|| Self::Name(name.into()))
    }
}

/// The folders in which sockets have their names, the preferred one first.
#[derive(Clone, Debug)]
pub struct Folders(Vec<PathBuf>);

/// A socket on which a server listens now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// The process, if its owner may know it.
    pub pid: Option<u32>,
}

impl Folders {
    /// `/run/thalweg` and `$XDG_RUNTIME_DIR/thalweg`; or only `$THALWEG_RUNTIME_DIR`, if it is set.
    pub fn from_environment() -> Self {
        let folder = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(only) = folder(OVERRIDE) {
            return Self(vec![only]);
        }
        let user = folder(USER).map(|folder| folder.join("thalweg"));
        Self([PathBuf::from(SYSTEM)].into_iter().chain(user).collect())
    }

    /// These folders.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(folders.into_iter().collect())
    }

    /// The path at which a server at `address` should listen: in the first folder that this
    /// process may write to, which is created if it is missing.
    ///
    /// # Errors
    /// The reason why the last folder does not serve.
    pub fn path_to_create(&self, address: &Address) -> Result<PathBuf, String> {
        let name = match address {
            Address::Path(path) => return Ok(path.clone()),
            Address::Name(name) => name,
        };
        let mut reason = "no folder for sockets is known".to_owned();
        for folder in &self.0 {
            let writable = fs::create_dir_all(folder).and_then(|()| {
                Ok(rustix::fs::access(
                    folder,
                    rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
                )?)
            });
            match writable {
                Ok(()) => return Ok(socket_in(folder, name)),
                Err(e) => reason = format!("{}: {e}", folder.display()),
            }
        }
        Err(reason)
    }

    /// The paths at which a server at `address` may listen.
    pub fn paths(&self, address: &Address) -> Vec<PathBuf> {
        match address {
            Address::Path(path) => vec![path.clone()],
            Address::Name(name) => self.0.iter().map(|folder| socket_in(folder, name)).collect(),
        }
    }

    /// The sockets on which servers listen now, by name.
    pub fn listening(&self) -> Vec<Listening> {
        let entries = self.0.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let sockets = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_socket()));
        let mut listening: Vec<_> = sockets.filter_map(|entry| listens(&entry.path())).collect();
        listening.sort_by(|a, b| a.name.cmp(&b.name));
        listening
    }
}

fn socket_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{SUFFIX}"))
}

/// The server that listens at `path`, if there is one.
fn listens(path: &Path) -> Option<Listening> {
    let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.to_owned();
    let pid = match owner(path) {
        Owner::Nothing => return None,
        Owner::Process(pid) => Some(pid),
        Owner::Unknown => None,
    };
    Some(Listening { name, path: path.to_owned(), pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Socket;

    #[test]
    fn a_name_is_short_and_has_no_special_characters() {
        for name in ["edge", "a", "edge-2.lan_x", &"n".repeat(MAX_NAME)] {
            assert_eq!(name.parse(), Ok(Address::Name(name.into())));
        }
        for path in ["/run/x.sock", "./x", "a/b"] {
            assert_eq!(path.parse(), Ok(Address::Path(path.into())));
        }
        for wrong in ["", ".", "..", "-s", "a b", "ü", "a\0b", &"n".repeat(MAX_NAME + 1)] {
            let error = wrong.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("expected 1 to 64 letters"), "{error}");
        }
    }

    #[test]
    fn a_name_is_made_of_any_text() {
        for (text, name) in [("edge", "edge"), ("my chain", "my-chain"), (".a", "a"), ("é-x", "x")]
        {
            assert_eq!(Address::like(text), Some(Address::Name(name.into())));
        }
        assert_eq!(Address::like("../"), None);
        let long = Address::like(&"x".repeat(1000)).unwrap().to_string();
        assert_eq!(long.parse(), Ok(Address::Name(long)));
    }

    #[test]
    fn the_first_folder_that_can_be_written_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let good = folder.path().join("a/b");
        let address = Address::Name("x".into());
        let folders = Folders::new([file.clone(), good.clone()]);
        assert_eq!(folders.path_to_create(&address), Ok(good.join("x.sock")));
        let error = Folders::new([file.clone()]).path_to_create(&address).unwrap_err();
        assert!(error.starts_with(&file.display().to_string()), "{error}");
    }

    #[test]
    fn only_sockets_with_a_server_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::new([folder.path().to_owned()]);
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file.sock"), "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("dead.sock")).unwrap());
        let live = Socket::claim(&at("live.sock")).unwrap();
        let pid = Some(std::process::id());
        let expected = Listening { name: "live".into(), path: at("live.sock"), pid };
        assert_eq!(folders.listening(), [expected]);
        drop(live);
        assert_eq!(folders.listening(), []);
    }
}
