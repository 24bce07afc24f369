//! The functions that are measured, and what they are called with.

use std::error::Error;

use thalweg_accel::{Job, REFLECT};
use thalweg_ipsec::device::{DONE, ESP, ESP_SLICED, argument, table};
use thalweg_nf::device::DeviceFunction;
use thalweg_nids::device::{Automaton, LITERALS, Literal};
use thalweg_packet::{Frame, Pool};
use thalweg_router::device::HOP;
use thalweg_router::{NextHop, Prefix, RouteList, RouteTable, RouterPort};

/// Where a packet begins in its frame.
pub(crate) const START: usize = 128;
/// The longest packet, in bytes.
pub(crate) const LONGEST: usize = 1600;

/// What is measured: a function, and what it is called with.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) function: DeviceFunction,
    pub(crate) table: Vec<u8>,
    pub(crate) argument: [u32; 2],
    /// The bytes that the function works on for packets of as many bytes on the wire.
    pub(crate) len: fn(usize) -> usize,
    /// Whether a result is right.
    is_right: fn([u32; 2]) -> bool,
    /// What each packet is before the function changes it, if that matters.
    before: Option<fn(&Self, usize) -> Vec<u8>>,
}

impl Work {
    /// What packets of `size` bytes on the wire are before the function changes them, if that matters.
    pub(crate) fn before(&self, size: usize) -> Option<Vec<u8>> {
        self.before.map(|before| before(self, size))
    }

    /// The job for a packet of `size` bytes on the wire, which is what it was `before`.
    pub(crate) fn job(
        &self,
        pool: &Pool,
        mut frame: Frame,
        size: usize,
        before: Option<&[u8]>,
    ) -> Job<()> {
        let bytes = START..START + (self.len)(size);
        if let Some(before) = before {
            pool.bytes_mut(&mut frame)[bytes.clone()].copy_from_slice(before);
        }
        Job { frame, bytes, argument: self.argument, tag: () }
    }

    /// # Panics
    /// When a result is wrong.
    pub(crate) fn check(&self, result: [u32; 2]) {
        assert!((self.is_right)(result), "{} is done", self.name);
    }
}

/// A packet of ESP that is authentic, of the bytes for packets of this size on the wire.
fn sealed(work: &Work, size: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; (work.len)(size)];
    (ESP.scalar)(&mut bytes, argument(0, false, None), &work.table);
    bytes
}

/// All functions; `literals` looks for the contents of these files, or for made-up ones.
pub(crate) fn works(rules: &[String]) -> Result<Vec<Work>, Box<dyn Error>> {
    let contents = if rules.is_empty() { made_up() } else { of_rules(rules)? };
    let reflect = Work {
        name: "reflect",
        function: REFLECT,
        table: Vec::new(),
        argument: [0; 2],
        len: |size| size - 4,
        is_right: |_| true,
        before: None,
    };
    let esp = |name, function, opens| Work {
        name,
        function,
        table: table(&[(&[7; 16], &[9; 20])]),
        argument: argument(0, opens, None),
        // In the tunnel, 14 bytes of Ethernet are outside, and 4 of the check sequence nowhere.
        len: |size| 24 + (size - 18 + 2).next_multiple_of(16) + 12,
        is_right: |result| result[0] == DONE,
        before: opens.then_some(sealed),
    };
    let literals = |name, function| Work {
        name,
        function,
        table: contents.clone(),
        argument: [1, 0],
        // The payload of UDP in IPv4.
        len: |size| size - 4 - 14 - 20 - 8,
        is_right: |result| result[1] != 0,
        before: None,
    };
    let hop = Work {
        name: "hop",
        function: HOP,
        table: routes()?,
        argument: [0; 2],
        // A destination of IPv4, however long the packet.
        len: |_| 4,
        is_right: |result| result[1] != 0,
        before: None,
    };
    let whole = DeviceFunction { split: None, ..LITERALS };
    Ok(vec![
        reflect,
        esp("esp", ESP, false),
        esp("esp opens", ESP, true),
        esp("esp_sliced", ESP_SLICED, false),
        esp("esp_sliced opens", ESP_SLICED, true),
        literals("literals", LITERALS),
        literals("literals whole", whole),
        hop,
    ])
}

/// The table of 100,000 routes to random prefixes of 16 to 24 bits.
fn routes() -> Result<Vec<u8>, Box<dyn Error>> {
    let (table, mut random) = (RouteTable::new(), Random(3));
    let mut routes = RouteList::default();
    for number in 0..100_000u32 {
        let address = u32::from_be_bytes(std::array::from_fn(|_| random.byte()));
        let prefix = Prefix::holding(address, 16 + (number % 9) as u8);
        routes.push(prefix, NextHop::Direct { port: RouterPort((number % 100) as u16) });
    }
    table.replace(routes)?;
    Ok(table.for_device(thalweg_router::device::MOST_BYTES).0)
}

/// The table for the contents of rule files.
fn of_rules(files: &[String]) -> Result<Vec<u8>, Box<dyn Error>> {
    let built = thalweg_nids::KIND.build_alone(&format!("rules = {files:?}"));
    let work = built.map_err(|e| e.to_string())?.device_work();
    Ok(work.ok_or("the rules have no contents of payloads")?.table.to_vec())
}

/// The table for 1,000 literals of 4 to 19 random bytes.
fn made_up() -> Vec<u8> {
    let mut random = Random(1);
    let literal = |number: usize| Literal {
        kind: 1,
        groups: 1 << (number % 32),
        bytes: (0..4 + number % 16).map(|_| random.byte().to_ascii_lowercase()).collect(),
    };
    Automaton::new(&(0..1000).map(literal).collect::<Vec<_>>()).table().to_vec()
}

/// Random bytes, the same in each run (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }
}
