//! The chain file, its routes.csv, and a file that options can name; separated by zero bytes.

use thalweg_chain::{Kinds, Plan, PlanOptions};

/// Loads a chain file with its routes, as `thalweg check` does.
pub fn configuration(data: &[u8]) {
    let mut parts = data.splitn(3, |b| *b == 0);
    let (chain, routes) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    // Sizes beyond this only ask for memory.
    if chain.windows(7).any(|w| w.iter().all(u8::is_ascii_digit)) {
        return;
    }
    let kinds = Kinds::from(thalweg_nf::Kinds::new([
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
    ]));
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("chain.toml");
    std::fs::write(&path, chain).expect("the file can be written");
    std::fs::write(folder.path().join("routes.csv"), routes).expect("the file can be written");
    if let Some(file) = parts.next() {
        std::fs::write(folder.path().join("file.txt"), file).expect("the file can be written");
    }
    match Plan::load(&path, &kinds, PlanOptions { dry_run: true, ..PlanOptions::default() }) {
        Ok(plan) => assert!(!plan.graph().to_tree().is_empty()),
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.span().end <= error.source_file().text().len());
                assert!(!error.to_string().is_empty());
            }
        }
    }
}
