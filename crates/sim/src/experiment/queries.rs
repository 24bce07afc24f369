//! The queries of an accelerator with the table that they search, as text, for building
//! the accelerator (`rtl/`).

use std::fmt::Write;

use crate::config::{BucketFetch, Config, ConfigError, KeySource, Method, Table};

use super::lookups::Lookups;

/// Simulates `config`, with keys of 16 bytes at their addresses in one cuckoo table, and gives
/// a line for each thing:
///
/// - `table BUCKETS SEED BUCKET-BASE SLOT-BASE SLOT-BYTES METADATA`,
/// - `bucket NUMBER` and eight times `SIGNATURE KEY`,
/// - `query ARRIVED KEY KEY-ADDRESS FOUND AT` and, for each read, `ADDRESS LATENCY`.
///
/// Addresses, the seed and signatures are hexadecimal.
///
/// # Errors
/// When it cannot be simulated.
///
/// # Panics
/// When `config` is of a method that has no accelerator.
pub fn queries(config: &Config) -> Result<String, ConfigError> {
    let mut config = config.clone();
    (config.workload.tuples, config.workload.key_bytes) = (1, 16);
    (config.workload.table, config.workload.flows) = (Table::Cuckoo, 0);
    (config.halo.key_source, config.halo.bucket_fetch) =
        (KeySource::ByAddress, BucketFetch::Parallel);
    config.check()?;
    assert!(matches!(config.workload.method, Method::HaloBlocking | Method::HaloNonBlocking));
    let (world, recorded) = Lookups::new(&config).record();
    let table = &world.tables[0];
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("text takes all");
    line(format!(
        "table {} {:x} {:x} {:x} 32 {:x}",
        table.buckets(),
        table.seed(),
        table.bucket(0).0,
        table.slot(0).0,
        table.metadata(0).0
    ));
    for bucket in 0..table.buckets() {
        let entries = table.entries(bucket).map(|(signature, key)| format!("{signature:x} {key}"));
        line(format!("bucket {bucket} {}", entries.collect::<Vec<_>>().join(" ")));
    }
    for query in recorded {
        let reads = query.reads.iter().map(|read| format!("{:x} {}", read.address.0, read.latency));
        line(format!(
            "query {} {} {:x} {} {} {}",
            query.arrived,
            query.key,
            query.key_address.0,
            u8::from(query.found),
            query.at,
            reads.collect::<Vec<_>>().join(" ")
        ));
    }
    Ok(text)
}
