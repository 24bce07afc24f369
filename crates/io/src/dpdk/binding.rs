//! Calls of DPDK by `mbufs.c` and `devices.c`.
//!
//! `unsafe` here: functions in C, and what they share with drivers. [`Mbufs`] owns the mbufs, a
//! [`Purse`] those that are lent and not in use; both free what they own. A device is named by its
//! port, which has no owner here: a port that is not there is an error, or no packets.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use memmap2::{MmapMut, MmapOptions};
use thalweg_packet::{BATCH, Frame, Pool};

use super::loans::Loans;

/// A flag of packets received: the device has found a checksum wrong.
pub(super) const BAD_CHECKSUM: u16 = 1;
/// The same: it is longer than a frame.
pub(super) const SEVERAL_BUFFERS: u16 = 2;

/// What a device is and can do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) receive_queues: u16,
    pub(super) transmit_queues: u16,
    pub(super) least_descriptors: u16,
    pub(super) most_descriptors: u16,
    pub(super) most_mtu: u16,
    pub(super) checks_checksums: u8,
    pub(super) hashes: u8,
    driver: [c_char; 64],
}

impl Facts {
    /// The name of its driver.
    pub(super) fn driver(&self) -> String {
        let bytes: Vec<u8> = self.driver.iter().map(|byte| byte.cast_unsigned()).collect();
        CStr::from_bytes_until_nul(&bytes)
            .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
    }
}

/// How a device is set up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) queues: u16,
    pub(super) descriptors: u16,
    /// 0: it stays as it is.
    pub(super) mtu: u16,
    pub(super) promiscuous: u8,
    pub(super) check_checksums: u8,
}

/// A packet that was received.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// The number of its frame, or a number that no frame has.
    frame: u32,
    len: u32,
    place: u16,
    flags: u16,
}

/// A packet to be sent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Departure {
    frame: u32,
    place: u16,
    len: u16,
}

/// What a device has counted since it was set up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets for which no descriptor was free.
    pub(super) missed: u64,
    /// Packets received with errors.
    pub(super) errors: u64,
    /// Times that the driver had no frame.
    pub(super) starved: u64,
    /// Packets that it has not sent.
    pub(super) unsent: u64,
}

/// The state of a link.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkState {
    pub(super) up: u8,
    pub(super) speed_mbps: u32,
    pub(super) mtu: u16,
}

/// Of C: the mbufs.
#[repr(C)]
struct RawMbufs([u8; 0]);

/// Of C: a purse.
#[repr(C)]
struct RawPurse([u8; 0]);

type LogTo = extern "C" fn(level: u32, text: *const c_char, len: usize);
type EachCount = extern "C" fn(to: *mut c_void, name: *const c_char, value: u64);

unsafe extern "C" {
    fn thalweg_dpdk_start(argc: c_int, argv: *mut *mut c_char, to: LogTo) -> c_int;
    fn thalweg_dpdk_headers_size(frames: usize) -> usize;
    fn thalweg_dpdk_mbufs_new(
        name: *const c_char,
        frames: *mut u8,
        count: u32,
        stride: usize,
        frame_size: u16,
        headers: *mut u8,
        error: *mut c_int,
    ) -> *mut RawMbufs;
    fn thalweg_dpdk_mbufs_free(mbufs: *mut RawMbufs);
    fn thalweg_dpdk_purse_new(mbufs: *const RawMbufs) -> *mut RawPurse;
    fn thalweg_dpdk_purse_free(purse: *mut RawPurse);
    fn thalweg_dpdk_purse_count(purse: *const RawPurse) -> u32;
    fn thalweg_dpdk_lend(mbufs: *const RawMbufs, purse: *mut RawPurse, frame: u32);
    fn thalweg_dpdk_take_back(
        mbufs: *const RawMbufs,
        purse: *mut RawPurse,
        frames: *mut u32,
        most: u32,
    ) -> u32;
    fn thalweg_dpdk_take_strays(mbufs: *mut RawMbufs, frames: *mut u32, most: u32) -> u32;
    fn thalweg_dpdk_attach(arguments: *const c_char, name: *const c_char, port: *mut u16) -> c_int;
    fn thalweg_dpdk_map(port: u16, mbufs: *const RawMbufs) -> c_int;
    fn thalweg_dpdk_detach(
        port: u16,
        mbufs: *const RawMbufs,
        purse: *mut RawPurse,
        is_started: c_int,
    ) -> c_int;
    fn thalweg_dpdk_facts(port: u16, facts: *mut Facts) -> c_int;
    fn thalweg_dpdk_set_up(
        port: u16,
        mbufs: *const RawMbufs,
        purse: *mut RawPurse,
        setup: *const Setup,
        descriptors: *mut u16,
        step: *mut *const c_char,
    ) -> c_int;
    fn thalweg_dpdk_count(port: u16, counts: *mut Counts);
    fn thalweg_dpdk_each_count(port: u16, each: EachCount, to: *mut c_void);
    fn thalweg_dpdk_link(port: u16, link: *mut LinkState);
    fn thalweg_dpdk_is_removed(port: u16) -> c_int;
    fn thalweg_dpdk_receive(
        port: u16,
        queue: u16,
        mbufs: *const RawMbufs,
        purse: *mut RawPurse,
        arrivals: *mut Arrival,
        most: u16,
    ) -> u32;
    fn thalweg_dpdk_send(
        port: u16,
        queue: u16,
        mbufs: *const RawMbufs,
        purse: *mut RawPurse,
        departures: *const Departure,
        n: u16,
    ) -> u32;
    fn thalweg_dpdk_reap(port: u16, queue: u16, purse: *mut RawPurse);
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

extern "C" fn take_log(level: u32, text: *const c_char, len: usize) {
    // SAFETY: the caller passes that many bytes, which stay as they are during the call.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    super::log::take(level, &String::from_utf8_lossy(bytes));
}

/// Starts DPDK. To be called once in a process.
pub(super) fn start(arguments: &[String]) -> io::Result<()> {
    let arguments: Result<Vec<CString>, _> =
        arguments.iter().map(|text| CString::new(text.as_str())).collect();
    let arguments = arguments.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let count = arguments.len() as c_int;
    // It may permute the pointers, and keeps them: they are never freed.
    let pointers = arguments.into_iter().map(CString::into_raw);
    let pointers: &mut [*mut c_char] =
        Box::leak(pointers.chain([std::ptr::null_mut()]).collect::<Box<[_]>>());
    // SAFETY: as many strings are there, and a null behind them, for as long as the process lives.
    checked(unsafe { thalweg_dpdk_start(count, pointers.as_mut_ptr(), take_log) })
}

/// The mbufs of a pool's frames, large ones excepted.
pub(super) struct Mbufs {
    raw: NonNull<RawMbufs>,
    pool: Arc<Pool>,
    loans: Loans,
    _headers: MmapMut,
}

// SAFETY: what the structure in C refers to has no thread affinity. An mbuf is changed by whom has its
// frame or, while that is lent, by whom has been lent it; the list of strays has a lock.
unsafe impl Send for Mbufs {}
// SAFETY: as above.
unsafe impl Sync for Mbufs {}

impl Mbufs {
    /// Makes them, and registers the pool's memory with DPDK, which must have been started.
    pub(super) fn new(name: &str, pool: &Arc<Pool>) -> io::Result<Self> {
        let count = pool.frames() as u32;
        let stride = Pool::region_len(1, pool.frame_size());
        let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: takes no pointer.
        let size = unsafe { thalweg_dpdk_headers_size(pool.frames()) };
        let mut headers = MmapOptions::new().len(size).map_anon()?;
        let (place, frames) = (headers.as_mut_ptr(), pool.memory().base().as_ptr());
        let (frame_size, mut error) = (pool.frame_size() as u16, 0);
        let to = &raw mut error;
        // SAFETY: the pool's memory begins at a page and holds these frames, `headers` is as large as
        // required; both are kept until the mbufs are freed.
        let raw = unsafe {
            thalweg_dpdk_mbufs_new(name.as_ptr(), frames, count, stride, frame_size, place, to)
        };
        let raw = NonNull::new(raw).ok_or_else(|| io::Error::from_raw_os_error(error))?;
        Ok(Self { raw, pool: pool.clone(), loans: Loans::of(pool), _headers: headers })
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How many frames are lent.
    pub(super) fn lent(&self) -> usize {
        self.loans.count()
    }

    /// Gives the frames back to the pool that threads without a purse have returned.
    pub(super) fn give_strays_back(&self) {
        let mut frames = [0; BATCH];
        loop {
            let place = frames.as_mut_ptr();
            // SAFETY: there is room for as many frames; the list has a lock.
            let n = unsafe { thalweg_dpdk_take_strays(self.raw.as_ptr(), place, BATCH as u32) };
            if n == 0 {
                return;
            }
            let frames = frames[..n as usize].iter().filter_map(|index| self.loans.take(*index));
            self.pool.give_back(frames);
        }
    }
}

impl Drop for Mbufs {
    fn drop(&mut self) {
        // SAFETY: no purse and no device is left, since they refer to this.
        unsafe { thalweg_dpdk_mbufs_free(self.raw.as_ptr()) };
    }
}

/// A packet that was received.
pub(super) struct Arrived {
    /// `None` if it does not lie in one frame of the pool.
    pub(super) frame: Option<Frame>,
    pub(super) place: usize,
    pub(super) len: usize,
    /// [`BAD_CHECKSUM`], [`SEVERAL_BUFFERS`].
    pub(super) flags: u16,
}

/// A packet to be sent.
pub(super) struct Leaving {
    pub(super) lane: usize,
    pub(super) frame: Frame,
    pub(super) place: usize,
    pub(super) len: usize,
}

/// Mbufs of frames that are lent, and that no driver uses: it takes some and puts some during calls that
/// have the purse.
pub(super) struct Purse {
    raw: NonNull<RawPurse>,
    mbufs: Arc<Mbufs>,
}

// SAFETY: the structure in C has no thread affinity, and is used by `&mut self` alone.
unsafe impl Send for Purse {}

impl Purse {
    pub(super) fn new(mbufs: &Arc<Mbufs>) -> io::Result<Self> {
        // SAFETY: the mbufs are there until the purse is freed.
        let raw = unsafe { thalweg_dpdk_purse_new(mbufs.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { raw, mbufs: mbufs.clone() })
    }

    pub(super) fn mbufs(&self) -> &Arc<Mbufs> {
        &self.mbufs
    }

    pub(super) fn len(&self) -> usize {
        // SAFETY: it is there until `self` is dropped.
        unsafe { thalweg_dpdk_purse_count(self.raw.as_ptr()) as usize }
    }

    /// Lends frames of the pool until it has `wanted`; returns whether it has.
    pub(super) fn fill(&mut self, wanted: usize) -> bool {
        let mbufs = self.mbufs.clone();
        let missing = wanted.saturating_sub(self.len());
        mbufs.pool.take_many(missing, |frame| {
            let index = mbufs.loans.lend(frame).expect("the pool hands out no large frames here");
            // SAFETY: there is an mbuf for the frame, which was just lent, so that nothing else uses it, and
            // there is room for all.
            unsafe { thalweg_dpdk_lend(mbufs.raw.as_ptr(), self.raw.as_ptr(), index) };
        }) == missing
    }

    /// Gives frames back to the pool until `left` are left.
    pub(super) fn give_back(&mut self, left: usize) {
        let mut frames = [0; BATCH];
        loop {
            let most = self.len().saturating_sub(left).min(BATCH) as u32;
            if most == 0 {
                return;
            }
            let (mbufs, place) = (self.mbufs.raw.as_ptr(), frames.as_mut_ptr());
            // SAFETY: there is room for as many frames.
            let n = unsafe { thalweg_dpdk_take_back(mbufs, self.raw.as_ptr(), place, most) };
            let Mbufs { loans, pool, .. } = &*self.mbufs;
            pool.give_back(frames[..n as usize].iter().filter_map(|index| loans.take(*index)));
        }
    }

    /// Receives up to `most` packets of a queue. The driver takes mbufs of the purse.
    #[inline]
    pub(super) fn receive(
        &mut self,
        (port, queue): (u16, u16),
        most: usize,
    ) -> ArrayVec<Arrived, BATCH> {
        let mut arrivals = [Arrival::default(); BATCH];
        let (mbufs, place) = (self.mbufs.raw.as_ptr(), arrivals.as_mut_ptr());
        let most = most.min(BATCH) as u16;
        // SAFETY: there is room for as many arrivals, and no other thread has this queue.
        let n = unsafe {
            thalweg_dpdk_receive(port, queue, mbufs, self.raw.as_ptr(), place, most) as usize
        };
        let arrived = |arrival: &Arrival| Arrived {
            frame: self.mbufs.loans.take(arrival.frame),
            place: arrival.place.into(),
            len: arrival.len as usize,
            flags: arrival.flags,
        };
        arrivals[..n].iter().map(arrived).collect()
    }

    /// Has the device send packets, and removes from the list what it has taken, from the first on. The
    /// driver puts what it has sent into the purse. Their frames must not be large.
    #[inline]
    pub(super) fn send(
        &mut self,
        (port, queue): (u16, u16),
        packets: &mut ArrayVec<Leaving, BATCH>,
    ) {
        let loans = &self.mbufs.loans;
        let mut departures = [Departure::default(); BATCH];
        let (mut lanes, mut n) = ([0; BATCH], 0);
        for Leaving { lane, frame, place, len } in packets.drain(..) {
            let frame = loans.lend(frame).expect("it is no large frame");
            departures[n] = Departure { frame, place: place as u16, len: len as u16 };
            lanes[n] = lane;
            n += 1;
        }
        let (mbufs, place) = (self.mbufs.raw.as_ptr(), departures.as_ptr());
        // SAFETY: as many packets are there, each in a frame that was just lent, and no other thread
        // has this queue.
        let sent = unsafe {
            thalweg_dpdk_send(port, queue, mbufs, self.raw.as_ptr(), place, n as u16) as usize
        };
        for at in sent..n {
            let Departure { frame, place, len } = departures[at];
            if let Some(frame) = loans.take(frame) {
                let (place, len) = (place.into(), len.into());
                packets.push(Leaving { lane: lanes[at], frame, place, len });
            }
        }
    }

    /// Has the driver put what it has sent into the purse, if it can on request.
    pub(super) fn reap(&mut self, (port, queue): (u16, u16)) {
        // SAFETY: no other thread has this queue.
        unsafe { thalweg_dpdk_reap(port, queue, self.raw.as_ptr()) };
    }

    /// Sets a device up and starts it; its driver takes mbufs of the purse. Returns the descriptors of
    /// each queue.
    ///
    /// # Errors
    /// What has failed, and why.
    pub(super) fn set_up(&mut self, port: u16, setup: &Setup) -> Result<u16, (String, io::Error)> {
        let (mbufs, purse) = (self.mbufs.raw.as_ptr(), self.raw.as_ptr());
        let (mut descriptors, mut step) = (0, c"".as_ptr());
        let (to, at) = (&raw mut descriptors, &raw mut step);
        // SAFETY: the places written to are there; the device refers to the mbufs until it is detached.
        let result = unsafe { thalweg_dpdk_set_up(port, mbufs, purse, setup, to, at) };
        // SAFETY: it is a string of `devices.c`, which is always there.
        let step = unsafe { CStr::from_ptr(step) };
        checked(result).map_err(|e| (step.to_string_lossy().into_owned(), e))?;
        Ok(descriptors)
    }

    /// Stops a device that `is_started`, and has its driver let go of it, which puts what it has into
    /// the purse.
    pub(super) fn detach(&mut self, port: u16, is_started: bool) -> io::Result<()> {
        let (mbufs, purse) = (self.mbufs.raw.as_ptr(), self.raw.as_ptr());
        // SAFETY: the purse takes as many mbufs as there are.
        checked(unsafe { thalweg_dpdk_detach(port, mbufs, purse, is_started.into()) })
    }
}

impl Drop for Purse {
    /// Gives its frames back to the pool.
    fn drop(&mut self) {
        self.give_back(0);
        // SAFETY: it was made by the matching function, and nothing else refers to it: drivers do
        // during calls only.
        unsafe { thalweg_dpdk_purse_free(self.raw.as_ptr()) };
    }
}

/// Has a driver attach the device `name` with these arguments, which begin with the name; returns its
/// port. Packets need a [set-up](Purse::set_up).
pub(super) fn attach(arguments: &str, name: &str) -> io::Result<u16> {
    let text = |text: &str| CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into());
    let (arguments, name): (Result<_, io::Error>, Result<_, io::Error>) =
        (text(arguments), text(name));
    let (arguments, name) = (arguments?, name?);
    let mut port = 0;
    // SAFETY: both are strings.
    checked(unsafe { thalweg_dpdk_attach(arguments.as_ptr(), name.as_ptr(), &raw mut port) })?;
    Ok(port)
}

/// Makes packet memory known to what translates addresses for a device.
pub(super) fn map(port: u16, mbufs: &Mbufs) -> io::Result<()> {
    // SAFETY: the mbufs are there, and their memory as long as they are.
    checked(unsafe { thalweg_dpdk_map(port, mbufs.raw.as_ptr()) })
}

pub(super) fn facts(port: u16) -> io::Result<Facts> {
    let mut facts = Facts {
        receive_queues: 0,
        transmit_queues: 0,
        least_descriptors: 0,
        most_descriptors: 0,
        most_mtu: 0,
        checks_checksums: 0,
        hashes: 0,
        driver: [0; 64],
    };
    // SAFETY: the place written to is there.
    checked(unsafe { thalweg_dpdk_facts(port, &raw mut facts) })?;
    Ok(facts)
}

pub(super) fn counts(port: u16) -> Counts {
    let mut counts = Counts::default();
    // SAFETY: the place written to is there.
    unsafe { thalweg_dpdk_count(port, &raw mut counts) };
    counts
}

/// The device's own counters that are not 0, by name.
pub(super) fn extended_counts(port: u16) -> Vec<(String, u64)> {
    extern "C" fn add(to: *mut c_void, name: *const c_char, value: u64) {
        // SAFETY: it is what is passed below.
        let all = unsafe { &mut *to.cast::<Vec<(String, u64)>>() };
        // SAFETY: names of counters end with a zero.
        let name = unsafe { CStr::from_ptr(name) };
        all.push((name.to_string_lossy().into_owned(), value));
    }
    let mut all: Vec<(String, u64)> = Vec::new();
    // SAFETY: the list is passed on to `add` during the call only.
    unsafe { thalweg_dpdk_each_count(port, add, (&raw mut all).cast()) };
    all
}

pub(super) fn link(port: u16) -> LinkState {
    let mut link = LinkState::default();
    // SAFETY: the place written to is there.
    unsafe { thalweg_dpdk_link(port, &raw mut link) };
    link
}

/// Whether the hardware is gone.
pub(super) fn is_removed(port: u16) -> bool {
    // SAFETY: takes no pointer.
    unsafe { thalweg_dpdk_is_removed(port) == 1 }
}
