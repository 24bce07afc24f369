//! The chain file and its routes.csv, separated by a zero byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_chain::{Plan, PlanOptions};
use thalweg_nf::Kinds;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |b| *b == 0);
    let (chain, routes) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    // Larger sizes only allocate memory.
    if chain.windows(7).any(|w| w.iter().all(u8::is_ascii_digit)) {
        return;
    }
    let kinds = Kinds::new([
        thalweg_acl::KIND,
        thalweg_assets::KIND,
        thalweg_defrag::KIND,
        thalweg_filter::KIND,
        thalweg_ipsec::KIND,
        thalweg_l7fw::KIND,
        thalweg_monitor::KIND,
        thalweg_nat::KIND,
        thalweg_nids::KIND,
        thalweg_refrag::KIND,
        thalweg_router::KIND,
        thalweg_tunnel::KIND,
    ]);
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("chain.toml");
    std::fs::write(&path, chain).expect("the file can be written");
    std::fs::write(folder.path().join("routes.csv"), routes).expect("the file can be written");
    match Plan::load(&path, &kinds, PlanOptions { dry_run: true }) {
        Ok(plan) => assert!(!plan.graph().to_tree().is_empty()),
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.span().end <= error.source_file().text().len());
                assert!(!error.to_string().is_empty());
            }
        }
    }
});
