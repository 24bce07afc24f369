//! Captures over TCP: the program at the other end of a connection.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown, sockopt};
use thalweg_source::poll::wait_readable;
use thalweg_source::{Passage, SourceError, Stop, outside};

use super::stream::Stream;
use crate::kind::Section;
use crate::port::IoError;

/// How long names and servers are given to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The longest wait; afterwards the thread checks whether the run should end.
const WAIT: Duration = Duration::from_millis(10);

/// A silent connection is probed after `IDLE`, and has failed after `PROBES` without an answer.
const IDLE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// What addresses are accepted.
const ADDRESS: &str =
    "tcp://HOST:PORT to connect, or tcp://HOST:PORT?listen to accept a connection";

/// A program that sends or receives a capture, by the option that names it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    endpoint: Endpoint,
    option: Passage,
}

/// Equal if a connection to one serves the other.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

impl Peer {
    /// Reads the address `name` at `span`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(
        section: &Section<'_>,
        name: &str,
        span: Range<usize>,
    ) -> Result<Self, SourceError> {
        let option = Passage::new(section.source(), span);
        let endpoint = Endpoint::parse(name).map_err(|mistake| option.error(mistake, ADDRESS))?;
        Ok(Self { endpoint, option })
    }

    /// The address, in place of the path of a file.
    pub(super) fn path(&self) -> PathBuf {
        self.to_string().into()
    }

    /// The bytes that it sends. If it is to connect, it may do so later.
    ///
    /// # Errors
    /// When it cannot be reached within ten seconds and until `stop`.
    pub(super) fn sender(&self, stop: &Stop) -> Result<Stream, IoError> {
        let stream = if self.endpoint.listens {
            self.endpoint.listen(stop).map(Stream::awaited)
        } else {
            self.endpoint.connect(stop).map(Stream::connected)
        };
        stream.map_err(|error| self.refusal(&error))
    }

    /// The connection over which it reads. If it is to connect, waits for that until `stop`.
    ///
    /// # Errors
    /// When it cannot be reached within ten seconds and until `stop`.
    pub(super) fn receiver(&self, stop: &Stop) -> Result<File, IoError> {
        let connection = if self.endpoint.listens {
            self.endpoint.listen(stop).and_then(|listener| listener.into_client(stop))
        } else {
            self.endpoint.connect(stop)
        };
        connection.map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &io::Error) -> IoError {
        let (what, expected) = if self.endpoint.listens {
            ("cannot accept a connection", "a free address of this machine, and a client")
        } else {
            ("cannot connect", "a program that listens there")
        };
        IoError::Option(Box::new(self.option.error(format!("{what}: {error}"), expected)))
    }
}

/// A TCP address as a chain file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// A name or an IP address; empty for all addresses of this machine.
    host: String,
    port: u16,
    /// Whether to accept a connection there instead of connecting.
    listens: bool,
}

impl Endpoint {
    /// Whether `name` is meant as an address, and not as the name of a file: a URL, or `TCP@...` as
    /// Wireshark writes it.
    pub(super) fn is_meant(name: &str) -> bool {
        name.contains("://") || name.starts_with("TCP@")
    }

    /// Reads `tcp://HOST:PORT`, or `tcp://HOST:PORT?listen`.
    ///
    /// # Errors
    /// What is wrong with it.
    fn parse(name: &str) -> Result<Self, String> {
        let scheme =
            name.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("tcp"));
        let (_, rest) = scheme.ok_or("unknown kind of address")?;
        let (address, listens) = match rest.split_once('?') {
            None => (rest, false),
            Some((address, "listen")) => (address, true),
            Some((_, other)) => return Err(format!("unknown option '{other}' of an address")),
        };
        let (host, port) = split(address)?;
        if host.is_empty() && !listens {
            return Err("the address has no host".into());
        }
        let number = port.parse().ok().filter(|port| *port != 0);
        let port = number.ok_or_else(|| format!("bad port '{port}'"))?;
        Ok(Self { host: host.into(), port, listens })
    }

    /// Connects, within ten seconds and until `stop`.
    fn connect(&self, stop: &Stop) -> io::Result<File> {
        let endpoint = self.clone();
        let stream = attended(stop, move || endpoint.connect_to_any())?;
        prepared(stream)
    }

    fn connect_to_any(&self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + ANSWER;
        let addresses = self.resolve()?;
        let mut outcome = Err(io::Error::other("the name has no address"));
        for (address, others) in addresses.iter().zip((0..addresses.len() as u32).rev()) {
            // A silent address leaves time for the others.
            let left = deadline.saturating_duration_since(Instant::now()) / (others + 1);
            outcome = TcpStream::connect_timeout(address, left.max(WAIT));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Listens there; names are resolved within ten seconds and until `stop`.
    fn listen(&self, stop: &Stop) -> io::Result<Listener> {
        let endpoint = self.clone();
        let listener = attended(stop, move || TcpListener::bind(&*endpoint.resolve()?))?;
        listener.set_nonblocking(true)?;
        Ok(Listener { listener, client: OnceLock::new() })
    }

    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.is_empty() {
            // Both versions of IP, where the system has both.
            return Ok(vec![
                (Ipv6Addr::UNSPECIFIED, self.port).into(),
                (Ipv4Addr::UNSPECIFIED, self.port).into(),
            ]);
        }
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, listens } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let listen = if *listens { "?listen" } else { "" };
        write!(f, "tcp://{open}{host}{close}:{port}{listen}")
    }
}

/// The host and the port of an address.
fn split(address: &str) -> Result<(&str, &str), String> {
    let (host, port) = address.rsplit_once(':').ok_or("the address has no port")?;
    if let Some(bracketed) = host.strip_prefix('[') {
        let host = bracketed.strip_suffix(']').ok_or("the address has no port")?;
        let ip = host.split('%').next().unwrap_or(host);
        return match ip.parse::<Ipv6Addr>() {
            Ok(_) => Ok((host, port)),
            Err(_) => Err(format!("bad IPv6 address '{host}'")),
        };
    }
    if host.contains(':') {
        return Err("an IPv6 address without brackets".into());
    }
    let is_usable = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.chars().all(is_usable) { Ok((host, port)) } else { Err(format!("bad host '{host}'")) }
}

/// The result of `work`, which may wait for other machines; it is left to itself when `stop` is
/// requested, or when it takes too long.
fn attended<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    let deadline = Instant::now() + ANSWER;
    // If nothing waits for the result any more, it is dropped.
    outside::spawn("connect", move || drop(sender.send(work())))?;
    let late = |what: &str| Err(io::Error::new(io::ErrorKind::TimedOut, what));
    loop {
        match receiver.recv_timeout(WAIT) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return late("its thread has failed"),
            Err(RecvTimeoutError::Timeout) if stop.is_requested() => {
                return late("the run ended first");
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                return late("no answer in 10 seconds");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A connection that never blocks, sends at once, and fails when its other end has vanished.
fn prepared(stream: TcpStream) -> io::Result<File> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, PROBES)?;
    Ok(File::from(OwnedFd::from(stream)))
}

/// A socket that accepts one connection; further ones are refused.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    client: OnceLock<File>,
}

impl Listener {
    /// The connection, or what becomes readable when there is one.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.client.get().map_or_else(|| self.listener.as_fd(), File::as_fd)
    }

    /// The connection.
    ///
    /// # Errors
    /// Of the kind `WouldBlock` if there is none yet.
    pub(super) fn client(&self) -> io::Result<&File> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = match self.listener.accept() {
            Ok((stream, _)) => prepared(stream)?,
            // It has gone again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Err(error) => return Err(error),
        };
        // Further clients would wait in the backlog without end. Systems other than Linux may keep
        // them there.
        let _ = shutdown(&self.listener, Shutdown::Both);
        Ok(self.client.get_or_init(|| client))
    }

    /// The connection, once a reader has opened it; waits for it until `stop`.
    fn into_client(self, stop: &Stop) -> io::Result<File> {
        loop {
            match self.client() {
                Ok(client) => return client.try_clone(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if stop.is_requested() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no reader has connected"));
            }
            wait_readable(std::iter::once(self.descriptor()), WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in [
            "tcp://localhost:5000",
            "tcp://10.0.0.1:1",
            "tcp://[::1]:65535",
            "tcp://[fe80::1%eth0]:5000?listen",
            "tcp://:5000?listen",
            "tcp://collector-1.example:5000?listen",
        ] {
            assert!(Endpoint::is_meant(text));
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("TCP://h:05").unwrap().to_string(), "tcp://h:5");
        assert!(!Endpoint::is_meant("tcp:5000") && !Endpoint::is_meant("a/b.pcap"));
    }

    #[test]
    fn a_request_to_end_ends_the_wait_for_an_answer() {
        let stop = Stop::default();
        stop.request();
        let (_keeps_it_waiting, answer) = mpsc::channel::<()>();
        let error = attended(&stop, move || Ok(answer.recv())).unwrap_err();
        assert_eq!(error.to_string(), "the run ended first");
    }

    #[test]
    fn mistakes_in_addresses_are_named() {
        for (text, mistake) in [
            ("udp://h:5000", "unknown kind of address"),
            ("TCP@h:5000", "unknown kind of address"),
            ("tcp://", "the address has no port"),
            ("tcp://h", "the address has no port"),
            ("tcp://[::1]", "the address has no port"),
            ("tcp://h:", "bad port ''"),
            ("tcp://h:0", "bad port '0'"),
            ("tcp://h:65536", "bad port '65536'"),
            ("tcp://h:5000/", "bad port '5000/'"),
            ("tcp://:5000", "the address has no host"),
            ("tcp://::1:5000", "an IPv6 address without brackets"),
            ("tcp://[h]:5000", "bad IPv6 address 'h'"),
            ("tcp://user@h:5000", "bad host 'user@h'"),
            ("tcp://h /:5000", "bad host 'h /'"),
            ("tcp://h:5000?listen=1", "unknown option 'listen=1'"),
            ("tcp://h:5000?", "unknown option ''"),
        ] {
            let told = Endpoint::parse(text).unwrap_err();
            assert!(Endpoint::is_meant(text) && told.contains(mistake), "{text}: {told}");
        }
    }
}
