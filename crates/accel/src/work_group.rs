//! A work-group in Rust: the device's side of the protocol, which the kernel repeats.

use crate::region::{Region, Shape, State};
use crate::slot::Request;

/// Works on the rows of a work-group until the region ends: calls `work` with each request, and `idle`
/// when there is nothing to do.
pub(crate) fn serve(
    region: &Region,
    group: usize,
    mut work: impl FnMut(Request) -> [u32; 2],
    mut idle: impl FnMut(),
) {
    let Shape { lanes, rows, .. } = region.shape();
    let mut done = 0u32;
    region.set_state(group, State::Runs);
    loop {
        // In this order: what was sealed before the end is worked on.
        let ends = region.ends();
        let sealed = region.sealed(group);
        if done == sealed {
            if ends {
                break;
            }
            idle();
            continue;
        }
        // More than there are, as no processor seals them: the kernel leaves such memory as it is.
        if sealed.wrapping_sub(done) as usize > rows {
            return;
        }
        while done != sealed {
            for lane in 0..lanes {
                let slot = region.slot(group, done, lane);
                if let Some(request) = slot.request() {
                    slot.answer(work(request));
                }
            }
            done = done.wrapping_add(1);
            region.finish(group, done);
        }
    }
    region.set_state(group, State::Ended);
}
