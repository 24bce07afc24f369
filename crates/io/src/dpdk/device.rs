//! The devices that this program has open, so that an input and an output share one.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use thalweg_packet::{HEADROOM, Pool};
use thalweg_source::outside;

use super::binding::{self, Counts, Facts, Mbufs, Purse, Setup};
use super::log;
use super::settings::DpdkSettings;
use super::wire::{Follower, Wire};
use crate::interface::{self, PacketSocket, driver, mtu};
use crate::kind::{Link, Refusal};
use crate::links::LinkEvents;
use crate::port::IoError;

/// Frames that a driver may want at once, for each queue.
pub(super) const RESERVE: usize = 128;
/// Bytes of a packet that the MTU does not count: an Ethernet header, and two VLAN tags.
const LINK_LEN: usize = 22;
/// Bytes that a driver leaves free before a packet (`RTE_PKTMBUF_HEADROOM`).
const DRIVER_HEADROOM: usize = 128;
/// The MTU of an interface of which it is unknown, in bytes.
const MTU: usize = 1500;

/// What is open.
static OPEN: LazyLock<Mutex<Open>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Open {
    /// By name.
    devices: HashMap<String, Shared>,
    memories: Vec<Weak<Mbufs>>,
    /// Memories so far.
    made: u64,
}

/// A device, and whether an input and an output have it.
struct Shared {
    device: Arc<Device>,
    taken: [bool; 2],
}

fn open() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that is set up.
pub(super) struct Device {
    pub(super) settings: DpdkSettings,
    pub(super) mbufs: Arc<Mbufs>,
    facts: Facts,
    descriptors: u16,
    wire: Arc<Wire>,
    /// Ends before the device is closed.
    follower: Option<Follower>,
    /// Whether checksums that a sender has left to hardware are completed.
    pub(super) completes_checksums: bool,
}

impl Device {
    fn open(settings: &DpdkSettings, mbufs: Arc<Mbufs>) -> Result<Self, IoError> {
        let failed = |what: String| failed(settings, what);
        check_memory(settings, mbufs.pool()).map_err(|refusal| refusal.of(settings.title()))?;
        let is_seen = |name: &&str| settings.device.is_of("net_af_packet") && !name.is_empty();
        let name = settings.device.interface().filter(is_seen);
        let watch = name.map(|name| watch(name, settings.promiscuous)).transpose()?;
        let arguments = arguments(settings, mbufs.pool(), watch.as_ref())?;
        let attached = log::keeping(|| binding::attach(&arguments, &settings.device.name));
        let port = attached.map_err(|(error, cause)| unattached(settings, &error, cause))?;
        let set_up = set_up(settings, port, &mbufs, watch.is_some());
        let (facts, descriptors) = set_up.inspect_err(|_| {
            // If its driver does not let go of it, that shows when it is opened again.
            let _ = Purse::new(&mbufs).and_then(|mut purse| purse.detach(port, false));
        })?;
        let is_veth = || {
            // The other end is a host without hardware that would do it.
            let names = watch.as_ref().zip(name);
            names.is_some_and(|(watch, name)| driver(watch, name).is_ok_and(|d| d == "veth"))
        };
        let completes_checksums = settings.complete_checksums.unwrap_or_else(is_veth);
        let settings = settings.clone();
        let interface = watch.zip(name.map(str::to_owned));
        let wire = Arc::new(Wire::new(port, interface));
        let follower = None;
        let mut device =
            Self { settings, mbufs, facts, descriptors, wire, follower, completes_checksums };
        let started = Follower::start(&device.settings, &device.wire);
        device.follower = Some(started.map_err(|e| failed(format!("cannot start a thread: {e}")))?);
        Ok(device)
    }

    /// Its number in DPDK.
    #[inline]
    pub(super) fn port(&self) -> u16 {
        self.wire.port
    }

    /// How packets pass, in a few words.
    pub(super) fn mode(&self) -> String {
        let DpdkSettings { queues, .. } = self.settings;
        let queues = if queues == 1 { "1 queue".into() } else { format!("{queues} queues") };
        let (driver, descriptors) = (self.facts.driver(), self.descriptors);
        let mut mode = format!("DPDK driver {driver}, {queues} of {descriptors} descriptors");
        if self.settings.queues > 1 && self.facts.hashes > 0 {
            mode += ", spread by RSS";
        }
        if self.settings.drop_bad_checksums {
            mode += ", checksums checked";
        }
        if self.completes_checksums {
            mode += ", checksums completed";
        }
        mode
    }

    /// The longest packet that it sends, from the network header on, in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.wire.mtu()
    }

    /// Checks that it still exists.
    pub(super) fn check(&self) -> Result<(), IoError> {
        if self.wire.is_there() {
            return Ok(());
        }
        Err(failed(&self.settings, "it was removed".into()))
    }

    pub(super) fn counts(&self) -> Counts {
        binding::counts(self.port())
    }

    /// The events and counters of a port that has it.
    fn events(&self, direction: Direction) -> Option<LinkEvents> {
        let events = self.follower.as_ref()?.events(direction);
        events
            .inspect_err(|e| {
                ::log::warn!("{}: cannot follow its state: {e}", self.settings.title());
            })
            .ok()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.follower = None;
        let title = self.settings.title();
        for (name, value) in binding::extended_counts(self.port()) {
            ::log::debug!("{title}: {name} = {value}");
        }
        let unsent = self.counts().unsent;
        if unsent > 0 {
            ::log::warn!(
                "{title}: its driver has lost {unsent} packets that it had taken to be sent"
            );
        }
        match Purse::new(&self.mbufs) {
            Ok(mut purse) => {
                if let Err(error) = purse.detach(self.port(), true) {
                    ::log::warn!("{title}: its driver does not let go of it: {error}");
                }
            }
            Err(error) => ::log::warn!("{title}: cannot be closed: {error}"),
        }
        self.mbufs.give_strays_back();
    }
}

fn failed(settings: &DpdkSettings, what: String) -> IoError {
    IoError::Port { port: settings.title(), what }
}

/// A socket that shows whether an interface exists, and has it receive packets to any MAC address.
fn watch(name: &str, promiscuous: bool) -> Result<PacketSocket, IoError> {
    let (watch, index) = interface::open(name)?;
    interface::bind(&watch, name, index, false)?;
    if promiscuous {
        watch
            .hear_all(index)
            .map_err(|e| interface::failed(name, "cannot enable promiscuous mode", &e))?;
    }
    Ok(watch)
}

/// The arguments of a device. What its driver receives from an interface fits in a frame, and so must
/// each packet: the driver would cut it.
fn arguments(
    settings: &DpdkSettings,
    pool: &Pool,
    watch: Option<&PacketSocket>,
) -> Result<String, IoError> {
    /// Bytes that a frame of the driver's ring has besides those of its packet (`TPACKET2_HDRLEN`
    /// without the address).
    const HEADER: usize = 32;
    /// A size of frames is a multiple of this, so that a block is not too large.
    const ALIGNMENT: usize = 128;
    let text = settings.device.text();
    let Some((watch, name)) = watch.zip(settings.device.interface()) else { return Ok(text) };
    let room = pool.frame_size() - DRIVER_HEADROOM;
    let size = (room + HEADER) / ALIGNMENT * ALIGNMENT;
    let longest = mtu(watch, name).unwrap_or(MTU) + LINK_LEN;
    if longest > size - HEADER {
        let beside = DRIVER_HEADROOM + ALIGNMENT;
        return Err(small_frames(pool.frame_size(), longest, beside).of(settings.title()));
    }
    let sizes = ["framesz", "blocksz", "framecnt"];
    if sizes.iter().any(|key| settings.device.argument(key).is_some()) {
        return Ok(text);
    }
    // The kernel wants blocks of whole pages, and the driver wants them full of frames.
    let page = rustix::param::page_size();
    let frames = page >> size.trailing_zeros().min(page.trailing_zeros());
    let count = usize::from(settings.descriptors).next_multiple_of(frames);
    Ok(format!("{text},framesz={size},blocksz={},framecnt={count}", frames * size))
}

/// Frames that do not hold the longest packet, with as many bytes `beside` it.
fn small_frames(size: usize, longest: usize, beside: usize) -> Refusal {
    let least = (longest + beside).next_multiple_of(64);
    Refusal::new(
        &["mtu", "memory.frame_size"],
        format!("frames of {size} bytes are too small for packets of {longest} bytes"),
        format!("frame_size = {least} or more in [memory], or a smaller MTU"),
    )
}

fn check_memory(settings: &DpdkSettings, pool: &Pool) -> Result<(), Refusal> {
    let (frames, size) = (pool.frames(), pool.frame_size());
    let held = settings.frames();
    if held > frames / 4 {
        return Err(Refusal::new(
            &["descriptors", "queues", "memory.frames"],
            format!(
                "its queues take {held} of {frames} frames, which leaves too few for packets under \
                 way"
            ),
            format!(
                "fewer 'descriptors' or 'queues', or frames = {} or more in [memory]",
                4 * held
            ),
        ));
    }
    let longest = settings.mtu.map_or(0, usize::from) + LINK_LEN;
    if settings.mtu.is_some() && longest > size - HEADROOM {
        return Err(small_frames(size, longest, HEADROOM));
    }
    Ok(())
}

/// Sets an attached device up, in memory that it is given; returns what it is, and its descriptors.
fn set_up(
    settings: &DpdkSettings,
    port: u16,
    mbufs: &Arc<Mbufs>,
    is_promiscuous: bool,
) -> Result<(Facts, u16), IoError> {
    let failed = |what| failed(settings, what);
    let refused = |refusal: Refusal| refusal.of(settings.title());
    let facts =
        binding::facts(port).map_err(|e| failed(format!("cannot read its properties: {e}")))?;
    let (wanted, most) = (settings.queues, facts.receive_queues.min(facts.transmit_queues));
    if wanted > most {
        let remedy = if settings.device.is_of("net_af_packet") {
            format!("; or qpairs={wanted} among its arguments")
        } else {
            String::new()
        };
        let (receive, transmit) = (facts.receive_queues, facts.transmit_queues);
        return Err(refused(Refusal::new(
            &["queues"],
            format!(
                "it has {receive} receive and {transmit} transmit queues, and 'queues' is {wanted}"
            ),
            format!("at most {most}{remedy}"),
        )));
    }
    if settings.drop_bad_checksums && facts.checks_checksums == 0 {
        return Err(refused(Refusal::new(
            &["drop_bad_checksums"],
            "it does not check checksums",
            "drop_bad_checksums = false",
        )));
    }
    match binding::map(port, mbufs) {
        // Virtual devices address memory as the process does.
        Err(e) if settings.device.is_pci && !is_needless(&e) => {
            return Err(failed(format!("packet memory cannot be mapped for it: {e}")));
        }
        _ => {}
    }
    let mut purse = Purse::new(mbufs).map_err(|e| failed(format!("memory of its queues: {e}")))?;
    let setup = Setup {
        queues: wanted,
        descriptors: settings.descriptors,
        mtu: settings.mtu.unwrap_or(0),
        promiscuous: (settings.promiscuous && !is_promiscuous).into(),
        check_checksums: settings.drop_bad_checksums.into(),
    };
    let held = usize::from(wanted) * (usize::from(settings.descriptors) + RESERVE);
    if !purse.fill(held) {
        let what = format!("packet memory has fewer than {held} free frames for its queues");
        return Err(failed(what));
    }
    let outcome = log::keeping(|| purse.set_up(port, &setup)).map_err(|((step, error), cause)| {
        let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        failed(format!("cannot set up {step}: {error}{cause}"))
    });
    outcome.map(|descriptors| (facts, descriptors))
}

/// Whether memory need not be mapped for a device, or is already.
fn is_needless(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTSUP | libc::EEXIST))
}

/// Why no driver has attached a device.
fn unattached(settings: &DpdkSettings, error: &io::Error, cause: Option<String>) -> IoError {
    let (name, failed) = (&settings.device.name, |what| failed(settings, what));
    if settings.device.is_pci {
        let place = Path::new("/sys/bus/pci/devices").join(name);
        if !place.exists() {
            let what = "there is no such PCI device; lspci -D lists those that there are";
            return failed(what.into());
        }
        let bound = place.join("driver").read_link().ok();
        let bound = bound.as_ref().and_then(|to| to.file_name()?.to_str());
        return failed(format!(
            "no driver of DPDK takes it ({}); it is bound to {}, and must be bound to vfio-pci: \
             dpdk-devbind.py -b vfio-pci {name}",
            cause.unwrap_or_else(|| error.to_string()),
            bound.unwrap_or("no driver")
        ));
    }
    match (error.raw_os_error(), cause) {
        (Some(libc::EFAULT), _) => Refusal::new(
            &[],
            "DPDK has no driver of this name",
            "a virtual device, such as net_af_packet0, net_ring0 or net_pcap0",
        )
        .of(settings.title()),
        (Some(libc::EEXIST), _) => failed("a device of this name is in use".into()),
        (_, Some(cause)) => failed(format!("its driver refuses it: {cause}")),
        (_, None) => failed(format!("its driver refuses it: {error}")),
    }
}

/// What a port does with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Input,
    Output,
}

/// A port's hold on a device; the last one closes it.
pub(super) struct Lease {
    /// Always there until it is dropped.
    device: Option<Arc<Device>>,
    direction: Direction,
}

impl Lease {
    /// Opens a device for a port, or shares the one that is open. DPDK must have been started.
    pub(super) fn take(
        settings: &DpdkSettings,
        pool: &Arc<Pool>,
        direction: Direction,
    ) -> Result<Self, IoError> {
        let failed = |what: &str| failed(settings, what.into());
        let mut open = open();
        let name = &settings.device.name;
        if let Some(shared) = open.devices.get_mut(name) {
            let device = &shared.device;
            let taken = &mut shared.taken[direction as usize];
            let is_input = (direction == Direction::Input) == *taken;
            let other = if is_input { "another input" } else { "another output" };
            let conflict = settings.check_device(&device.settings, other, *taken);
            conflict.map_err(|refusal| refusal.of(settings.title()))?;
            if !Arc::ptr_eq(device.mbufs.pool(), pool) {
                return Err(failed("its input and output have different packet memory"));
            }
            *taken = true;
            return Ok(Self { device: Some(device.clone()), direction });
        }
        let mbufs = open
            .memory(pool)
            .map_err(|e| failed(&format!("packet memory cannot be registered with DPDK: {e}")))?;
        let device = Arc::new(Device::open(settings, mbufs)?);
        let mut taken = [false; 2];
        taken[direction as usize] = true;
        open.devices.insert(name.clone(), Shared { device: device.clone(), taken });
        Ok(Self { device: Some(device), direction })
    }

    /// The events and counters of the port.
    pub(super) fn events(&self) -> Option<LinkEvents> {
        self.device().events(self.direction)
    }

    #[inline]
    pub(super) fn device(&self) -> &Arc<Device> {
        self.device.as_ref().expect("the lease has not ended")
    }
}

impl Open {
    /// The mbufs of a pool.
    fn memory(&mut self, pool: &Arc<Pool>) -> io::Result<Arc<Mbufs>> {
        self.memories.retain(|memory| memory.strong_count() > 0);
        let mut all = self.memories.iter().filter_map(Weak::upgrade);
        if let Some(mbufs) = all.find(|mbufs| Arc::ptr_eq(mbufs.pool(), pool)) {
            return Ok(mbufs);
        }
        self.made += 1;
        let mbufs = Arc::new(Mbufs::new(&format!("thalweg-{}", self.made), pool)?);
        self.memories.push(Arc::downgrade(&mbufs));
        Ok(mbufs)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(device) = self.device.take() else { return };
        let direction = self.direction;
        let close = || {
            let mut open = open();
            if let Some(shared) = open.devices.get_mut(&device.settings.device.name) {
                shared.taken[direction as usize] = false;
                if shared.taken == [false; 2] {
                    open.devices.remove(&device.settings.device.name);
                }
            }
            let mbufs = device.mbufs.clone();
            // Closes the device while others wait here, so that it is free for them.
            drop(device);
            if Arc::strong_count(&mbufs) == 1 && mbufs.lent() > 0 {
                ::log::warn!("drivers of DPDK keep {} frames", mbufs.lent());
                // They might still write to them.
                std::mem::forget(mbufs);
            }
        };
        outside::privileged(close);
    }
}

/// The state of the link of a device, if it is open.
pub(super) fn link(settings: &DpdkSettings) -> Option<Link> {
    let open = open();
    open.devices.get(&settings.device.name)?.device.follower.as_ref()?.link()
}
