//! The configuration of a simulation: the machine, the workload, and how long it runs.
//!
//! Defaults are those of Table 2 of the paper (Yuan, Wang, Wang, Huang, "HALO:
//! Accelerating Flow Classification for Scalable Packet Processing in NFV", ISCA 2019)
//! where it has them, else documented values of a Skylake-like server; `docs/sim.md`
//! has the source of each. **No result that the paper claims is among them.**

mod check;
mod workload;

use serde::{Deserialize, Serialize};

pub use check::ConfigError;
pub use workload::{Beside, Function, Method, Pick, Stream, Table, WorkloadConfig};

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long, and from which seed.
    pub sim: SimConfig,
    /// The workload: the lookups and their method.
    pub workload: WorkloadConfig,
    /// The exact-match cache of a switch.
    pub emc: EmcConfig,
    /// The cores.
    pub core: CoreConfig,
    /// The first-level data cache of a core.
    pub l1d: L1dConfig,
    /// The second-level cache of a core.
    pub l2: L2Config,
    /// The last-level cache.
    pub llc: LlcConfig,
    /// The network between the tiles.
    pub mesh: MeshConfig,
    /// Main memory.
    pub dram: DramConfig,
    /// The near-cache accelerators.
    pub halo: HaloConfig,
    /// The ternary memory.
    pub tcam: TcamConfig,
    /// A writer beside readers.
    pub race: RaceConfig,
}

/// A table that is changed while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RaceConfig {
    /// Cores that look up.
    pub readers: usize,
    /// Of all the table's keys, the part that is inserted and removed; the rest stays, and must
    /// be found.
    pub changing: f64,
}

impl Default for RaceConfig {
    fn default() -> Self {
        Self { readers: 4, changing: 0.1 }
    }
}

/// How long, and from which seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimConfig {
    /// Of all that is drawn by chance.
    pub seed: u64,
    /// Lookups before the measured ones.
    pub warmup_lookups: u64,
    /// Lookups that are measured.
    pub measured_lookups: u64,
    /// Parts of them, for the confidence interval.
    pub batches: u64,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { seed: 1, warmup_lookups: 10_000, measured_lookups: 50_000, batches: 20 }
    }
}

/// The exact-match cache of a switch, where `workload.flows` enables one. The defaults are
/// those of Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmcConfig {
    /// Entries.
    pub entries: u64,
    /// A missed flow is cached with a probability of one in this many.
    pub insert_inverse_probability: u64,
}

impl Default for EmcConfig {
    fn default() -> Self {
        Self { entries: 8192, insert_inverse_probability: 100 }
    }
}

/// A core. Sizes in entries, times in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoreConfig {
    /// Clock of the cores, the caches and the mesh.
    pub ghz: f64,
    /// Micro-operations fetched, dispatched and retired a cycle.
    pub width: u32,
    /// Reorder buffer.
    pub rob: usize,
    /// Load queue.
    pub lq: usize,
    /// Store queue.
    pub sq: usize,
    /// Scheduler.
    pub iq: usize,
    /// Arithmetic operations and branches issued a cycle.
    pub alu_ports: u32,
    /// Loads issued a cycle.
    pub load_ports: u32,
    /// Stores issued a cycle.
    pub store_ports: u32,
    /// From fetch to dispatch.
    pub frontend_depth: u64,
    /// From a mispredicted branch's end to the fetch of the right path.
    pub redirect: u64,
    /// Cycles of a fence when all before it is complete.
    pub fence_cycles: u64,
    /// Misses of the first-level cache under way.
    pub mshr: usize,
    /// Operations that decoding makes of one of a program's; what is more than one needs no
    /// other.
    pub operations_each: f64,
    /// Cycles lost by fetch at each new block: after a taken branch, and after as many
    /// operations as a block has.
    pub block_cycles: u64,
    /// Operations of a block, after decoding; 0: only taken branches end one.
    pub block_operations: u32,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            ghz: 2.1,
            width: 4,
            rob: 192,
            lq: 128,
            sq: 128,
            iq: 97,
            alu_ports: 4,
            load_ports: 2,
            store_ports: 1,
            frontend_depth: 8,
            redirect: 6,
            fence_cycles: 33,
            mshr: 20,
            operations_each: 1.0,
            block_cycles: 0,
            block_operations: 0,
        }
    }
}

/// The first-level data cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct L1dConfig {
    /// Size.
    pub kib: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles from a load's issue to its value.
    pub load_to_use: u64,
}

impl Default for L1dConfig {
    fn default() -> Self {
        Self { kib: 32, ways: 8, load_to_use: 5 }
    }
}

/// The second-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct L2Config {
    /// Size.
    pub kib: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles from a load's issue to its value.
    pub load_to_use: u64,
}

impl Default for L2Config {
    fn default() -> Self {
        Self { kib: 1024, ways: 16, load_to_use: 14 }
    }
}

/// The last-level cache: slices, one a tile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlcConfig {
    /// Size of all slices together.
    pub mib: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Slices; as many as the mesh has tiles.
    pub slices: usize,
    /// Cycles in the slice's pipeline before its tags are looked up.
    pub cha_pipeline: u64,
    /// Cycles for tags and data.
    pub tag_data: u64,
    /// Accesses that a slice begins a cycle.
    pub ports_per_slice: u32,
}

impl Default for LlcConfig {
    fn default() -> Self {
        Self { mib: 32, ways: 16, slices: 16, cha_pipeline: 8, tag_data: 12, ports_per_slice: 1 }
    }
}

/// The mesh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeshConfig {
    /// Tiles of a row.
    pub cols: usize,
    /// Rows.
    pub rows: usize,
    /// Cycles from a tile to the next.
    pub hop: u64,
    /// Bytes that a link carries a cycle.
    pub link_bytes: u64,
    /// Cycles from a core's miss to the mesh.
    pub core_egress: u64,
    /// Cycles from the mesh to the core's waiting load.
    pub core_ingress: u64,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self { cols: 4, rows: 4, hop: 2, link_bytes: 32, core_egress: 8, core_ingress: 10 }
    }
}

/// DDR4-2400. Times in clocks of `mhz` but for the controller's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the names of the standard, JESD79-4")]
pub struct DramConfig {
    pub channels: usize,
    pub ranks: usize,
    pub bank_groups: usize,
    pub banks: usize,
    pub mhz: f64,
    pub t_cl: u64,
    pub t_rcd: u64,
    pub t_rp: u64,
    pub t_ras: u64,
    pub t_ccd_l: u64,
    pub t_faw: u64,
    pub t_refi: u64,
    pub t_rfc: u64,
    pub burst: u64,
    pub controller_ns: f64,
}

impl Default for DramConfig {
    fn default() -> Self {
        Self {
            channels: 1,
            ranks: 2,
            bank_groups: 4,
            banks: 4,
            mhz: 1200.0,
            t_cl: 17,
            t_rcd: 17,
            t_rp: 17,
            t_ras: 39,
            t_ccd_l: 6,
            t_faw: 26,
            t_refi: 9360,
            t_rfc: 420,
            burst: 4,
            controller_ns: 10.0,
        }
    }
}

/// Where an accelerator finds the key of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySource {
    /// At the address that the query names.
    #[default]
    ByAddress,
    /// In the query itself.
    Inline,
}

/// How an accelerator fetches both buckets of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BucketFetch {
    /// Both at once.
    #[default]
    Parallel,
    /// The second after the first was searched in vain.
    Sequential,
}

/// The effect of a blocking lookup on the instructions after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocking {
    /// None is dispatched before it is complete.
    #[default]
    Serialise,
    /// They proceed, as after a load.
    LoadLike,
}

/// The near-cache accelerators, one a slice. Times in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaloConfig {
    /// Queries that an accelerator takes in before it is busy.
    pub scoreboard: usize,
    /// Of one table, queries that are under way at the same time.
    pub in_flight_per_table: usize,
    /// Tables whose metadata an accelerator keeps.
    pub metadata_entries: usize,
    /// From the key to its hash.
    pub hash_latency: u64,
    /// Between two hashes that begin.
    pub hash_ii: u64,
    /// Reading metadata that is kept.
    pub metadata_hit: u64,
    /// Comparing the signatures of a bucket.
    pub sig_compare: u64,
    /// Comparing a key.
    pub key_compare: u64,
    /// Decoding a query.
    pub decode: u64,
    /// Making a result ready.
    pub commit: u64,
    /// Where the key is.
    pub key_source: KeySource,
    /// How buckets are fetched.
    pub bucket_fetch: BucketFetch,
    /// The effect of a blocking lookup on the core.
    pub blocking: Blocking,
    /// Lookups that do not block, issued before their results are requested.
    pub nb_batch: u64,
    /// Cycles after which a core that found a line locked retries.
    pub snoop_miss_retry: u64,
}

impl Default for HaloConfig {
    fn default() -> Self {
        Self {
            scoreboard: 10,
            in_flight_per_table: 10,
            metadata_entries: 10,
            hash_latency: 8,
            hash_ii: 1,
            metadata_hit: 1,
            sig_compare: 1,
            key_compare: 1,
            decode: 1,
            commit: 1,
            key_source: KeySource::ByAddress,
            bucket_fetch: BucketFetch::Parallel,
            blocking: Blocking::Serialise,
            nb_batch: 8,
            snoop_miss_retry: 20,
        }
    }
}

/// The ternary memories, one beyond the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcamConfig {
    /// A search of the ternary memory.
    pub search_cycles: u64,
    /// A search of one built from static memory.
    pub sram_search_cycles: u64,
}

impl Default for TcamConfig {
    fn default() -> Self {
        Self { search_cycles: 4, sram_search_cycles: 6 }
    }
}
