//! NF `l7fw`: a firewall by application, category and host, which nDPI recognises.

// Without the library nothing is recognised; what rules are is known nevertheless.
#[cfg_attr(not(feature = "ndpi"), allow(dead_code))]
mod application;
mod config;
#[cfg(feature = "ndpi")]
mod firewall;
#[cfg(feature = "ndpi")]
mod flows;
#[cfg(feature = "ndpi")]
mod labels;
#[cfg(feature = "ndpi")]
mod ndpi;
#[cfg(feature = "ndpi")]
mod report;

use config::Options;
use thalweg_nf::Kind;

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "l7fw",
    summary: "firewall by application, category and host (nDPI)",
    state: Some("flows whose application is known, with what was recognised"),
    limits: &[
        "needs the feature ndpi (Debian's libndpi-dev 4.2)",
        "fragments are not looked at; they pass, whatever rules say",
        "a flow whose application is not known yet takes about 1 KiB, besides what nDPI gathers of \
         TLS handshakes; another instance begins with it anew",
        "max_flows flows: of more, the half used longest ago goes",
    ],
    chooses_output: false,
    options: || schemars::schema_for!(Options),
    #[cfg(feature = "ndpi")]
    build: firewall::build,
    #[cfg(not(feature = "ndpi"))]
    build: without_library,
};

/// Says that there is no library in this program.
#[cfg(not(feature = "ndpi"))]
fn without_library(
    section: &thalweg_nf::Section<'_>,
    _environment: &thalweg_nf::Environment<'_>,
) -> Result<Box<dyn thalweg_nf::Blueprint>, thalweg_nf::BuildError> {
    let _: Options = section.parse()?;
    let message = "this program was built without nDPI";
    Err(section.error(section.span(), message, "one built with the feature ndpi").into())
}

#[cfg(all(test, feature = "ndpi"))]
mod tests;
