//! Opens the ports of a device.

use std::sync::Arc;

use thalweg_packet::Pool;
use thalweg_source::outside;

use super::eal;
use super::input::DpdkInput;
use super::output::DpdkOutput;
use super::settings::DpdkSettings;
use crate::kind::Opened;
use crate::port::{Input, IoError, Output};

pub(super) use super::device::link;

fn start(settings: &DpdkSettings) -> Result<(), IoError> {
    eal::start().map_err(|what| IoError::Port { port: settings.title(), what })
}

pub(super) fn open_input(
    settings: &DpdkSettings,
    pool: &Arc<Pool>,
    most: usize,
) -> Result<Opened<dyn Input>, IoError> {
    start(settings)?;
    let queues = outside::privileged(|| DpdkInput::open(settings, pool, most))?;
    let mode = queues.first().map(DpdkInput::mode);
    let events = queues.first().and_then(DpdkInput::events);
    Ok(Opened {
        queues: queues.into_iter().map(|queue| Box::new(queue) as _).collect(),
        mode,
        events,
    })
}

pub(super) fn open_output(
    settings: &DpdkSettings,
    pool: &Arc<Pool>,
    most: usize,
) -> Result<Opened<dyn Output>, IoError> {
    start(settings)?;
    let queues = outside::privileged(|| DpdkOutput::open(settings, pool, most))?;
    let mode = queues.first().map(DpdkOutput::mode);
    let events = queues.first().and_then(DpdkOutput::events);
    Ok(Opened {
        queues: queues.into_iter().map(|queue| Box::new(queue) as _).collect(),
        mode,
        events,
    })
}
