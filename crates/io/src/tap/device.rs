//! The TAP devices of this program, so that an input and an output share the queues of one.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::net::{AddressFamily, SocketType};
use thalweg_source::outside;

use super::queue::Queue;
use super::setup::{HostAddress, Setup};
use crate::bpf::{Program, translate};
use crate::host;
use crate::interface::{index_of, link_of, mtu};
use crate::kind::Refusal;
use crate::links::has_carrier;
use crate::port::IoError;
use crate::steer::{self, Sight};

/// What the section of a port says of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TapSettings {
    pub(super) name: String,
    pub(super) addresses: Vec<HostAddress>,
    pub(super) mtu: Option<u32>,
    pub(super) mac: Option<[u8; 6]>,
    /// The most queues.
    pub(super) queues: u16,
    /// Whether to share a device by which the host is reached with another program.
    pub(super) force: bool,
}

/// The devices that ports have open, by name.
static DEVICES: LazyLock<Mutex<HashMap<String, Device>>> = LazyLock::new(Mutex::default);

fn devices() -> MutexGuard<'static, HashMap<String, Device>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program that chooses the queues of packets. It stays loaded, for a device that is made anew when this
/// process no longer may load one.
static STEERING: OnceLock<Program> = OnceLock::new();

fn steering() -> io::Result<&'static Program> {
    if let Some(program) = STEERING.get() {
        return Ok(program);
    }
    let program = Program::load_filter(&translate(&steer::program(Sight::Ethernet)))?;
    Ok(STEERING.get_or_init(|| program))
}

/// A device.
struct Device {
    index: u32,
    /// Whether it can have several queues.
    several: bool,
    queues: Vec<Arc<Queue>>,
    /// Whether our program chooses the queues of packets.
    is_steered: bool,
    /// The ports that have it, each with the addresses that it gave the device.
    leases: HashMap<u64, Vec<HostAddress>>,
    next: u64,
}

/// A port's hold on a device; the last one closes it.
#[derive(Debug)]
pub(super) struct Lease {
    name: String,
    index: u32,
    number: u64,
    /// Whether all packets of a flow, in both directions, have the same queue.
    pub(super) is_by_flow: bool,
    /// For requests about the interface.
    socket: OwnedFd,
}

impl Lease {
    /// Opens a device for a port with up to `most` queues, or shares the one that is open; sets it up.
    ///
    /// # Errors
    /// If there can be no such device, or the system does not permit it.
    pub(super) fn open(
        settings: &TapSettings,
        most: usize,
    ) -> Result<(Self, Vec<Arc<Queue>>), IoError> {
        let TapSettings { name, addresses, .. } = settings;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
        let socket = socket.map_err(|e| failed(name, &e.into()))?;
        let mut devices = devices();
        // A device that was removed may have been made anew.
        if devices.get(name).is_some_and(|device| !device.queues[0].has_device()) {
            devices.remove(name);
        }
        let mut device = if let Some(device) = devices.remove(name) {
            device
        } else {
            // Another program has a queue of it. Without one, a port only gives a device back its
            // other end: the host may wait for it to be reached again.
            if has_carrier(name) {
                host::check(name, settings.force)?;
            }
            Device::open(name, settings.queues > 1).map_err(|e| failed(name, &e))?
        };
        // All queues first: of a device that is up, a packet that follows another into a new queue may overtake it.
        let before = device.queues.len();
        let outcome = device
            .queues(name, settings, most)
            .and_then(|queues| device.set_up(settings).map(|()| queues));
        if outcome.is_err() {
            // Nobody would read what the kernel gives them.
            device.queues.truncate(before);
        }
        let number = device.next;
        if outcome.is_ok() {
            device.leases.insert(number, addresses.clone());
            device.next += 1;
        }
        let (index, is_by_flow) = (device.index, device.is_by_flow());
        if !device.leases.is_empty() {
            devices.insert(name.clone(), device);
        }
        let queues = outcome.map_err(|e| failed(name, &e))?;
        Ok((Self { name: name.clone(), index, number, is_by_flow, socket }, queues))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The MTU of the device, in bytes; `None` if it is not in this network namespace.
    pub(super) fn mtu(&self) -> Option<usize> {
        mtu(&self.socket, &self.name).ok()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Self { name, index, number, .. } = &*self;
        // All of it there, since a port that is being opened has the devices there, too.
        outside::privileged(|| release(name, *index, *number));
    }
}

/// Ends a port's hold on a device: takes the addresses that no other port gave it.
fn release(name: &str, index: u32, number: u64) {
    let mut devices = devices();
    // Another device may have its name by now.
    let same = |device: &&mut Device| device.index == index;
    let Some(device) = devices.get_mut(name).filter(same) else { return };
    let addresses = device.leases.remove(&number).unwrap_or_default();
    if device.leases.is_empty() {
        if device.is_steered {
            // One that others made stays; one of ours may be gone.
            let _ = device.queues[0].steer_by(None);
        }
        devices.remove(name);
        return;
    }
    let others: Vec<_> = device.leases.values().flatten().collect();
    let gone = addresses.iter().filter(|address| !others.contains(address));
    if let Ok(setup) = Setup::of(index) {
        // A user may have removed it.
        gone.for_each(|address| drop(setup.remove(*address)));
    }
}

impl Device {
    fn open(name: &str, several: bool) -> io::Result<Self> {
        let is_mismatch = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
        // A device that exists has several queues or not, as it was made.
        let opened = match Queue::open(name, several) {
            Err(error) if is_mismatch(&error) => Queue::open(name, !several).map(|q| (q, !several)),
            opened => opened.map(|queue| (queue, several)),
        };
        let (queue, several) = opened.map_err(|error| {
            let no_tap = "there is an interface of this name that is no TAP device";
            if is_mismatch(&error) { io::Error::other(no_tap) } else { error }
        })?;
        let index = index_of(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))? as u32;
        let queues = vec![Arc::new(queue)];
        Ok(Self { index, several, queues, is_steered: false, leases: HashMap::new(), next: 0 })
    }

    fn set_up(&self, settings: &TapSettings) -> io::Result<()> {
        let TapSettings { name, addresses, mtu, mac, .. } = settings;
        let setup = Setup::of(self.index)?;
        match setup.link(*mtu, *mac) {
            // Whom a device was given to may use it, but not change it.
            Err(e)
                if e.kind() == io::ErrorKind::PermissionDenied && is_as_wanted(name, settings) => {}
            outcome => outcome?,
        }
        addresses.iter().try_for_each(|address| setup.add(*address))
    }

    fn is_by_flow(&self) -> bool {
        self.is_steered || self.queues.len() == 1
    }

    /// The first queues, up to `most` and the settings' number; opens those that are not there.
    fn queues(
        &mut self,
        name: &str,
        settings: &TapSettings,
        most: usize,
    ) -> io::Result<Vec<Arc<Queue>>> {
        let count = if self.several { most.clamp(1, settings.queues.into()) } else { 1 };
        while self.queues.len() < count {
            self.queues.push(Arc::new(Queue::open(name, true)?));
        }
        if count > 1 && !self.is_steered {
            match steering().and_then(|program| self.queues[0].steer_by(Some(program))) {
                Ok(()) => self.is_steered = true,
                Err(e) => {
                    log::warn!("TAP device {name}: {e}: the kernel chooses the queues of packets");
                }
            }
        }
        Ok(self.queues[..count].to_vec())
    }
}

/// Whether a device is up and needs no change.
fn is_as_wanted(name: &str, settings: &TapSettings) -> bool {
    let link = link_of(name).unwrap_or_default();
    let has_mtu = settings.mtu.is_none_or(|mtu| link.mtu == Some(mtu.into()));
    link.up == Some(true) && has_mtu && settings.mac.is_none()
}

fn failed(name: &str, error: &io::Error) -> IoError {
    let what = format!("cannot open the TAP device: {error}");
    let expected = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "to run as root or with the capability CAP_NET_ADMIN, or a device that was made for this \
             user: ip tuntap add dev NAME mode tap user USER"
        }
        Some(libc::EBUSY) => "a device that no other program has",
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "the kernel's module 'tun'",
        _ => "the name of a TAP device, or of none that is there",
    };
    Refusal::new(&[], what, expected).of(format!("interface {name}"))
}
