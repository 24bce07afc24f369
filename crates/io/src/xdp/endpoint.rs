//! A queue of an interface: its socket, and the halves of it that an input and an output have.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use thalweg_packet::{MemoryKind, PacketMemory, Pool};

use super::interface::Redirection;
use super::lent::Lent;
use super::receiver::Receiver;
use super::sender::Sender;
use super::settings::{Obtained, XdpMode, XdpSettings};
use super::socket::{Binding, Chunks, Rings, XdpSocket};
use super::{failed, refused};
use crate::bpf::Attachment;
use crate::interface::{PacketSocket, driver, link_of};
use crate::kind::{HugePages, MemoryAtHand, Refusal};
use crate::port::IoError;

/// The largest chunk: a page.
const LARGEST_CHUNK: usize = 4096;
/// The smallest one (`XDP_UMEM_MIN_CHUNK_SIZE`).
const SMALLEST_CHUNK: usize = 2048;
/// With the 256 bytes that the kernel leaves free, the IP header after an Ethernet header begins on a
/// multiple of 4, and both lie in one cache line, as they do with packets of other inputs.
const HEADROOM: u32 = 2;
/// For how long a queue may stay taken after its socket was closed.
const RELEASE: Duration = Duration::from_millis(500);

/// The size of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;
/// The modes that are expected in place of zero copy.
const WITHOUT_ZERO_COPY: &str = "mode = \"copy\" or \"auto\", which do without";

/// An open queue.
pub(super) struct Endpoint {
    pub(super) settings: XdpSettings,
    pub(super) index: u32,
    pub(super) obtained: Obtained,
    pool: Arc<Pool>,
    /// There until this is dropped, when it is closed first.
    socket: Option<Arc<XdpSocket>>,
    /// Bound to the interface without receiving, which shows whether it exists.
    pub(super) watch: PacketSocket,
    pub(super) redirection: Arc<Redirection>,
    receiver: Mutex<Option<Receiver>>,
    sender: Mutex<Option<Sender>>,
}

/// A bound socket.
struct Bound {
    socket: XdpSocket,
    rings: Rings,
    shares_memory: bool,
    multi_buffer: bool,
}

impl Endpoint {
    /// Opens a queue, over the memory that one of `others` has registered if possible.
    pub(super) fn open(
        settings: &XdpSettings,
        index: u32,
        pool: &Arc<Pool>,
        watch: PacketSocket,
        redirection: Arc<Redirection>,
        others: &[Arc<Self>],
    ) -> Result<Self, IoError> {
        let memory = MemoryAtHand { pool, huge_pages: HugePages::NotRequested };
        check_memory(settings, 1, memory)
            .map_err(|refusal| refused(&settings.interface, refusal))?;
        let mut outcome = None;
        for mode in attempts(settings.mode, redirection.attachment()) {
            let bound = bind(settings, index, pool, *mode, others);
            let is_last = bound.is_ok() || settings.mode != XdpMode::Auto;
            outcome = Some((*mode, bound));
            if is_last {
                break;
            }
        }
        let (mode, bound) = outcome.expect("each mode has an attempt");
        let bound = bound.map_err(|e| cannot_bind(settings, pool, &e))?;
        let Bound { socket, rings, shares_memory, multi_buffer } = bound;
        let name = &settings.interface;
        if settings.busy_poll_us > 0 {
            socket
                .poll_busily(settings.busy_poll_us)
                .map_err(|e| failed(name, "cannot enable busy polling", &e))?;
        }
        let obtained = Obtained {
            mode,
            multi_buffer,
            shares_memory,
            ring_size: settings.ring_size,
            busy_poll_us: settings.busy_poll_us,
            completes_checksums: settings.complete_checksums.unwrap_or_else(|| {
                // The other end is a host without hardware that would do it.
                driver(&watch, name).is_ok_and(|driver| driver == "veth")
            }),
            queue: settings.queue,
            available: queues(name),
        };
        let socket = Arc::new(socket);
        let Rings { fill, receive, transmit, completion } = rings;
        let receiver =
            Receiver::new(socket.clone(), fill, receive, Lent::new(pool.clone()), obtained);
        let chunk = chunks(pool).size;
        let lent = Lent::new(pool.clone());
        let sender = Sender::new(socket.clone(), transmit, completion, lent, chunk, obtained);
        Ok(Self {
            settings: settings.clone(),
            index,
            obtained,
            pool: pool.clone(),
            socket: Some(socket),
            watch,
            redirection,
            receiver: Mutex::new(Some(receiver)),
            sender: Mutex::new(Some(sender)),
        })
    }

    pub(super) fn is_over(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is open").as_fd()
    }

    /// Takes the half of an input, which has it alone.
    pub(super) fn take_receiver(&self) -> Option<Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn return_receiver(&self, receiver: Receiver) {
        *self.receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
    }

    /// Takes the half of an output, which has it alone.
    pub(super) fn take_sender(&self) -> Option<Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn return_sender(&self, sender: Sender) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    }
}

impl Drop for Endpoint {
    /// Closes the socket before its frames return to the pool. The maps of the rings keep it open, so
    /// they are dropped first.
    fn drop(&mut self) {
        self.redirection.remove(self.settings.queue);
        let receiver = self.take_receiver().map(Receiver::into_lent);
        let sender = self.take_sender().map(Sender::into_lent);
        // The halves are gone, so this is the last reference.
        self.socket = None;
        if self.obtained.mode == XdpMode::ZeroCopy && !self.is_released() {
            log::warn!(
                "interface {}: its driver keeps {} frames",
                self.settings.interface,
                receiver.iter().chain(&sender).map(Lent::count).sum::<usize>()
            );
            return;
        }
        for mut lent in receiver.into_iter().chain(sender) {
            lent.give_back();
        }
    }
}

impl Endpoint {
    /// Waits until the driver has let go of the queue: the kernel has it do so after the socket was
    /// closed.
    fn is_released(&self) -> bool {
        let probe = || -> io::Result<()> {
            let socket = XdpSocket::new()?;
            let memory = PacketMemory::anonymous(LARGEST_CHUNK)?;
            socket.register(&memory, Chunks { size: LARGEST_CHUNK as u32, headroom: 0 })?;
            let _rings = socket.make_rings(1)?;
            socket.bind(self.index, self.settings.queue, Binding::Own(libc::XDP_COPY))
        };
        let is_taken = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
        !until_released(probe).is_err_and(|error| is_taken(&error))
    }
}

/// Tries again while a queue is taken, for as long as the kernel may take to let go of it.
fn until_released<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && since.elapsed() < RELEASE =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

/// How frames are divided for the kernel: one chunk begins where each frame does.
fn chunks(pool: &Pool) -> Chunks {
    Chunks { size: pool.frame_size().min(LARGEST_CHUNK) as u32, headroom: HEADROOM }
}

/// The frames that wait in the receive rings of this number of queues.
pub(super) fn frames_of(settings: &XdpSettings, queues: usize) -> usize {
    queues * settings.ring_size as usize
}

/// Checks that this number of queues can have this packet memory.
pub(super) fn check_memory(
    settings: &XdpSettings,
    queues: usize,
    memory: MemoryAtHand<'_>,
) -> Result<(), Refusal> {
    let (size, frames) = (memory.pool.frame_size(), memory.pool.frames());
    if size < SMALLEST_CHUNK {
        return Err(Refusal::new(
            &["memory.frame_size"],
            format!("frames of {size} bytes are too small for AF_XDP"),
            format!("frame_size = {SMALLEST_CHUNK} or more in [memory]"),
        ));
    }
    let waiting = frames_of(settings, queues);
    if waiting > frames / 4 {
        let (rings, fewer) = match queues {
            1 => (format!("a receive ring of {waiting} of {frames} frames leaves"), ""),
            _ => (
                format!("{queues} receive rings with {waiting} of {frames} frames leave"),
                "fewer queues, ",
            ),
        };
        return Err(Refusal::new(
            &["ring_size", "queues", "memory.frames"],
            format!("{rings} too few for packets under way"),
            format!("{fewer}a smaller ring_size, or frames = {} or more in [memory]", 4 * waiting),
        ));
    }
    match settings.mode {
        XdpMode::ZeroCopy => check_contiguous(memory),
        XdpMode::Auto | XdpMode::Copy | XdpMode::Generic => Ok(()),
    }
}

/// Checks that packet memory has huge pages.
fn check_contiguous(memory: MemoryAtHand<'_>) -> Result<(), Refusal> {
    let region = memory.pool.memory();
    let (what, expected) = match (region.kind(), memory.huge_pages) {
        (MemoryKind::HugePages, _) | (_, HugePages::Elsewhere) => return Ok(()),
        (MemoryKind::Foreign, _) => {
            (", and a device has allocated packet memory", WITHOUT_ZERO_COPY.to_owned())
        }
        (MemoryKind::Shared, _) => (
            ", and packet memory is shared with a peer",
            format!("no 'zero_copy' in memif ports, or {WITHOUT_ZERO_COPY}"),
        ),
        (MemoryKind::Anonymous, HugePages::Requested) => {
            let pages = region.len().div_ceil(HUGE_PAGE);
            let expected = format!(
                "{pages} free huge pages: sysctl vm.nr_hugepages={pages}, or more if others have some"
            );
            (", of which the system has too few", expected)
        }
        (MemoryKind::Anonymous, HugePages::NotRequested) => {
            ("", format!("huge_pages = true in [memory], or {WITHOUT_ZERO_COPY}"))
        }
    };
    let message = format!("mode = \"zero-copy\" needs frames in huge pages{what}");
    Err(Refusal::new(&["mode"], message, expected))
}

/// The modes to try, in their order.
fn attempts(mode: XdpMode, attachment: Attachment) -> &'static [XdpMode] {
    match (mode, attachment) {
        (_, Attachment::Generic) => &[XdpMode::Generic],
        (XdpMode::ZeroCopy, _) => &[XdpMode::ZeroCopy],
        (XdpMode::Copy, _) => &[XdpMode::Copy],
        (XdpMode::Auto | XdpMode::Generic, _) => &[XdpMode::ZeroCopy, XdpMode::Copy],
    }
}

/// Whether a driver can address frames wherever they begin: without huge pages, the pages that a frame
/// crosses may lie apart. Those of memory that a GPU's driver has allocated may, too.
fn is_contiguous(pool: &Pool) -> bool {
    pool.memory().kind() == MemoryKind::HugePages
}

/// Binds a socket to a queue, in the mode.
fn bind(
    settings: &XdpSettings,
    index: u32,
    pool: &Arc<Pool>,
    mode: XdpMode,
    others: &[Arc<Endpoint>],
) -> io::Result<Bound> {
    if mode == XdpMode::ZeroCopy && !is_contiguous(pool) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let alike = |other: &&Arc<Endpoint>| {
        let is_zero_copy = |mode| mode == XdpMode::ZeroCopy;
        other.is_over(pool) && is_zero_copy(other.obtained.mode) == is_zero_copy(mode)
    };
    if let Some(other) = others.iter().find(alike) {
        let open = || {
            let (socket, rings) = prepare(settings, None)?;
            socket.bind(index, settings.queue, Binding::Shared(other.socket()))?;
            let multi_buffer = other.obtained.multi_buffer;
            Ok(Bound { socket, rings, shares_memory: true, multi_buffer })
        };
        if let Ok(bound) = until_released(open) {
            return Ok(bound);
        }
    }
    let copies = if mode == XdpMode::ZeroCopy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let open = |multi_buffer| {
        let flags = if multi_buffer { libc::XDP_USE_SG } else { 0 };
        let (socket, rings) = prepare(settings, Some(pool))?;
        let flags = libc::XDP_USE_NEED_WAKEUP | copies | flags;
        socket.bind(index, settings.queue, Binding::Own(flags))?;
        if mode == XdpMode::ZeroCopy && !socket.is_zero_copy()? {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(Bound { socket, rings, shares_memory: false, multi_buffer })
    };
    // Since Linux 6.6, and not of each driver.
    until_released(|| open(true)).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => until_released(|| open(false)),
        _ => Err(error),
    })
}

/// A socket with rings, which registers the memory of a pool or is to share that of another.
fn prepare(settings: &XdpSettings, pool: Option<&Arc<Pool>>) -> io::Result<(XdpSocket, Rings)> {
    let socket = XdpSocket::new()?;
    if let Some(pool) = pool {
        socket.register(pool.memory(), chunks(pool))?;
    }
    let rings = socket.make_rings(settings.ring_size)?;
    Ok((socket, rings))
}

fn cannot_bind(settings: &XdpSettings, pool: &Pool, error: &io::Error) -> IoError {
    let XdpSettings { interface: name, queue, mode, .. } = settings;
    let refusal = match error.raw_os_error() {
        Some(libc::EBUSY) => Refusal::new(
            &["queue", "queues"],
            format!("its queue {queue} is taken by another AF_XDP socket"),
            "a queue that is free",
        ),
        Some(libc::EINVAL) if *queue > 0 => Refusal::new(
            &["queues", "queue"],
            format!("it has no queue {queue}, or not in both directions"),
            format!("one of its queues: ethtool -l {name}"),
        ),
        Some(libc::EOPNOTSUPP | libc::EINVAL) if *mode == XdpMode::ZeroCopy => Refusal::new(
            &["mode"],
            format!("mode = \"zero-copy\" is not available ({error}): its driver does not do it"),
            WITHOUT_ZERO_COPY,
        ),
        // The kernel cannot pin the pages of each driver's memory.
        Some(libc::EFAULT | libc::ENOMEM) if pool.memory().kind() == MemoryKind::Foreign => {
            Refusal::new(
                &[],
                format!(
                    "the kernel cannot receive into the packet memory that a device has allocated \
                     ({error})"
                ),
                format!(
                    "another kind of port, such as interface = \"{name}\", or no NFs on the device"
                ),
            )
        }
        Some(libc::ENETDOWN) => Refusal::new(
            &[],
            "it is down",
            format!("one that is set up: ip link set dev {name} up"),
        ),
        Some(libc::ENOBUFS) => Refusal::new(
            &[],
            format!(
                "the system does not permit to lock {} MiB of packet memory",
                pool.memory().len().div_ceil(1 << 20)
            ),
            "a higher limit (ulimit -l), or to run as root or with the capability CAP_IPC_LOCK",
        ),
        _ => return failed(name, "cannot bind an AF_XDP socket to it", error),
    };
    refused(name, refusal)
}

/// How many receive queues an interface has, if the file system of this network namespace is mounted.
fn queues(name: &str) -> Option<u32> {
    link_of(name)?;
    let folder = fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    let is_receive =
        |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"rx-");
    let queues = folder.filter_map(Result::ok).filter(is_receive).count();
    u32::try_from(queues).ok().filter(|queues| *queues > 0)
}
