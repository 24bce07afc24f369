//! The sessions of SSH by which this host is administered.
//!
//! A server may listen on any port, and `sudo` drops the variable `SSH_CONNECTION`. So the ports are
//! those of the sockets that processes of a server have, and the session by which this program was started
//! is looked for in the environments of its ancestors as well. Both need privileges that a confined run
//! gives up, so that they are looked for once, before it does ([`note`]).

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, process};

/// The port of SSH.
const SSH: u16 = 22;
/// States of sockets in `/proc/net/tcp`.
const ESTABLISHED: u8 = 0x01;
const LISTENING: u8 = 0x0a;
/// The most ancestors that are looked at.
const MOST_ANCESTORS: usize = 64;

/// The two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    /// The sessions by which this program was started.
    own: Vec<Session>,
    /// The ports of servers.
    ports: HashSet<u16>,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Looks for what only privileges can find, unless that was done.
pub(super) fn note() {
    known();
}

fn known() -> &'static Known {
    KNOWN.get_or_init(|| {
        let mut known = Known { ports: HashSet::from([SSH]), ..Known::default() };
        let own = std::env::var("SSH_CONNECTION").ok();
        for text in own.into_iter().chain(of_ancestors(Path::new("/proc"), process::id())) {
            known.add(&text);
        }
        known.ports.extend(ports_of_servers(Path::new("/proc"), &table()));
        known
    })
}

impl Known {
    /// Adds the session of an `SSH_CONNECTION`: addresses and ports of the peer, and of this host.
    fn add(&mut self, connection: &str) {
        let fields: Vec<_> = connection.split_whitespace().collect();
        let [peer, _, local, port] = fields[..] else { return };
        // A link-local address has the interface's name after it.
        let address =
            |text: &str| Some(text.split('%').next()?.parse::<IpAddr>().ok()?.to_canonical());
        let (Some(peer), Some(local)) = (address(peer), address(local)) else { return };
        self.own.push(Session { local, peer });
        self.ports.extend(port.parse::<u16>());
    }
}

/// All sessions: that of this program, and those to the ports of servers. A session by which a program
/// was started in another network namespace has a local address that this one lacks.
pub(super) fn all() -> Vec<Session> {
    let known = known();
    let table = table();
    let now = sockets(&table)
        .filter(|socket| socket.state == ESTABLISHED && known.ports.contains(&socket.port));
    known.own.iter().copied().chain(now.map(|socket| socket.ends)).collect()
}

/// The TCP sockets of the network namespace of this thread.
fn table() -> String {
    let of = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    ["tcp", "tcp6"].map(of).concat()
}

/// A socket of `/proc/net/tcp` or `tcp6`.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    ends: Session,
    /// The local port.
    port: u16,
    state: u8,
    inode: u64,
}

fn sockets(table: &str) -> impl Iterator<Item = Socket> {
    table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, peer, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let ((local, port), (peer, _)) = (end(local)?, end(peer)?);
        let state = u8::from_str_radix(state, 16).ok()?;
        Some(Socket { ends: Session { local, peer }, port, state, inode: inode.parse().ok()? })
    })
}

/// An address with a port, in hexadecimal: words of 32 bits in the byte order of this machine.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

/// The values of `SSH_CONNECTION` of the ancestors of a process, as far as the system shows them.
fn of_ancestors(proc: &Path, process: u32) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), parent(proc, process));
    for _ in 0..MOST_ANCESTORS {
        let Some(one) = next.filter(|id| *id > 0) else { break };
        let environment = fs::read(proc.join(one.to_string()).join("environ")).unwrap_or_default();
        let values = environment.split(|byte| *byte == 0);
        let values = values.filter_map(|text| text.strip_prefix(b"SSH_CONNECTION="));
        found.extend(values.map(|value| String::from_utf8_lossy(value).into_owned()));
        next = parent(proc, one);
    }
    found
}

/// The parent of a process.
fn parent(proc: &Path, process: u32) -> Option<u32> {
    let stat = fs::read_to_string(proc.join(process.to_string()).join("stat")).ok()?;
    // The name before it may hold any characters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The ports at which processes of a server of SSH listen, or have sessions of a socket that another
/// process, such as systemd, listens at.
fn ports_of_servers(proc: &Path, table: &str) -> HashSet<u16> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let processes = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let servers = processes.map(|entry| entry.path()).filter(|process| is_server(process));
    let inodes: HashSet<u64> = servers.flat_map(|process| inodes(&process)).collect();
    if inodes.is_empty() {
        return HashSet::new();
    }
    let of_state = |state| sockets(table).filter(move |socket| socket.state == state);
    let listened: HashSet<u16> = of_state(LISTENING).map(|socket| socket.port).collect();
    let owned = sockets(table).filter(|socket| inodes.contains(&socket.inode));
    owned.map(|socket| socket.port).filter(|port| listened.contains(port)).collect()
}

/// Whether a process is of OpenSSH (`sshd`, `sshd-session`) or Dropbear.
fn is_server(process: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.starts_with("sshd") || name.trim_end() == "dropbear"
}

/// The inodes of the sockets that a process has open; none if the system does not show them.
fn inodes(process: &Path) -> Vec<u64> {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    targets.filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_own_session_is_that_of_the_environment() {
        let found = |text| {
            let mut known = Known::default();
            known.add(text);
            let own = known.own.first().map(|own| format!("{} {}", own.local, own.peer));
            (own, known.ports.into_iter().next())
        };
        let (own, port) = found("192.0.2.1 50000 192.0.2.9 2222");
        assert_eq!((own.as_deref(), port), (Some("192.0.2.9 192.0.2.1"), Some(2222)));
        assert_eq!(found("fe80::1%eth0 5 fe80::2%eth0 22").0.as_deref(), Some("fe80::2 fe80::1"));
        assert_eq!(found("::1 5 ::ffff:192.0.2.9 22").0.as_deref(), Some("192.0.2.9 ::1"));
        for wrong in ["", "192.0.2.1 50000", "a b c d", "1 2 %eth0 4"] {
            assert_eq!(found(wrong), (None, None), "{wrong}");
        }
    }

    /// A made-up `/proc` with processes: number, parent, name, environment, inodes.
    fn proc(processes: &[(u32, u32, &str, &str, &[u64])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (id, parent, name, environment, inodes) in processes {
            let process = folder.path().join(id.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::write(process.join("stat"), format!("{id} ({name}) x) S {parent} 0 0")).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            fs::write(process.join("environ"), environment).unwrap();
            for (number, inode) in inodes.iter().enumerate() {
                let place = process.join("fd").join(number.to_string());
                symlink(format!("socket:[{inode}]"), place).unwrap();
            }
        }
        folder
    }

    #[test]
    fn sessions_are_found_in_the_environments_of_ancestors() {
        let folder = proc(&[
            (1, 0, "init", "", &[]),
            (7, 1, "bash", "A=b\0SSH_CONNECTION=192.0.2.1 5 192.0.2.9 22\0C=d\0", &[]),
            (8, 7, "sudo", "NOT_SSH_CONNECTION=1\0", &[]),
            (9, 8, "thalweg", "SSH_CONNECTION=its own\0", &[]),
            (5, 1, "other", "SSH_CONNECTION=no ancestor\0", &[]),
        ]);
        assert_eq!(of_ancestors(folder.path(), 9), ["192.0.2.1 5 192.0.2.9 22"]);
        assert_eq!(of_ancestors(folder.path(), 100), [""; 0]);
    }

    #[cfg(target_endian = "little")]
    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr uid timeout inode\n\
        0: 0100007F:08AE 00000000:0000 0A 0:0 00:0 0 0 0 70\n\
        1: 0202000A:08AE 0102000A:C350 01 0:0 00:0 0 0 0 71\n\
        2: 0202000A:C351 0102000A:0050 01 0:0 00:0 0 0 0 72\n\
        3: 000080FE000000000000000002000000:0016 00000000000000000000000000000000:0 01 0:0 0:0 0 0 0 73\n\
        4: 0000000000000000FFFF00000302000A:0016 0000000000000000FFFF00000102000A:1 01 0:0 0:0 0 0 0 74\n\
        5: 00000000:0050 00000000:0000 0A 0:0 00:0 0 0 0 75\n\
        6: zz:0016 0:0 01 0\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_those_of_both_tables() {
        let found: Vec<_> = sockets(TABLE)
            .filter(|socket| socket.state == ESTABLISHED)
            .map(|socket| format!("{}:{} {}", socket.ends.local, socket.port, socket.ends.peer))
            .collect();
        let expected = [
            "10.0.2.2:2222 10.0.2.1",
            "10.0.2.2:50001 10.0.2.1",
            "fe80::2:22 ::",
            "10.0.2.3:22 10.0.2.1",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn ports_are_those_at_which_servers_listen() {
        let ports = |inodes: &[u64], name| {
            let folder = proc(&[(9, 1, name, "", inodes)]);
            ports_of_servers(folder.path(), TABLE)
        };
        assert_eq!(ports(&[70], "sshd"), HashSet::from([2222]));
        // The session of a socket of systemd, and a connection that the server forwards.
        assert_eq!(ports(&[71, 72], "sshd-session"), HashSet::from([2222]));
        assert_eq!(ports(&[70, 75], "httpd"), HashSet::new());
    }
}
