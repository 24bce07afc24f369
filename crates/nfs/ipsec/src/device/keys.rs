//! The keys of the associations that a device can serve.

use thalweg_nf::device::DeviceWork;
use zeroize::Zeroizing;

use super::{ESP, SUITE, table};
use crate::suite::Suite;

/// Keys, by the number of the association in the table of the device.
#[derive(Default)]
pub(crate) struct DeviceKeys(Vec<Zeroizing<([u8; 16], [u8; 20])>>);

impl DeviceKeys {
    /// Adds the keys of an association; returns its number, or `None` if no device does its suite.
    pub(crate) fn add(&mut self, suite: Suite, key: &[u8], auth_key: &[u8]) -> Option<usize> {
        if suite != SUITE {
            return None;
        }
        self.0.push(Zeroizing::new((key.try_into().ok()?, auth_key.try_into().ok()?)));
        Some(self.0.len() - 1)
    }

    /// What a device does with these keys; `None` if there are none.
    pub(crate) fn work(&self) -> Option<DeviceWork> {
        let associations: Vec<_> = self.0.iter().map(|keys| (&keys.0, &keys.1)).collect();
        (!associations.is_empty())
            .then(|| DeviceWork { function: ESP, table: table(&associations).into() })
    }
}
