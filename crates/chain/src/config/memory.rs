//! The packet memory of a chain.

use std::ops::Range;
use std::sync::Arc;

use thalweg_nf::device::{Devices, Launches, Named};
use thalweg_packet::{DEFAULT_FRAME_SIZE, HEADROOM, MAX_FRAME_SIZE, PacketMemory, Pool, PoolError};
use thalweg_source::{Passage, SourceError};
use toml::Spanned;

use super::device;
use super::file::{Memory, Placed};
use super::nfs::NfPlan;
use super::ports::{InputPlan, OutputPlan};

/// The frame size that the file sets, or the largest that an NF needs.
fn frame_size(
    memory: &Placed<Memory>,
    nfs: &[NfPlan],
    notes: &mut Vec<SourceError>,
    errors: &mut Vec<SourceError>,
) -> Option<usize> {
    let needs = nfs.iter().map(|nf| nf.blueprint.frame_size());
    let Some(said) = &memory.frame_size else {
        return Some(needs.fold(DEFAULT_FRAME_SIZE, usize::max));
    };
    let size = *said.get_ref();
    if !size.is_multiple_of(64) || !(512..=MAX_FRAME_SIZE).contains(&size) {
        let expected = format!(
            "a multiple of 64 from 512 to {MAX_FRAME_SIZE}, including {HEADROOM} bytes of headroom"
        );
        errors.push(memory.source.error(said.span(), "bad frame size", expected));
        return None;
    }
    let enough = size.max(DEFAULT_FRAME_SIZE);
    for (nf, needed) in nfs.iter().zip(needs).filter(|(_, needed)| *needed > enough) {
        let message = format!("frames may be too small for packets of NF '{}'", nf.name);
        let expected = format!("{needed} bytes, the default for this chain");
        notes.push(memory.source.error(said.span(), message, expected));
    }
    Some(size)
}

/// The frames that a chain has by default, unless its ports need more.
const FRAMES: usize = 8192;
/// The most.
const MOST_FRAMES: usize = 1 << 24;

/// The frames that the file sets; otherwise as many as leave enough for packets under way beside those that ports
/// keep.
fn frames(
    memory: &Placed<Memory>,
    inputs: &[InputPlan],
    outputs: &[OutputPlan],
    errors: &mut Vec<SourceError>,
) -> Option<usize> {
    let Some(said) = &memory.frames else {
        let of_inputs = inputs.iter().map(|input| input.blueprint.kept_frames());
        let of_outputs = outputs.iter().map(|output| output.blueprint.kept_frames());
        let of_all: usize = of_inputs.clone().sum();
        let of_one = of_inputs.chain(of_outputs).max().unwrap_or(0);
        return Some(FRAMES.max(4 * of_one).max(2 * of_all).min(MOST_FRAMES));
    };
    let frames = *said.get_ref();
    if !(128..=MOST_FRAMES).contains(&frames) {
        let expected = format!("128 to {MOST_FRAMES}");
        errors.push(memory.source.error(said.span(), "bad number of frames", expected));
        return None;
    }
    Some(frames)
}

/// Where the file sets the frames, if it does.
fn frames_span(memory: &Placed<Memory>) -> Range<usize> {
    memory.frames.as_ref().map_or(0..0, Spanned::span)
}

/// The large frames that a chain with super-packets has by default.
const LARGE_FRAMES: usize = 256;

/// The large frames that the file sets; otherwise some if an input can receive super-packets.
fn large_frames(
    memory: &Placed<Memory>,
    inputs: &[InputPlan],
    errors: &mut Vec<SourceError>,
) -> Option<usize> {
    const MOST: usize = 1 << 16;
    let Some(said) = &memory.large_frames else {
        let of_use = inputs.iter().any(|input| input.blueprint.capabilities().super_packets);
        return Some(if of_use { LARGE_FRAMES } else { 0 });
    };
    let frames = *said.get_ref();
    if frames > MOST {
        let expected = format!("0 (none) to {MOST}");
        errors.push(memory.source.error(said.span(), "bad number of large frames", expected));
        return None;
    }
    Some(frames)
}

/// Memory that a device shares: its own, or ours where a peer maps it or it is of huge pages.
fn region_of_device(
    memory: &Placed<Memory>,
    (devices, device, place): (&dyn Devices, Named<'_>, &Passage),
    (len, shared): (usize, bool),
    notes: &mut Vec<SourceError>,
    errors: &mut Vec<SourceError>,
) -> Option<PacketMemory> {
    let own = match region(memory, len, shared, notes) {
        Some(Err(e)) => {
            errors.push(not_shared(memory, &e));
            return None;
        }
        Some(Ok(own)) => Some(devices.adopt(device, own)),
        None => None,
    };
    match own {
        Some(Ok(adopted)) => return Some(adopted),
        Some(Err(why)) if shared => {
            let message = format!("packet memory that a peer of memif maps: {why}");
            let expected = "no 'zero_copy' in memif ports, or NFs on another device";
            errors.push(place.error(message, expected));
            return None;
        }
        Some(Err(why)) => {
            let message = format!("'huge_pages' has no effect: {why}");
            let at = memory.huge_pages.span();
            notes.push(memory.source.error(at, message, "no 'huge_pages'"));
        }
        None => {}
    }
    devices
        .allocate(device, len)
        .map_err(|why| {
            let expected = "a device that is there; thalweg devices lists those of this machine";
            errors.push(place.error(why, expected));
        })
        .ok()
}

fn not_shared(memory: &Placed<Memory>, error: &std::io::Error) -> SourceError {
    let message = format!("cannot make packet memory that a peer can share: {error}");
    memory.source.error(frames_span(memory), message, "less packet memory")
}

/// Memory that a peer shares, or of huge pages; `None` for ordinary memory.
fn region(
    memory: &Placed<Memory>,
    len: usize,
    shared: bool,
    notes: &mut Vec<SourceError>,
) -> Option<std::io::Result<PacketMemory>> {
    let mut note = |message: String, expected: &str| {
        notes.push(memory.source.error(memory.huge_pages.span(), message, expected));
    };
    let wants_huge = *memory.huge_pages.get_ref();
    if shared {
        if wants_huge {
            let message = "huge pages cannot be shared with a peer; using ordinary pages";
            note(message.into(), "'huge_pages' or 'zero_copy', not both");
        }
        return Some(PacketMemory::shared(len));
    }
    match wants_huge.then(|| PacketMemory::huge_pages(len))? {
        Ok(region) => Some(Ok(region)),
        Err(e) => {
            let pages = len.div_ceil(2 << 20);
            note(
                format!("cannot use huge pages ({e}); using ordinary pages"),
                &format!("huge pages set aside: sysctl vm.nr_hugepages={pages}"),
            );
            None
        }
    }
}

/// Makes the packet memory: of a device if the file or an NF names one, by its own name and with those that are
/// usable. `None` with a mistake, and if that of a device was reported already.
pub(super) fn make_pool(
    memory: &Placed<Memory>,
    devices: Result<(Option<String>, Option<&dyn Devices>), ()>,
    launches: Launches,
    (inputs, outputs): (&[InputPlan], &[OutputPlan]),
    nfs: &[NfPlan],
    notes: &mut Vec<SourceError>,
    errors: &mut Vec<SourceError>,
) -> Option<Arc<Pool>> {
    let size = frame_size(memory, nfs, notes, errors)?;
    let frames = frames(memory, inputs, outputs, errors)?;
    let large = large_frames(memory, inputs, errors)?;
    let shared = inputs.iter().any(|input| input.blueprint.shares_memory())
        || outputs.iter().any(|output| output.blueprint.shares_memory());
    let len = Pool::region_len_with(frames, size, large);
    let (own_name, devices) = devices.ok()?;
    if let Some((at, place)) = device::sharing(memory, own_name.as_deref(), nfs, errors)
        && let Some(devices) = devices
    {
        let at = (devices, Named { at, launches }, &place);
        let region = region_of_device(memory, at, (len, shared), notes, errors)?;
        return pool_of(memory, Pool::with_large(region, size, large), errors);
    }
    let pool = match region(memory, len, shared, notes) {
        Some(Ok(region)) => Pool::with_large(region, size, large),
        Some(Err(e)) => {
            errors.push(not_shared(memory, &e));
            return None;
        }
        None => Pool::anonymous_with(frames, size, large),
    };
    pool_of(memory, pool, errors)
}

fn pool_of(
    memory: &Placed<Memory>,
    pool: Result<Pool, PoolError>,
    errors: &mut Vec<SourceError>,
) -> Option<Arc<Pool>> {
    match pool {
        Ok(pool) => Some(Arc::new(pool)),
        Err(e) => {
            errors.push(memory.source.error(
                frames_span(memory),
                e.to_string(),
                "less packet memory",
            ));
            None
        }
    }
}
