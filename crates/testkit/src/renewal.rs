//! A configuration that takes the place of another under a running instance, as a reload does it.

use thalweg_nf::toolkit::output::OutputFile;
use thalweg_nf::{Blueprint, BuildError, Environment, Kind, NetworkFunction, Section};

/// Builds an NF whose options are the TOML `text`, as [`Kind::build_in`] does; returns also the files
/// that it writes.
///
/// # Errors
/// Every mistake found, with its place.
pub fn build(
    kind: &Kind,
    text: &str,
    environment: &Environment<'_>,
) -> Result<(Box<dyn Blueprint>, Vec<OutputFile>), BuildError> {
    Section::parse_text(text, |section| {
        let blueprint = (kind.build)(section, environment)?;
        let files = section.clone().into_files().written;
        Ok((blueprint, files.into_iter().map(|(file, _)| file).collect()))
    })
}

/// Builds the NF again, with options `text`, and lets the running instance `nf` of `blueprint` work
/// on with that; `environment` has the files that are open.
///
/// # Errors
/// Every mistake found, with its place; then nothing has changed.
///
/// # Panics
/// When the instance cannot work on.
pub fn renew(
    kind: &Kind,
    text: &str,
    environment: &Environment<'_>,
    blueprint: &mut Box<dyn Blueprint>,
    nf: &mut dyn NetworkFunction,
) -> Result<(), BuildError> {
    let (mut new, _) = build(kind, text, environment)?;
    let renewal = new.renew(&**blueprint).expect("the instance works on");
    *blueprint = new;
    renewal(nf);
    Ok(())
}
