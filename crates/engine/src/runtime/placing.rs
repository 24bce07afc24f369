//! Where threads run: on the cores that the chain file gives them.

use thalweg_cpu::cores::Pinned;

/// Keeps this thread, which is `who`, on `core` until the result is dropped, if it has one.
///
/// Memory that the thread is the first to write, such as its bursts and the frames that they take,
/// is then on the memory node of its core: the kernel takes it from there.
pub(super) fn keep_on(core: Option<u32>, who: &str) -> Option<Pinned> {
    let core = core?;
    match Pinned::to(core) {
        Ok(pinned) => Some(pinned),
        // Loading has checked the core: it was taken away since then. Packets pass all the same.
        Err(e) => {
            log::warn!("cannot keep {who} on core {core}: {e}");
            None
        }
    }
}
