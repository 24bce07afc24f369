//! Ciphers as a device can do them: AES-128-CBC with HMAC-SHA1-96, whole packets in place.

mod halves;
mod keys;
mod tables;

use thalweg_nf::device::DeviceFunction;
use zeroize::Zeroizing;

use crate::cipher::{Cipher, Job, seal_or_open};
use crate::suite::{Aes, HEADER, Hash, Suite};
use tables::{AUTH_KEY, KEY, TABLES};

pub(crate) use keys::DeviceKeys;
pub use tables::{Association, table};

/// The suite that devices do.
const SUITE: Suite = Suite::Cbc(Aes::Bits128, Hash::Sha1);

/// Seals or opens an ESP packet: its bytes are those from the SPI to the ICV, with the IV in place.
///
/// An argument is made by [`argument`], a table by [`table`]. The first word of the result is
/// [`DONE`], [`REFUSED`], or 0 for bytes that are no such packet; then they are untouched. The second one
/// is that of the argument.
///
/// Its AES reads tables, at places that depend on the key: its time may reveal it.
pub const ESP: DeviceFunction = DeviceFunction {
    name: "esp",
    source: concat!(include_str!("esp.cl"), include_str!("aes_tables.cl")),
    near: TABLES,
    split: None,
    changes: true,
    scalar: esp,
};

/// The same as [`ESP`], with an AES whose time does not depend on keys and packets.
pub const ESP_SLICED: DeviceFunction = DeviceFunction {
    name: "esp_sliced",
    source: concat!(include_str!("esp.cl"), include_str!("aes_sliced.cl")),
    near: 0,
    split: None,
    changes: true,
    scalar: esp,
};

/// The packet is sealed, or is authentic and open.
pub const DONE: u32 = 1;
/// The ICV is wrong; the packet is untouched.
pub const REFUSED: u32 = 2;

/// What a packet needs, by the number of its association in the table; `high` is the upper half of an
/// extended sequence number.
pub fn argument(association: usize, opens: bool, high: Option<u32>) -> [u32; 2] {
    let flags = u32::from(opens) | (u32::from(high.is_some()) << 1);
    [(association as u32) << 2 | flags, high.unwrap_or(0)]
}

/// Whether `len` bytes can be an ESP packet of the suite.
pub(crate) fn is_packet(len: usize) -> bool {
    const AROUND: usize = HEADER + 16 + 12;
    len > AROUND && (len - AROUND).is_multiple_of(16)
}

/// The reference of both.
fn esp(bytes: &mut [u8], argument: [u32; 2], table: &[u8]) -> [u32; 2] {
    let (opens, is_extended) = (argument[0] & 1 != 0, argument[0] & 2 != 0);
    let Some(sa) = tables::association(table, (argument[0] >> 2) as usize) else { return [0; 2] };
    let (key, auth_key) = (Zeroizing::new(sa[KEY].to_vec()), Zeroizing::new(sa[AUTH_KEY].to_vec()));
    let Some(cipher) = Cipher::new(SUITE, &key, &auth_key) else { return [0; 2] };
    let high = is_extended.then_some(argument[1]);
    let Some(mut job) = Job::new(0, &cipher, bytes, high) else { return [0; 2] };
    seal_or_open(&mut job, opens);
    [if job.is_done() { DONE } else { REFUSED }, argument[1]]
}
