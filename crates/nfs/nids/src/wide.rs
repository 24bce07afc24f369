//! The way of all packets, compiled once more for AVX-512: its copies, shifts and masks take fewer
//! instructions.
//!
//! `unsafe` here: a function compiled for more than the build's target is called after the processor
//! was checked.
#![allow(unsafe_code)]

use std::sync::Arc;

use thalweg_cpu::{Isa, avx512};
use thalweg_nf::Context;
use thalweg_packet::{Batch, Lanes};

use super::engine::Engine;
use super::flows::Flows;
use super::inspect::Inspector;

impl Inspector {
    /// Inspects the packets of `lanes`.
    pub(super) fn packets(
        &mut self,
        engine: &Arc<Engine>,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        #[cfg(target_arch = "x86_64")]
        if Isa::active().avx512().is_some() {
            // SAFETY: an `Avx512` exists only if the processor has AVX-512.
            return unsafe { self.packets_by_avx512(engine, flows, batch, lanes, context) };
        }
        self.packets_anywhere(engine, flows, batch, lanes, context);
    }

    #[cfg(target_arch = "x86_64")]
    #[avx512]
    fn packets_by_avx512(
        &mut self,
        engine: &Arc<Engine>,
        flows: &mut Flows,
        batch: &Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        self.packets_anywhere(engine, flows, batch, lanes, context);
    }
}
