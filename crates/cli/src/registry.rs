//! The kinds that come with the program: the one place that names all kinds of network function.

use std::sync::Arc;

use thalweg_accel::Installed;
use thalweg_chain::Kinds;

/// The kinds that come with the program.
pub fn built_in_kinds() -> Kinds {
    Kinds::from(thalweg_nf::Kinds::new([
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
    ]))
    .with_devices(Arc::new(Installed::default()))
}
