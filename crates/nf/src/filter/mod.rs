//! To be written: filter.

use crate::{Blueprint, BuildError, Environment, Section};

pub(crate) fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    Err(section.error(section.span(), "not built yet", "another kind").into())
}
