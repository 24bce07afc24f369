//! Devices in a build without DPDK: there are none.

use std::sync::Arc;

use thalweg_packet::Pool;

use super::settings::DpdkSettings;
use crate::kind::{Link, Opened};
use crate::port::{Input, IoError, Output};

fn missing(settings: &DpdkSettings) -> IoError {
    IoError::Port { port: settings.title(), what: super::WITHOUT.into() }
}

pub(super) fn open_input(
    settings: &DpdkSettings,
    _pool: &Arc<Pool>,
    _most: usize,
) -> Result<Opened<dyn Input>, IoError> {
    Err(missing(settings))
}

pub(super) fn open_output(
    settings: &DpdkSettings,
    _pool: &Arc<Pool>,
    _most: usize,
) -> Result<Opened<dyn Output>, IoError> {
    Err(missing(settings))
}

pub(super) fn link(_settings: &DpdkSettings) -> Option<Link> {
    None
}
