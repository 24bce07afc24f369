//! A chain file, checked and loaded, ready to run.

use std::path::Path;
use std::sync::Arc;

use indexmap::IndexSet;
use thalweg_classify::source::{Source, SourceError};
use thalweg_classify::{Config, SharedRules};
use thalweg_nf::{Blueprint, Environment, Section, Sharing};
use thalweg_packet::{Decapsulate, HEADROOM, MAX_FRAME_SIZE, Nanoseconds, PacketMemory, Pool};

use super::classes::classes;
use super::file::{self, ChainFile, Memory, NfSection};
use super::ports::{InputPlan, OutputPlan, inputs, outputs, resolve};
use super::routes::{Names, Routes, routes};
use crate::graph::Graph;
use crate::worker::Routing;

/// How to load a chain file.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    /// Write no files: the chain is only looked at or traced.
    pub dry_run: bool,
}

/// An NF of a plan.
pub(crate) struct NfPlan {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) pinned: bool,
    pub(crate) blueprint: Box<dyn Blueprint>,
}

/// A chain file, checked as a whole and loaded; nothing is started.
pub struct Plan {
    pub(crate) source: Source,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) outputs: Vec<OutputPlan>,
    pub(crate) nfs: Vec<NfPlan>,
    pub(crate) types: IndexSet<String>,
    pub(crate) rules: Arc<SharedRules>,
    pub(crate) classifier: Config,
    pub(crate) routing: Arc<Routing>,
    pub(crate) workers: usize,
    pub(crate) pool: Arc<Pool>,
    pub(crate) notes: Vec<String>,
}

impl Plan {
    /// Loads the chain file at `path`, and all files it names.
    ///
    /// # Errors
    /// Every mistake found, with its place.
    pub fn load(path: &Path) -> Result<Self, Vec<SourceError>> {
        Self::load_with(path, PlanOptions::default())
    }

    /// Like [`load`](Self::load), with options.
    ///
    /// # Errors
    /// Every mistake found, with its place.
    pub fn load_with(path: &Path, options: PlanOptions) -> Result<Self, Vec<SourceError>> {
        let source = Source::read(path).map_err(|e| vec![e])?;
        let (mut file, sections) = file::read(&source)?;
        let mut errors = Vec::new();
        let inputs = inputs(&source, std::mem::take(&mut file.input), &mut errors);
        let outputs = outputs(&source, std::mem::take(&mut file.output), &mut errors);
        let input_names: Vec<_> = inputs.iter().map(|p| p.name.clone()).collect();
        let output_names: Vec<_> = outputs.iter().map(|p| p.name.clone()).collect();
        let environment =
            Environment { inputs: &input_names, outputs: &output_names, dry_run: options.dry_run };
        names_are_unique(&source, &sections, &input_names, &output_names, &mut errors);
        let names: Vec<_> = sections.iter().map(|s| s.name.clone()).collect();
        let nfs = build_nfs(&source, sections, &environment, &mut errors);
        let classes = classes(&source, &file, &input_names, &mut errors);
        let routes = load_routes(
            &source,
            &file,
            &Names {
                types: &classes.types,
                nfs: &names,
                inputs: &input_names,
                outputs: &output_names,
            },
            &mut errors,
        );
        let workers = check_workers(&source, &file, &mut errors);
        let classifier = classifier_config(&source, &file, &mut errors);
        let mut notes = Vec::new();
        let pool = make_pool(&source, &file.memory, &mut notes, &mut errors);
        let (Some(routes), Some(pool), true) = (routes, pool, errors.is_empty()) else {
            return Err(errors);
        };
        let decapsulate =
            if file.classify.decapsulate { Decapsulate::Yes } else { Decapsulate::No };
        let routing = Arc::new(Routing {
            routes: routes.decider,
            order: routes.order,
            outputs: outputs.len(),
            types: classes.types.len(),
            decapsulate,
        });
        let rules = Arc::new(SharedRules::new(classes.table));
        let types = classes.types;
        Ok(Self {
            source,
            inputs,
            outputs,
            nfs,
            types,
            rules,
            classifier,
            routing,
            workers,
            pool,
            notes,
        })
    }

    /// What was understood but is not supported, with its place, and what was
    /// asked for but is not to be had.
    pub fn warnings(&self) -> Vec<String> {
        let unsupported = self.nfs.iter().flat_map(|nf| nf.blueprint.warnings());
        unsupported.map(ToString::to_string).chain(self.notes.iter().cloned()).collect()
    }

    /// The chain as a graph.
    pub fn graph(&self) -> Graph {
        Graph::of(self)
    }

    /// Reads rules and NF tables again and publishes them to running workers.
    /// Routes, ports and NFs stay as they are.
    ///
    /// # Errors
    /// The mistakes in the new files; what they belong to stays as it was.
    pub fn reload(&self) -> Result<(), Vec<SourceError>> {
        let source = Source::read(self.source.path()).map_err(|e| vec![e])?;
        let (file, _) = file::read(&source)?;
        let mut errors = Vec::new();
        let input_names: Vec<_> = self.inputs.iter().map(|p| p.name.clone()).collect();
        let classes = classes(&source, &file, &input_names, &mut errors);
        if classes.types != self.types {
            let message = "packet types cannot change while the chain runs";
            errors.push(source.error(0..0, message, "the same types in the same order"));
        }
        if errors.is_empty() {
            self.rules.publish(classes.table);
        }
        for nf in &self.nfs {
            if let Err(e) = nf.blueprint.reload() {
                errors.extend(e.0);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// NFs that run on workers of their own, given so many workers: those that
    /// are pinned, and those of which there may be only one instance.
    pub(crate) fn is_pinned(&self, nf: &NfPlan, workers: usize) -> bool {
        nf.pinned || workers > 1 && nf.blueprint.sharing() == Sharing::Single
    }
}

fn names_are_unique(
    source: &Source,
    sections: &[NfSection<'_>],
    inputs: &[String],
    outputs: &[String],
    errors: &mut Vec<SourceError>,
) {
    for nf in sections {
        let taken = inputs.contains(&nf.name)
            || outputs.contains(&nf.name)
            || ["ingress", "egress", "drop", "*"].contains(&nf.name.as_str());
        if taken {
            let message = format!("'{}' already means something else in routes", nf.name);
            errors.push(source.error(nf.span.clone(), message, "another name"));
        }
    }
}

fn build_nfs(
    source: &Source,
    sections: Vec<NfSection<'_>>,
    environment: &Environment<'_>,
    errors: &mut Vec<SourceError>,
) -> Vec<NfPlan> {
    let mut nfs = Vec::new();
    for nf in sections {
        if !thalweg_nf::KINDS.iter().any(|(kind, _)| *kind == nf.kind) {
            let known: Vec<_> = thalweg_nf::KINDS.iter().map(|(kind, _)| *kind).collect();
            let message = format!("there is no NF of kind '{}'", nf.kind);
            errors.push(source.error(
                nf.kind_span,
                message,
                format!("one of {}", known.join(", ")),
            ));
            continue;
        }
        let section = Section::new(&nf.name, nf.options, source);
        match thalweg_nf::build(&nf.kind, &section, environment) {
            Ok(blueprint) => {
                let (kind, pinned) = (nf.kind, nf.pinned);
                nfs.push(NfPlan { name: nf.name, kind, pinned, blueprint });
            }
            Err(e) => errors.extend(e.0),
        }
    }
    nfs
}

fn load_routes(
    source: &Source,
    file: &ChainFile,
    names: &Names<'_>,
    errors: &mut Vec<SourceError>,
) -> Option<Routes> {
    let path = resolve(source, file.routes.get_ref());
    let table = match Source::read(&path) {
        Ok(table) => table,
        Err(e) => {
            let message = format!("{}: {}", path.display(), e.message());
            errors.push(source.error(file.routes.span(), message, "a readable routes file"));
            return None;
        }
    };
    match routes(&table, names) {
        Ok(routes) => Some(routes),
        Err(more) => {
            errors.extend(more);
            None
        }
    }
}

fn check_workers(source: &Source, file: &ChainFile, errors: &mut Vec<SourceError>) -> usize {
    let workers = &file.run.workers;
    if !(1..=256).contains(workers.get_ref()) {
        errors.push(source.error(workers.span(), "bad number of workers", "1 to 256"));
    }
    *workers.get_ref()
}

fn classifier_config(source: &Source, file: &ChainFile, errors: &mut Vec<SourceError>) -> Config {
    let c = &file.classify;
    if *c.emc_entries.get_ref() > 1 << 20 {
        let message = "too large an exact-match cache";
        errors.push(source.error(c.emc_entries.span(), message, "0 to 1048576 entries"));
    }
    Config {
        emc_entries: *c.emc_entries.get_ref(),
        emc_insert_inverse_probability: c.emc_insert_inverse_probability,
        megaflow_limit: c.megaflow_limit,
        idle_timeout: Nanoseconds::from_millis(c.idle_timeout_ms),
    }
}

fn make_pool(
    source: &Source,
    memory: &Memory,
    notes: &mut Vec<String>,
    errors: &mut Vec<SourceError>,
) -> Option<Arc<Pool>> {
    let (size, frames) = (*memory.frame_size.get_ref(), *memory.frames.get_ref());
    if !size.is_multiple_of(64) || !(512..=MAX_FRAME_SIZE).contains(&size) {
        let expected =
            format!("a multiple of 64 from 512 to {MAX_FRAME_SIZE}, {HEADROOM} of it headroom");
        errors.push(source.error(memory.frame_size.span(), "bad frame size", expected));
        return None;
    }
    if !(128..=1 << 24).contains(&frames) {
        errors.push(source.error(memory.frames.span(), "bad number of frames", "128 to 16777216"));
        return None;
    }
    let huge = memory.huge_pages.then(|| PacketMemory::huge_pages(size * frames));
    let pool = match huge {
        Some(Ok(region)) => Pool::new(region, size),
        Some(Err(e)) => {
            notes.push(format!("no huge pages for packet memory ({e}); ordinary pages are used"));
            Pool::anonymous(frames, size)
        }
        None => Pool::anonymous(frames, size),
    };
    match pool {
        Ok(pool) => Some(Arc::new(pool)),
        Err(e) => {
            errors.push(source.error(memory.frames.span(), e.to_string(), "less packet memory"));
            None
        }
    }
}
