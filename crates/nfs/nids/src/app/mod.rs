//! Application protocols: parses streams and datagrams into the buffers of messages.
//!
//! A protocol is identified by the first bytes of either direction, whatever the ports
//! (DNS over UDP: by port 53 and a plausible header). Each direction then yields one message
//! after the other.

mod body;
mod dns;
mod http;
mod inflate;
mod ssh;
mod tls;
mod uri;

use serde::{Deserialize, Serialize};

use super::buffer::{Buffer, Protocol};
pub(super) use http::Oddity;

/// The maximum number of bytes of a direction examined before its protocol is known.
const UNDECIDED: usize = 256;
/// Bytes of a message's head that are kept.
const HEAD: usize = 1 << 16;
/// Bytes of a message's body that are inspected.
const BODY: usize = 1 << 17;

/// The current message of one direction, as rules inspect it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) buffers: Vec<(Buffer, Vec<u8>)>,
    /// Rules whose pattern occurs in one of the buffers and that have not fired.
    pub(super) candidates: Vec<u32>,
    /// Rules that fired.
    pub(super) fired: Vec<u32>,
    /// The number of buffers that were searched for patterns.
    pub(super) searched: usize,
    /// The bytes of bodies that were searched, and that they still begin with.
    #[serde(skip)]
    searched_bodies: Vec<(Buffer, usize)>,
    /// An oddity was added since the message was last inspected.
    is_odd: bool,
}

impl Message {
    fn put(&mut self, buffer: Buffer, bytes: impl Into<Vec<u8>>) {
        self.buffers.push((buffer, bytes.into()));
    }

    /// Replaces a body that grew, of which `old` bytes are as before.
    fn replace(&mut self, buffer: Buffer, bytes: Vec<u8>, old: usize) {
        let searched = self.searched_bodies.iter_mut().filter(|(b, _)| *b == buffer);
        searched.for_each(|(_, searched)| *searched = old.min(*searched));
        if let Some(at) = self.buffers.iter().position(|(b, _)| *b == buffer) {
            self.buffers.remove(at);
            self.searched = self.searched.min(at);
        }
        self.put(buffer, bytes);
    }

    /// Whether its rule numbers are below `rules`, and it counts only buffers that it has.
    pub(super) fn is_sound(&self, rules: usize) -> bool {
        let mut numbers = self.candidates.iter().chain(&self.fired);
        self.searched <= self.buffers.len() && numbers.all(|n| (*n as usize) < rules)
    }

    /// How many bytes of a buffer were searched for patterns already.
    pub(super) fn searched_of(&self, buffer: Buffer) -> usize {
        let mut searched = self.searched_bodies.iter().filter(|(b, _)| *b == buffer);
        searched.next().map_or(0, |(_, searched)| *searched)
    }

    /// Drops the bodies, which were searched: they are added again, and longer, at their next
    /// inspection.
    pub(super) fn forget_bodies(&mut self) {
        let Self { buffers, searched_bodies, .. } = self;
        buffers.retain(|(buffer, bytes)| {
            if buffer.is_body() {
                searched_bodies.retain(|(b, _)| b != buffer);
                searched_bodies.push((*buffer, bytes.len()));
            }
            !buffer.is_body()
        });
        self.searched = self.buffers.len();
    }

    /// Clears the record of which rules were evaluated.
    pub(super) fn forget_rules(&mut self) {
        self.candidates.clear();
        self.fired.clear();
        self.searched = 0;
        self.searched_bodies.clear();
    }

    /// The contents of all buffers of a kind.
    pub(super) fn all(&self, buffer: Buffer) -> impl Iterator<Item = &[u8]> {
        self.buffers.iter().filter(move |(b, _)| *b == buffer).map(|(_, bytes)| &bytes[..])
    }
}

/// The result of parsing the bytes of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All bytes were consumed; more are needed.
    More,
    /// The message has new buffers.
    New,
    /// The message has all its buffers, and the next message begins.
    Complete,
}

/// The protocol of a connection, and the parsers of both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum App {
    /// Not known yet; holds the first bytes to the server and to the client.
    Undecided(Box<[Vec<u8>; 2]>),
    /// Not a supported protocol, or no longer parseable.
    None,
    Http(Box<http::Http>),
    Dns(Box<dns::Dns>),
    Tls(Box<tls::Tls>),
    Ssh(Box<ssh::Ssh>),
}

impl Default for App {
    fn default() -> Self {
        Self::Undecided(Box::default())
    }
}

/// The protocol according to the first bytes of a direction.
enum Guess {
    Is(Protocol),
    IsNot,
    TooShort,
}

impl App {
    pub(super) fn protocol(&self) -> Option<Protocol> {
        Some(match self {
            Self::Undecided(_) | Self::None => return None,
            Self::Http(_) => Protocol::Http,
            Self::Dns(_) => Protocol::Dns,
            Self::Tls(_) => Protocol::Tls,
            Self::Ssh(_) => Protocol::Ssh,
        })
    }

    /// Whether there is nothing left to parse.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Adds new bytes of a direction. [`advance`](Self::advance) then parses them.
    pub(super) fn data(&mut self, to_server: bool, bytes: &[u8], port: u16) {
        if let Self::Undecided(first) = self {
            first[usize::from(!to_server)].extend_from_slice(bytes);
            match guess(&first[usize::from(!to_server)], to_server, port) {
                Guess::Is(protocol) => self.decide(protocol),
                _ if is_hopeless(first, port) => *self = Self::None,
                _ => {}
            }
            return;
        }
        match self {
            Self::Http(http) => http.data(to_server, bytes),
            Self::Dns(dns) => dns.data(to_server, bytes),
            Self::Tls(tls) => tls.data(to_server, bytes),
            Self::Ssh(ssh) => ssh.data(to_server, bytes),
            Self::Undecided(_) | Self::None => {}
        }
    }

    /// Sets the connection's protocol and passes it the bytes held so far.
    fn decide(&mut self, protocol: Protocol) {
        let Self::Undecided(first) = self else { return };
        let first = std::mem::take(first);
        *self = match protocol {
            Protocol::Http => Self::Http(Box::default()),
            Protocol::Dns => Self::Dns(Box::default()),
            Protocol::Tls => Self::Tls(Box::default()),
            Protocol::Ssh => Self::Ssh(Box::default()),
        };
        let [to_server, to_client] = *first;
        self.data(true, &to_server, 0);
        self.data(false, &to_client, 0);
    }

    /// Parses a datagram, which is a message by itself.
    pub(super) fn datagram(bytes: &[u8], ports: [u16; 2]) -> Option<(Protocol, Message)> {
        if !ports.contains(&53) {
            return None;
        }
        Some((Protocol::Dns, dns::message(bytes)?))
    }

    /// Parses the bytes of a direction until there is something to inspect.
    pub(super) fn advance(&mut self, to_server: bool) -> Progress {
        match self {
            Self::Undecided(_) | Self::None => Progress::More,
            Self::Http(http) => http.advance(to_server),
            Self::Dns(dns) => dns.advance(to_server),
            Self::Tls(tls) => tls.advance(to_server),
            Self::Ssh(ssh) => ssh.advance(to_server),
        }
    }

    /// Ends a direction; returns whether that adds buffers to its message.
    pub(super) fn end(&mut self, to_server: bool) -> bool {
        match self {
            Self::Http(http) => http.end(to_server),
            _ => false,
        }
    }

    /// Bytes are missing from a direction: the rest of it can no longer be parsed. The other
    /// direction continues, so traffic seen in one direction only is parsed, too.
    pub(super) fn gap(&mut self, to_server: bool) {
        match self {
            Self::Undecided(first) => {
                if !first[usize::from(!to_server)].is_empty() {
                    *self = Self::None;
                }
            }
            Self::None => {}
            Self::Http(http) => http.gap(to_server),
            Self::Dns(dns) => dns.gap(to_server),
            Self::Tls(tls) => tls.gap(to_server),
            Self::Ssh(ssh) => ssh.gap(to_server),
        }
    }

    /// The current message of a direction.
    pub(super) fn message(&mut self, to_server: bool) -> Option<&mut Message> {
        match self {
            Self::Undecided(_) | Self::None => None,
            Self::Http(http) => Some(http.message(to_server)),
            Self::Dns(dns) => Some(dns.message(to_server)),
            Self::Tls(tls) => Some(tls.message(to_server)),
            Self::Ssh(ssh) => Some(ssh.message(to_server)),
        }
    }

    /// Approximate bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Undecided(first) => first.iter().map(Vec::len).sum(),
            Self::None => 0,
            Self::Http(http) => http.memory(),
            Self::Dns(dns) => dns.memory(),
            Self::Tls(tls) => tls.memory(),
            Self::Ssh(ssh) => ssh.memory(),
        }
    }
}

/// Whether neither direction can identify the protocol, or one of them is too long without it.
fn is_hopeless(first: &[Vec<u8>; 2], port: u16) -> bool {
    let [to_server, to_client] = first;
    let is_not = |bytes, to_server| matches!(guess(bytes, to_server, port), Guess::IsNot);
    let much = first.iter().any(|bytes| bytes.len() >= UNDECIDED);
    much || is_not(to_server, true) && is_not(to_client, false)
}

fn guess(bytes: &[u8], to_server: bool, port: u16) -> Guess {
    let guesses = [http::guess(bytes, to_server), tls::guess(bytes), ssh::guess(bytes)];
    let mut best = if port == 53 { dns::guess(bytes) } else { Guess::IsNot };
    for guess in guesses {
        match (&best, &guess) {
            (Guess::Is(_), _) | (_, Guess::IsNot) => {}
            _ => best = guess,
        }
    }
    best
}

/// Whether `bytes` begins with `word`, compared up to the shorter length.
fn begins(bytes: &[u8], word: &[u8], protocol: Protocol) -> Guess {
    if bytes.starts_with(word) {
        Guess::Is(protocol)
    } else if word.starts_with(bytes) {
        Guess::TooShort
    } else {
        Guess::IsNot
    }
}

/// Room for bytes that is kept while there are none.
const ROOM: usize = 4096;

/// Bytes received but not parsed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Input(Vec<u8>);

impl Input {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Removes and returns the first `n` bytes, or all if there are fewer.
    fn take(&mut self, n: usize) -> Vec<u8> {
        let rest = self.0.split_off(n.min(self.0.len()));
        std::mem::replace(&mut self.0, rest)
    }

    fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    /// Drops the first `n` bytes.
    fn skip(&mut self, n: usize) {
        if n < self.0.len() {
            self.0.drain(..n);
        } else if self.0.capacity() <= ROOM {
            self.0.clear();
        } else {
            self.0 = Vec::new();
        }
    }
}

fn message_size(message: &Message) -> usize {
    message.buffers.iter().map(|(_, bytes)| bytes.len() + size_of::<(Buffer, Vec<u8>)>()).sum()
}

#[cfg(test)]
mod tests;
