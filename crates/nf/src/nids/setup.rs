//! From rule files to what packets are held against.

use std::path::PathBuf;

use thalweg_classify::source::{Source, SourceError};

use super::engine::Engine;
use super::rule::{Variables, load, warnings};
use crate::BuildError;

/// What it takes to read the rules, again too.
pub(super) struct Setup {
    pub(super) variables: Variables,
    /// Rules that ask for what is not supported are mistakes.
    pub(super) refuse: bool,
    pub(super) files: Vec<PathBuf>,
}

pub(super) struct Compiled {
    pub(super) engine: Engine,
    /// How many rules are left out.
    pub(super) unsupported: usize,
    pub(super) warnings: Vec<SourceError>,
}

impl Setup {
    pub(super) fn compile(&self, sources: &[Source]) -> Result<Compiled, BuildError> {
        let mut files: Vec<_> =
            sources.iter().map(|s| (s, load(s, &self.variables, self.refuse))).collect();
        let errors: Vec<_> = files.iter_mut().flat_map(|(_, l)| l.errors.drain(..)).collect();
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        let of_the_set = warnings(&files);
        let (mut rules, mut warnings) = (Vec::new(), Vec::new());
        for (_, loaded) in files {
            rules.extend(loaded.rules);
            warnings.extend(loaded.unsupported);
        }
        let unsupported = warnings.len();
        warnings.extend(of_the_set);
        Ok(Compiled { engine: Engine::new(rules), unsupported, warnings })
    }
}
