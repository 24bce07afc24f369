//! The messages of the control channel, 128 bytes each, in the byte order of the machine.

use super::Fault;

/// The length of a message, in bytes.
pub(super) const LEN: usize = 128;
/// Version 2.0: the only one that peers speak.
pub(super) const VERSION: u16 = 2 << 8;
/// The length of a secret, in bytes.
pub(super) const SECRET: usize = 24;
/// The mode in which packets begin with an Ethernet header.
pub(super) const ETHERNET: u8 = 0;
/// The flag of a ring from client to server.
const TO_SERVER: u16 = 1;
/// The length of a name, in bytes.
const NAME: usize = 32;
/// The length of a reason, in bytes.
const REASON: usize = 96;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The receiver has done what the last message asked for.
    Ack,
    /// Server: what it can do.
    Hello(Hello),
    /// Client: which interface of the server it wants.
    Init(Init),
    /// Client: a region, whose descriptor comes along.
    AddRegion { index: u16, size: u64 },
    /// Client: a ring, whose eventfd comes along.
    AddRing(AddRing),
    /// Client: that was all.
    Connect(String),
    /// Server: packets may pass.
    Connected(String),
    /// The connection ends.
    Disconnect(String),
}

/// What a server can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) name: String,
    pub(super) versions: std::ops::RangeInclusive<u16>,
    /// The highest index of a region.
    pub(super) last_region: u16,
    /// The highest index of a ring, from server to client and from client to server.
    pub(super) last_rings: [u16; 2],
    /// The binary logarithm of the most descriptors of a ring.
    pub(super) ring_size: u8,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) version: u16,
    pub(super) id: u32,
    pub(super) mode: u8,
    pub(super) secret: [u8; SECRET],
    pub(super) name: String,
}

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    /// Whether packets pass from client to server.
    pub(super) to_server: bool,
    pub(super) index: u16,
    pub(super) region: u16,
    pub(super) offset: u32,
    /// The binary logarithm of its descriptors.
    pub(super) size: u8,
    /// Bytes of private metadata, which nobody uses.
    pub(super) private: u16,
}

impl Message {
    /// Its name in the protocol, for messages to people.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::Hello(_) => "HELLO",
            Self::Init(_) => "INIT",
            Self::AddRegion { .. } => "ADD_REGION",
            Self::AddRing(_) => "ADD_RING",
            Self::Connect(_) => "CONNECT",
            Self::Connected(_) => "CONNECTED",
            Self::Disconnect(_) => "DISCONNECT",
        }
    }

    /// The message as the bytes that are sent.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut out = Writer { bytes: [0; LEN], at: 0 };
        match self {
            Self::Ack => out.u16(1),
            Self::Hello(hello) => {
                out.u16(2);
                out.text::<NAME>(&hello.name);
                out.u16(*hello.versions.start());
                out.u16(*hello.versions.end());
                out.u16(hello.last_region);
                hello.last_rings.iter().for_each(|last| out.u16(*last));
                out.put(&[hello.ring_size]);
            }
            Self::Init(init) => {
                out.u16(3);
                out.u16(init.version);
                out.put(&init.id.to_ne_bytes());
                out.put(&[init.mode]);
                out.put(&init.secret);
                out.text::<NAME>(&init.name);
            }
            Self::AddRegion { index, size } => {
                out.u16(4);
                out.u16(*index);
                out.put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                out.u16(5);
                out.u16(if ring.to_server { TO_SERVER } else { 0 });
                out.u16(ring.index);
                out.u16(ring.region);
                out.put(&ring.offset.to_ne_bytes());
                out.put(&[ring.size]);
                out.u16(ring.private);
            }
            Self::Connect(name) => {
                out.u16(6);
                out.text::<NAME>(name);
            }
            Self::Connected(name) => {
                out.u16(7);
                out.text::<NAME>(name);
            }
            Self::Disconnect(reason) => {
                out.u16(8);
                out.put(&0u32.to_ne_bytes());
                out.text::<REASON>(reason);
            }
        }
        out.bytes
    }

    /// Reads a message.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() != LEN {
            return Err(Fault::new(format!("a message of {} bytes; expected {LEN}", bytes.len())));
        }
        let mut from = Reader { bytes };
        Ok(match from.u16() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: from.text::<NAME>(),
                versions: from.u16()..=from.u16(),
                last_region: from.u16(),
                last_rings: [from.u16(), from.u16()],
                ring_size: from.take::<1>()[0],
            }),
            3 => Self::Init(Init {
                version: from.u16(),
                id: u32::from_ne_bytes(from.take()),
                mode: from.take::<1>()[0],
                secret: from.take(),
                name: from.text::<NAME>(),
            }),
            4 => Self::AddRegion { index: from.u16(), size: u64::from_ne_bytes(from.take()) },
            5 => Self::AddRing(AddRing {
                to_server: from.u16() & TO_SERVER != 0,
                index: from.u16(),
                region: from.u16(),
                offset: u32::from_ne_bytes(from.take()),
                size: from.take::<1>()[0],
                private: from.u16(),
            }),
            6 => Self::Connect(from.text::<NAME>()),
            7 => Self::Connected(from.text::<NAME>()),
            8 => {
                from.take::<4>();
                Self::Disconnect(from.text::<REASON>())
            }
            kind => return Err(Fault::new(format!("a message of the unknown type {kind}"))),
        })
    }
}

struct Writer {
    bytes: [u8; LEN],
    at: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    /// A text in a field of `N` bytes, the last of which is zero.
    fn text<const N: usize>(&mut self, text: &str) {
        let mut field = [0; N];
        let len = whole_characters(text, N - 1);
        field[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.put(&field);
    }
}

/// The most bytes of a text, up to `most`, that are whole characters.
fn whole_characters(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    /// The next `N` bytes. All messages are shorter than [`LEN`], the length that was checked.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.bytes.split_first_chunk().expect("a message is long enough");
        self.bytes = rest;
        *taken
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// The text in a field of `N` bytes, up to its first zero. It is a peer's, and is printed: bytes
    /// that are not ASCII or control a terminal become `?`.
    fn text<const N: usize>(&mut self) -> String {
        let field: [u8; N] = self.take();
        let text = field.iter().take_while(|byte| **byte != 0);
        text.map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '?' })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        "[ -~]{0,31}"
    }

    fn messages() -> impl Strategy<Value = Message> {
        let hello = (text(), any::<[u16; 5]>(), any::<u8>()).prop_map(|(name, n, ring_size)| {
            let [low, high, last_region, to_client, to_server] = n;
            let last_rings = [to_client, to_server];
            Message::Hello(Hello { name, versions: low..=high, last_region, last_rings, ring_size })
        });
        let init = (any::<u16>(), any::<u32>(), any::<u8>(), any::<[u8; SECRET]>(), text());
        let init = init.prop_map(|(version, id, mode, secret, name)| {
            Message::Init(Init { version, id, mode, secret, name })
        });
        let ring = (any::<bool>(), any::<[u16; 3]>(), any::<u32>(), any::<u8>());
        let ring = ring.prop_map(|(to_server, [index, region, private], offset, size)| {
            Message::AddRing(AddRing { to_server, index, region, offset, size, private })
        });
        prop_oneof![
            Just(Message::Ack),
            hello,
            init,
            (any::<u16>(), any::<u64>())
                .prop_map(|(index, size)| Message::AddRegion { index, size }),
            ring,
            text().prop_map(Message::Connect),
            text().prop_map(Message::Connected),
            text().prop_map(Message::Disconnect),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let is_whole = bytes.len() == LEN;
            if Message::decode(&bytes).is_ok() {
                prop_assert!(is_whole);
            }
        }
    }

    /// Offsets of the fields as in memif.h of DPDK 22.11.
    #[test]
    fn fields_lie_where_peers_expect_them() {
        let init = Init {
            version: VERSION,
            id: 0x0102_0304,
            mode: ETHERNET,
            secret: [7; SECRET],
            name: "n".into(),
        };
        let bytes = Message::Init(init).encode();
        assert_eq!(bytes[..2], 3u16.to_ne_bytes());
        assert_eq!(bytes[2..4], VERSION.to_ne_bytes());
        assert_eq!(bytes[4..8], 0x0102_0304u32.to_ne_bytes());
        assert_eq!((bytes[8], &bytes[9..33], bytes[33]), (0, &[7; 24][..], b'n'));
        let ring = AddRing { to_server: true, index: 2, region: 3, offset: 4, size: 5, private: 0 };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[8..13], [&4u32.to_ne_bytes()[..], &[5]].concat());
        let reason = "é".repeat(60);
        let bytes = Message::Disconnect(reason).encode();
        assert_eq!(
            (bytes[6], bytes[99], bytes[101]),
            (0xc3, 0xa9, 0),
            "94 bytes: whole characters"
        );
    }
}
