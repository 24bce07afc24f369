//! The keys of the associations that a device can serve.

use thalweg_nf::device::{Alternatives, DeviceWork};
use zeroize::Zeroizing;

use super::{ESP, ESP_SLICED, SUITE, argument, table};
use crate::suite::{HEADER, Suite};

/// The keys, and how a device is to use them.
#[derive(Default)]
pub(crate) struct DeviceKeys {
    /// By the number of the association in the table of the device.
    keys: Vec<Zeroizing<([u8; 16], [u8; 20])>>,
    /// Whether the device's time must not depend on them.
    pub(crate) constant_time: bool,
}

impl DeviceKeys {
    /// Adds the keys of an association; returns its number, or `None` if no device does its suite.
    pub(crate) fn add(&mut self, suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<usize> {
        if suite != SUITE {
            return None;
        }
        self.keys.push(Zeroizing::new((key.try_into().ok()?, auth_key.try_into().ok()?)));
        Some(self.keys.len() - 1)
    }

    /// What a device does with these keys; `None` if there are none.
    pub(crate) fn work(&self) -> Option<DeviceWork> {
        let associations: Vec<_> = self.keys.iter().map(|keys| (&keys.0, &keys.1)).collect();
        if associations.is_empty() {
            return None;
        }
        let (function, alternatives) =
            if self.constant_time { (ESP_SLICED, None) } else { (ESP, Some(alternatives())) };
        Some(DeviceWork { function, table: table(&associations).into(), alternatives })
    }
}

/// What a device is measured with: as many packets to seal as to open, of a middle size.
fn alternatives() -> Alternatives {
    const BLOCKS: usize = 33;
    let table = table(&[(&[0; 16], &[0; 20])]);
    let clear = vec![0; HEADER + 16 + 16 * BLOCKS + 12];
    let (seals, opens) = (argument(0, false, None), argument(0, true, None));
    let mut sealed = clear.clone();
    (ESP.scalar)(&mut sealed, seals, &table);
    Alternatives { functions: &[ESP_SLICED], table, samples: vec![(clear, seals), (sealed, opens)] }
}
