//! The shape of `chain.toml`.

use std::ops::{Deref, Range};
use std::path::PathBuf;

use serde::Deserialize;
use thalweg_nf::Kind;
use thalweg_source::{Source, SourceError};
use toml::Spanned;
use toml::de::DeValue;

use super::cores::Cores;
use super::ports::MergeBy;
use super::served::Served;
use super::tunnels::Tunnels;
use crate::workers::Workers;

/// The chain file with the files that it includes, part by part.
///
/// Invalid parts are left out and named in `errors`, so that one pass over the
/// files finds the mistakes of all parts.
#[derive(Debug)]
pub(super) struct ChainFile<'a> {
    /// The text of the chain file itself, which hides the values of variables in its mistakes.
    pub(super) source: Source,
    /// The files that it includes.
    pub(super) included: Vec<PathBuf>,
    pub(super) run: Placed<Run>,
    pub(super) memory: Placed<Memory>,
    pub(super) classify: Placed<Classify>,
    pub(super) inputs: Vec<PortSection<'a>>,
    pub(super) outputs: Vec<PortSection<'a>>,
    pub(super) nfs: Vec<NfSection<'a>>,
    pub(super) default_type: Option<Placed<Spanned<String>>>,
    pub(super) classes: Vec<Placed<Spanned<Class>>>,
    /// The file with the routes.
    pub(super) routes: Option<Placed<Spanned<String>>>,
    /// The routes in the chain file itself.
    pub(super) paths: Vec<Placed<Spanned<Route>>>,
    pub(super) errors: Vec<SourceError>,
}

/// A part of a chain, and the file that holds it.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) source: Source,
    pub(super) part: T,
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

/// The name and the content of the section of a port.
pub(super) type PortSection<'a> = Placed<(Spanned<String>, Spanned<DeValue<'a>>)>;

/// An NF section: the keys that every NF has, and the options for its kind.
#[derive(Debug)]
pub(super) struct NfSection<'a> {
    pub(super) name: String,
    /// Its kind; `None` when the section names none, or none that is known.
    pub(super) kind: Option<Kind>,
    pub(super) served: Served,
    pub(super) options: Spanned<DeValue<'a>>,
    /// The place of the name.
    pub(super) span: Range<usize>,
    /// The file that holds it.
    pub(super) source: Source,
}

/// How long inputs are polled by default (`bench/gateway.py`): with less, more packets find the thread
/// asleep, and waking it up takes longer than the polls; with more, a connection at full speed takes more
/// processor time.
const POLL_US: u32 = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Run {
    pub(super) workers: Spanned<Workers>,
    /// The core of each worker.
    pub(super) cores: Option<Spanned<Cores>>,
    pub(super) merge: MergeBy,
    pub(super) seed: Option<u64>,
    /// The user that a run started by root becomes.
    pub(super) user: Option<Spanned<String>>,
    /// Microseconds for which workers poll live inputs before they sleep.
    pub(super) poll_us: Spanned<u32>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            workers: Spanned::new(0..0, Workers::Number(1)),
            cores: None,
            merge: MergeBy::default(),
            seed: None,
            user: None,
            poll_us: Spanned::new(0..0, POLL_US),
        }
    }
}

impl Run {
    /// The number of workers.
    pub(super) fn number_of_workers(&self) -> usize {
        let cores = self.cores.as_ref().map_or(0, |cores| cores.get_ref().numbers().len());
        self.workers.get_ref().number_on(cores)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Memory {
    /// `None`: as large as the NFs need.
    pub(super) frame_size: Option<Spanned<usize>>,
    /// `None`: as many as the ports need.
    pub(super) frames: Option<Spanned<usize>>,
    /// `None`: some if a port can make use of them.
    pub(super) large_frames: Option<Spanned<usize>>,
    pub(super) huge_pages: Spanned<bool>,
    /// The device that shares it; by default that of the NFs on one.
    pub(super) device: Option<Spanned<String>>,
    /// Whether it may do its work in launches, by name.
    pub(super) launches: Option<Spanned<String>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            frame_size: None,
            frames: None,
            large_frames: None,
            huge_pages: Spanned::new(0..0, false),
            device: None,
            launches: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Classify {
    pub(super) emc_entries: Spanned<usize>,
    pub(super) emc_insert_inverse_probability: u32,
    pub(super) emc_adaptive: bool,
    pub(super) megaflow_limit: usize,
    pub(super) megaflow_adaptive: bool,
    pub(super) idle_timeout_ms: u64,
    pub(super) decapsulate: Tunnels,
}

impl Default for Classify {
    fn default() -> Self {
        let config = thalweg_classify::Config::default();
        Self {
            emc_entries: Spanned::new(0..0, config.emc_entries),
            emc_insert_inverse_probability: config.emc_insert_inverse_probability,
            emc_adaptive: config.emc_adaptive,
            megaflow_limit: config.megaflow_limit,
            megaflow_adaptive: config.megaflow_adaptive,
            idle_timeout_ms: config.idle_timeout.0 / 1_000_000,
            decapsulate: Tunnels::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) r#type: Spanned<String>,
    #[serde(default)]
    pub(super) rules: Vec<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) classbench: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    /// `None`: any.
    pub(super) r#type: Option<Spanned<String>>,
    pub(super) path: Spanned<Vec<Spanned<String>>>,
}
