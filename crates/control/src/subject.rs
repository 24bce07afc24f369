//! The run that an API is about.

use std::sync::Arc;
use std::time::Instant;

use thalweg_chain::Plan;
use thalweg_engine::Control;
use time::OffsetDateTime;

/// A run, as its API sees it.
pub struct Subject {
    pub(crate) name: String,
    pub(crate) chain: String,
    pub(crate) workers: usize,
    /// The core of each worker; empty for any.
    pub(crate) cores: Vec<u32>,
    pub(crate) control: Arc<Control>,
    pub(crate) began: (Instant, OffsetDateTime),
}

impl Subject {
    /// The run of `plan` that `control` steers, on `workers` threads, under the name `name`. `chain` is
    /// the path of its chain file, or what stands for one.
    pub fn new(
        name: String,
        chain: String,
        plan: &Plan,
        workers: usize,
        control: Arc<Control>,
    ) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            name,
            chain,
            workers,
            cores: plan.cores.iter().copied().take(workers).collect(),
            control,
            began: (Instant::now(), now.replace_nanosecond(0).unwrap_or(now)),
        }
    }
}
