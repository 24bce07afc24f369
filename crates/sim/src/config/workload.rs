//! The workload: the lookups and their method.

use serde::{Deserialize, Serialize};

/// The workload of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadConfig {
    /// Places of each table.
    pub entries: u64,
    /// The part of them that is filled.
    pub occupancy: f64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// The part of lookups whose key is there.
    pub hit_rate: f64,
    /// Which keys are looked up.
    pub pick: Pick,
    /// The exponent of Zipf's law, where keys are picked by it.
    pub zipf: f64,
    /// The kind of table.
    pub table: Table,
    /// Tables that are searched one after the other for each key (tuple space search);
    /// 1 is a single lookup.
    pub tuples: u64,
    /// Flows of a switch: they share the keys of the tables, and have an exact-match cache
    /// before them. 0: no switch, each key by itself.
    pub flows: u64,
    /// Who looks up.
    pub method: Method,
    /// What lookups wait for.
    pub stream: Stream,
    /// The network function that the lookups are for.
    pub function: Function,
    /// The work of the core's other thread; it is measured, not the lookups.
    pub beside: Beside,
    /// Whether that thread runs alone: there are no lookups, and their thread waits.
    pub alone: bool,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            entries: 1 << 17,
            occupancy: 0.75,
            key_bytes: 16,
            hit_rate: 1.0,
            pick: Pick::Uniform,
            zipf: 1.0,
            table: Table::Cuckoo,
            tuples: 1,
            flows: 0,
            method: Method::LockFree,
            stream: Stream::Independent,
            function: Function::None,
            beside: Beside::None,
            alone: false,
        }
    }
}

/// Which keys are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// All alike.
    #[default]
    Uniform,
    /// Only those that the warm-up looked up: the one reading of the paper under which
    /// tables of 2^20 entries and more lie in the last-level cache.
    Recent,
    /// By Zipf's law: the n-th key with a chance proportional to n to the power of minus
    /// `zipf`.
    Zipf,
}

/// The kind of table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Two buckets of eight entries a key.
    #[default]
    Cuckoo,
    /// One bucket of eight entries a key (the paper's single-function hash table).
    SingleFunction,
    /// Our own: two buckets of three keys in the line. Looked up by software, one key at a
    /// time (lock-free) or 32 with AVX-512 (bulk).
    Thalweg,
}

impl Table {
    /// Who can look up in it.
    pub const fn methods(self) -> &'static [Method] {
        match self {
            Self::Cuckoo | Self::SingleFunction => &Method::ALL,
            Self::Thalweg => &[Method::LockFree, Method::Bulk],
        }
    }
}

/// Who looks up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Software without a lock, in the manner of `rte_hash`.
    Scalar,
    /// The same, with the table's change counter read before and after.
    #[default]
    LockFree,
    /// The same, under a reader-writer lock.
    ReadLock,
    /// Software, eight keys at a time with prefetching.
    Bulk,
    /// The accelerator, one blocking instruction a lookup.
    HaloBlocking,
    /// The accelerator, several lookups under way.
    HaloNonBlocking,
    /// Ternary memory.
    Tcam,
    /// Ternary memory built from static memory.
    SramTcam,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Scalar,
        Self::LockFree,
        Self::ReadLock,
        Self::Bulk,
        Self::HaloBlocking,
        Self::HaloNonBlocking,
        Self::Tcam,
        Self::SramTcam,
    ];

    /// Its name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::LockFree => "lock-free",
            Self::ReadLock => "read-lock",
            Self::Bulk => "bulk",
            Self::HaloBlocking => "halo-blocking",
            Self::HaloNonBlocking => "halo-non-blocking",
            Self::Tcam => "tcam",
            Self::SramTcam => "sram-tcam",
        }
    }
}

/// The operation that a lookup waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// Nothing: lookups overlap as far as the core lets them.
    #[default]
    Independent,
    /// The result of the one before.
    Dependent,
    /// The end of all instructions before.
    Fenced,
}

/// A network function: what is done for a packet beside its lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// Nothing.
    #[default]
    None,
    /// Network address translation: addresses, ports and checksums are written.
    Nat,
    /// Passive asset detection in the manner of prads: a host's record is kept.
    Assets,
    /// A packet filter: a rule's counters are kept, and its verdict.
    Filter,
}

/// The work of a core's other thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// There is none.
    #[default]
    None,
    /// Access control: a packet's fields are walked through a trie.
    Acl,
    /// Intrusion detection: an automaton of patterns scans the payload.
    Snort,
    /// A user-level TCP stack: connections are found, their state kept, payload copied.
    Mtcp,
}
