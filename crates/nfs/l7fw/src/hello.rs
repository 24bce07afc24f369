//! The hosts that a TLS ClientHello names (RFC 8446 §4.1.2, RFC 6066 §3), however it is divided
//! into records.

use super::host::{MOST_BYTES, host_name};

/// The type of handshake messages in records.
pub(super) const HANDSHAKE: u8 = 22;
/// The header of a record: type, version, length.
const RECORD: usize = 5;
/// The longest record that receivers accept: 2^14 bytes, and what TLS 1.2 adds at most.
const LONGEST_RECORD: usize = (1 << 14) + 2048;
/// The longest ClientHello that is read.
const LONGEST: usize = super::stream::MOST_BYTES;

/// A ClientHello that is being read.
#[derive(Debug, Default)]
pub(super) struct Hello {
    /// The version in the first record.
    version: [u8; 2],
    /// The records so far, and the bytes that the current one still has.
    records: usize,
    left: usize,
    /// The message so far.
    message: Vec<u8>,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It needs more bytes.
    More,
    /// The hosts of a whole message.
    Whole(Vec<Box<str>>),
    /// Another message.
    Other,
    /// It breaks the format.
    Malformed,
}

impl Hello {
    /// Reads on at the start of `bytes`; also returns how many it read.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (Reading, usize) {
        let mut at = 0;
        loop {
            if self.left == 0 {
                let Some([kind, v0, v1, l0, l1]) = bytes[at..].first_chunk::<RECORD>() else {
                    return (Reading::More, at);
                };
                let length = usize::from(u16::from_be_bytes([*l0, *l1]));
                if *kind != HANDSHAKE || *v0 != 3 || length > LONGEST_RECORD {
                    return (Reading::Malformed, at);
                }
                if self.records == 0 {
                    self.version = [*v0, *v1];
                }
                self.records += 1;
                self.left = length;
                at += RECORD;
            }
            let take = self.left.min(bytes.len() - at);
            self.message.extend(&bytes[at..at + take]);
            self.left -= take;
            at += take;
            match self.evaluate() {
                Reading::More if at < bytes.len() => {}
                reading => return (reading, at),
            }
        }
    }

    fn evaluate(&mut self) -> Reading {
        let Some((head, rest)) = self.message.split_first_chunk::<4>() else {
            return if self.message.first().is_none_or(|kind| *kind == 1) {
                Reading::More
            } else {
                Reading::Other
            };
        };
        if head[0] != 1 {
            return Reading::Other;
        }
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        match rest.get(..length) {
            Some(body) => {
                let hosts = hosts(body);
                self.message.truncate(4 + length);
                hosts.map_or(Reading::Malformed, Reading::Whole)
            }
            None if length > LONGEST => Reading::Malformed,
            None => Reading::More,
        }
    }

    /// The message so far.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whether it was in several records.
    pub(super) fn is_divided(&self) -> bool {
        self.records > 1
    }

    /// The message in a single record.
    pub(super) fn in_one_record(&self) -> Vec<u8> {
        let length = (self.message.len().min(usize::from(u16::MAX)) as u16).to_be_bytes();
        [&[HANDSHAKE], &self.version[..], &length, &self.message].concat()
    }
}

/// Takes a field of `N` bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (field, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(field)
}

/// Takes a vector whose length is in the `N` bytes before it.
fn vector<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take::<N>(rest)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (vector, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(vector)
}

/// The hosts in the body of a ClientHello; `None` if it breaks the format.
fn hosts(mut body: &[u8]) -> Option<Vec<Box<str>>> {
    let mut found = Vec::new();
    take::<34>(&mut body)?; // version and random
    vector::<1>(&mut body)?; // session
    vector::<2>(&mut body)?; // cipher suites
    vector::<1>(&mut body)?; // compression methods
    if body.is_empty() {
        return Some(found);
    }
    let mut extensions = vector::<2>(&mut body)?;
    while !extensions.is_empty() {
        let kind = take::<2>(&mut extensions)?;
        let mut data = vector::<2>(&mut extensions)?;
        if *kind == [0, 0] {
            let mut names = vector::<2>(&mut data)?;
            while !names.is_empty() {
                take::<1>(&mut names)?;
                found.extend(host_name(vector::<2>(&mut names)?));
            }
        }
    }
    Some(found)
}

/// The host in the first server_name extension anywhere in `bytes`. A hello that breaks the format
/// may still be read by a lenient server.
pub(super) fn search(bytes: &[u8]) -> Option<Box<str>> {
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || b"-._".contains(b);
    (0..bytes.len()).find_map(|at| {
        let mut rest = bytes[at..].strip_prefix(&[0, 0])?;
        let mut data = vector::<2>(&mut rest)?;
        let mut names = vector::<2>(&mut data).filter(|_| data.is_empty())?;
        let [0] = take::<1>(&mut names)? else { return None };
        let name = vector::<2>(&mut names)?;
        let is_name = !name.is_empty() && name.len() <= MOST_BYTES && name.iter().all(in_name);
        host_name(name).filter(|_| is_name)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A ClientHello that names `host`, in one record.
    pub(in super::super) fn hello(host: &str) -> Vec<u8> {
        let prefixed = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
        let name = prefixed(&[&[0], &prefixed(host.as_bytes())[..]].concat());
        let other = [&[0, 43][..], &prefixed(&[2, 3, 4]), &[0, 10], &prefixed(&[0, 2, 0, 29])];
        let extensions = [&other.concat()[..], &[0, 0], &prefixed(&name)].concat();
        let session = [&[32][..], &[7; 32]].concat();
        let start = [&[3, 3][..], &[9; 32], &session, &[0, 4, 0x13, 1, 0x13, 2, 1, 0]];
        let body = [&start.concat()[..], &prefixed(&extensions)].concat();
        let message = [&[1, 0][..], &prefixed(&body)].concat();
        [&[HANDSHAKE, 3, 1][..], &prefixed(&message)].concat()
    }

    /// The same in records of `size` bytes.
    pub(in super::super) fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1, 0, part.len() as u8], part].concat();
        hello[RECORD..].chunks(size).flat_map(record).collect()
    }

    #[test]
    fn records_of_any_size_name_the_host() {
        let whole = hello("A.example");
        for size in 1..200 {
            let divided = in_records(&whole, size);
            let mut reader = Hello::default();
            let expected = Reading::Whole(vec!["a.example".into()]);
            assert_eq!(reader.read(&divided), (expected, divided.len()));
            assert_eq!(reader.in_one_record(), whole);
            assert_eq!(reader.is_divided(), size < whole.len() - RECORD);
        }
    }

    #[test]
    fn bytes_one_by_one_name_the_host() {
        let divided = in_records(&hello("a.example"), 50);
        let (mut reader, mut at) = (Hello::default(), 0);
        for end in 1..divided.len() {
            let (reading, read) = reader.read(&divided[at..end]);
            assert_eq!(reading, Reading::More, "{end}");
            at += read;
        }
        assert!(matches!(reader.read(&divided[at..]).0, Reading::Whole(_)));
    }

    #[test]
    fn broken_hellos_are_searched() {
        let whole = hello("a.example");
        // Lengths that are too long, or nothing but the extension.
        for (place, value) in [(43, 0xff), (76, 0xff), (82, 0xff)] {
            let mut broken = whole.clone();
            broken[place] = value;
            assert_eq!(Hello::default().read(&broken).0, Reading::Malformed, "{place}");
            assert_eq!(search(&broken).as_deref(), Some("a.example"));
        }
        assert_eq!(search(&whole[whole.len() - 18..]).as_deref(), Some("a.example"));
        assert_eq!(search(&whole[..whole.len() - 1]), None);
        assert_eq!(search(&[0; 100]), None);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_survived() {
        let whole = hello("a.example");
        for at in 0..whole.len() {
            assert_ne!(Hello::default().read(&whole[..at]).0, Reading::Malformed);
            for change in [1, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= change;
                let read = Hello::default().read(&changed).1;
                assert!(read <= changed.len());
                search(&changed);
            }
        }
    }
}
