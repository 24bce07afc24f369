//! A checked and loaded chain file, ready to run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexSet;
use thalweg_classify::{Config, RuleTable, SharedRules};
use thalweg_cpu::SystemMemory;
use thalweg_nf::device::Launches;
use thalweg_nf::{Environment, Seed, Steering};
use thalweg_packet::{Nanoseconds, Pool};
use thalweg_source::{Passage, Source, SourceError};

use super::classes::{classes, type_names};
use super::cores::{self, Findings};
use super::device;
use super::file::{ChainFile, Class, NfSection, Placed};
use super::files::Files;
use super::include::Texts;
use super::memory::make_pool;
use super::names::{self, Names};
use super::needs::Needs;
use super::nfs::{NfPlan, build_nfs};
use super::opening;
use super::parts;
use super::paths::{is_in_memory, read_named};
use super::ports::{self, INPUT, InputPlan, MergeBy, OUTPUT, OutputPlan};
use super::routes::{Routes, read_paths, read_routes};
use super::succession::Fixed;
use crate::kinds::Kinds;
use crate::routing::Routing;
use crate::workers::Workers;

/// How to load a chain file.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    /// Write no files: the chain is only shown or traced.
    pub dry_run: bool,
    /// Treat warnings as mistakes.
    pub strict: bool,
    /// Open no outputs: whether this would be permitted is not checked.
    pub without_outputs: bool,
    /// Accept interfaces and cores that this machine does not have: the chain is for another one.
    pub any_interface: bool,
}

/// A chain file, checked as a whole and loaded; no thread is started.
pub struct Plan {
    /// The chain file.
    pub source: Source,
    /// The kinds that the file may name, for a reload.
    pub kinds: Kinds,
    /// What a reload cannot change.
    fixed: Fixed,
    /// The inputs, by port index.
    pub inputs: Vec<InputPlan>,
    /// The outputs, by port index.
    pub outputs: Vec<OutputPlan>,
    /// The NFs, by index.
    pub nfs: Vec<NfPlan>,
    /// The names of the packet types, by number.
    pub types: IndexSet<String>,
    /// The rules that give a packet its type.
    pub rules: Arc<SharedRules>,
    /// The sizes of the classifier's caches.
    pub classifier: Config,
    /// The routes.
    pub routing: Arc<Routing>,
    /// Worker threads.
    pub workers: usize,
    /// The core of each worker, by its number, and perhaps more; empty for any.
    pub cores: Vec<u32>,
    /// The order of packets of several captures.
    pub merge: MergeBy,
    /// How long live inputs are polled without a packet before a worker sleeps.
    pub poll: Duration,
    /// The user that a run started by root becomes, and the place of the name.
    pub user: Option<(String, Passage)>,
    /// The packet memory.
    pub pool: Arc<Pool>,
    /// Whether devices may do their work in launches.
    pub launches: Launches,
    /// The files that the chain reads and writes.
    pub files: Files,
    notes: Vec<SourceError>,
}

impl Plan {
    /// Loads the chain file at `path`, whose ports and NFs are of `kinds`, and all files it names.
    ///
    /// # Errors
    /// Every mistake found, with its place; with `strict`, else every warning.
    pub fn load(
        path: &Path,
        kinds: &Kinds,
        options: PlanOptions,
    ) -> Result<Self, Vec<SourceError>> {
        let text = Source::read(path).map_err(|e| vec![e])?;
        Self::of_text(&text, kinds, options)
    }

    /// Loads the chain file `text` as [`load`](Self::load) does. Without a path it is a text in
    /// memory: paths in it are relative to the current folder, and a reload uses the same text.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_text(
        text: &Source,
        kinds: &Kinds,
        options: PlanOptions,
    ) -> Result<Self, Vec<SourceError>> {
        Self::build(text, kinds, options, None)
    }

    /// Loads the chain file `text`, to take the place of the plan that is `running`, if one is.
    pub(super) fn build(
        text: &Source,
        kinds: &Kinds,
        options: PlanOptions,
        running: Option<&Self>,
    ) -> Result<Self, Vec<SourceError>> {
        let texts = Texts::new();
        let mut file = parts::read(text, &texts, kinds)?;
        let source = file.source.clone();
        let mut errors = std::mem::take(&mut file.errors);
        names::check(&file, &mut errors);
        if let Some(running) = running {
            running.fixed.check(&file, &mut errors);
        }
        let mut names = names_of(&file);
        let (mut files, mut notes) = (Files::new(), Vec::new());
        let workers = check_workers(&file, &mut errors);
        let mut findings = Findings { notes: &mut notes, errors: &mut errors };
        let cores = cores::check(&file, workers, options.any_interface, &mut findings);
        let opens = !options.without_outputs;
        let loader = ports::Loader {
            root: &source,
            kinds: &kinds.ports,
            any_device: options.any_interface,
            files: &mut files,
            notes: &mut notes,
            errors: &mut errors,
        };
        let (inputs, outputs) = load_ports(loader, &mut file, opens);
        let types = type_names(&file).into_iter().collect::<Vec<_>>();
        let interfaces = interfaces(&outputs);
        let environment = Environment {
            inputs: &names.inputs,
            outputs: &names.outputs,
            interfaces: &interfaces,
            types: &types,
            dry_run: options.dry_run,
            seed: Seed(file.run.seed),
            open_files: running.map_or(&[], |plan| plan.files.outputs_of_nfs()),
            steering: Steering::default(),
        };
        let sections = std::mem::take(&mut file.nfs);
        let mut nfs = build_nfs(sections, &environment, &mut files, &mut errors);
        let usable = device::usable(kinds, options);
        let memory = running.is_none().then_some(&file.memory);
        let launches = device::launches(&file.memory, &mut errors);
        let device = device::check(&mut nfs, memory, (usable, launches), kinds, &mut errors);
        files.check(&mut errors);
        if opens {
            files.check_access(&mut errors);
        }
        let classes = classes(&file, &names.inputs, &mut errors);
        names.types.clone_from(&classes.types);
        let routes = load_routes(&file, &names, &mut errors);
        let poll = check_poll(&file, &mut errors);
        let classifier = classifier_config(&file, &mut errors);
        let pool = match running {
            Some(running) => running.pool_for(&file, &nfs, &mut errors),
            None => make_pool(
                &file.memory,
                device.map(|own_name| (own_name, usable)),
                launches,
                (&*inputs, &*outputs),
                &nfs,
                &mut notes,
                &mut errors,
            ),
        };
        if let Some(pool) = &pool {
            let ports = (&*inputs, &*outputs);
            let is_elsewhere = options.any_interface;
            opening::check_memory(&file.memory, pool, ports, is_elsewhere, &mut errors);
        }
        if running.is_none() && opens && !options.any_interface {
            check_memory(&nfs, pool.as_deref(), options.dry_run, &mut notes, &mut errors);
        }
        let (Some(routes), Some(pool), true) = (routes, pool, errors.is_empty()) else {
            sort(&mut errors, &source);
            return Err(errors);
        };
        let numbers = (nfs.len(), outputs.len(), classes.types.len());
        let routing = Arc::new(routing(routes, &file, numbers, &mut notes));
        let rules = shared_rules(classes.table, file.run.seed);
        let plan = Self {
            source,
            kinds: kinds.clone(),
            fixed: Fixed::of(&file),
            inputs,
            outputs,
            nfs,
            types: classes.types,
            rules,
            classifier,
            routing,
            workers,
            cores,
            merge: file.run.merge,
            poll,
            user: user_of(&file),
            pool,
            launches,
            files,
            notes,
        };
        let warnings = if options.strict { plan.warnings() } else { Vec::new() };
        if warnings.is_empty() { Ok(plan) } else { Err(warnings) }
    }

    /// The requests of the file that are not supported, each with its place, and the resources
    /// that the system could not provide.
    pub fn warnings(&self) -> Vec<SourceError> {
        let unsupported = self.nfs.iter().flat_map(|nf| nf.blueprint.warnings());
        unsupported.chain(&self.notes).cloned().collect()
    }

    /// The packet memory, if its frames are large enough for `nfs`.
    fn pool_for(
        &self,
        file: &ChainFile<'_>,
        nfs: &[NfPlan],
        errors: &mut Vec<SourceError>,
    ) -> Option<Arc<Pool>> {
        let size = self.pool.frame_size();
        let is_chosen = file.memory.frame_size.is_some();
        let too_large = |nf: &&NfPlan| !is_chosen && nf.blueprint.frame_size() > size;
        if let Some(nf) = nfs.iter().find(too_large) {
            let message = format!("the running chain's frames are too small for NF '{}'", nf.name);
            let needed = nf.blueprint.frame_size();
            let expected =
                format!("NFs with frames of up to {size} bytes, not {needed}; or a restart");
            errors.push(file.source.error(0..0, message, expected));
            return None;
        }
        Some(self.pool.clone())
    }
}

/// Adds a mistake, or a warning in a dry run, if the tables of the NFs can never fit into the memory
/// of this machine, and a warning if they do not fit now.
fn check_memory(
    nfs: &[NfPlan],
    pool: Option<&Pool>,
    dry_run: bool,
    notes: &mut Vec<SourceError>,
    errors: &mut Vec<SourceError>,
) {
    let frames = pool.map_or(0, |pool| pool.memory().len() as u64);
    let tables = nfs.iter().map(|nf| (nf, nf.blueprint.memory()));
    let (needs, memory) = (Needs::of(tables, frames), SystemMemory::read());
    match needs.beyond_all(memory) {
        Some(mistake) if dry_run => notes.push(mistake),
        Some(mistake) => errors.push(mistake),
        None if dry_run => {}
        None => notes.extend(needs.beyond_available(memory)),
    }
}

/// The user that a run becomes, and the place of the name.
fn user_of(file: &ChainFile<'_>) -> Option<(String, Passage)> {
    let user = file.run.user.as_ref()?;
    Some((user.get_ref().clone(), Passage::new(&file.run.source, user.span())))
}

fn names_of(file: &ChainFile<'_>) -> Names {
    // A kind that is not known, a mistake of its own, may choose.
    let chooses = |nf: &NfSection<'_>| nf.kind.is_none_or(|kind| kind.chooses_output);
    Names {
        types: IndexSet::new(),
        nfs: file.nfs.iter().map(|nf| nf.name.clone()).collect(),
        choosers: file.nfs.iter().map(chooses).collect(),
        inputs: file.inputs.iter().map(|input| input.0.get_ref().clone()).collect(),
        outputs: file.outputs.iter().map(|output| output.0.get_ref().clone()).collect(),
    }
}

/// Adds the files that make the chain.
fn add_files_read(file: &ChainFile<'_>, files: &mut Files) {
    if !is_in_memory(&file.source) {
        files.read(file.source.path(), "the chain file");
    }
    for path in &file.included {
        files.read(path, "a file that the chain file includes");
    }
    if let Some(routes) = &file.routes {
        files.read(&routes.source.resolve(routes.get_ref()), "the routes file");
    }
    for Placed { source, part: class } in &file.classes {
        let Class { file, classbench, r#type, .. } = class.get_ref();
        for path in file.iter().chain(classbench) {
            let what = format!("the rules file of type '{}'", r#type.get_ref());
            files.read(&source.resolve(path.get_ref()), what);
        }
    }
}

/// The routing of packets by `routes`, with these numbers of NFs, outputs and types; notes routes
/// that are never used.
fn routing(
    routes: Routes,
    file: &ChainFile<'_>,
    (nfs, outputs, types): (usize, usize, usize),
    notes: &mut Vec<SourceError>,
) -> Routing {
    let Routes { decider, order, unused, .. } = routes;
    notes.extend(unused);
    let decapsulate = file.classify.decapsulate.0;
    Routing { routes: decider, order, nfs, outputs, types, decapsulate }
}

fn load_routes(
    file: &ChainFile<'_>,
    names: &Names,
    errors: &mut Vec<SourceError>,
) -> Option<Routes> {
    let read = match &file.routes {
        // Reported: there are paths too.
        Some(_) if !file.paths.is_empty() => return None,
        Some(routes) => {
            let table = read_named(&routes.source, routes, "a readable routes file", errors)?;
            read_routes(&table, names)
        }
        None if file.paths.is_empty() => return None,
        None => read_paths(&file.source, &file.paths, names),
    };
    match read {
        Ok(routes) => Some(routes),
        Err(more) => {
            errors.extend(more);
            None
        }
    }
}

/// Loads the inputs and outputs of a file; `opens` if the outputs are opened.
fn load_ports(
    mut loader: ports::Loader<'_>,
    file: &mut ChainFile<'_>,
    opens: bool,
) -> (Vec<InputPlan>, Vec<OutputPlan>) {
    let inputs = loader.load(&INPUT, std::mem::take(&mut file.inputs), true);
    ports::check_paces(&inputs, file.run.merge, loader.errors);
    add_files_read(file, loader.files);
    let outputs = loader.load(&OUTPUT, std::mem::take(&mut file.outputs), opens);
    opening::check_neighbours(&inputs, &outputs, loader.errors);
    (inputs, outputs)
}

fn shared_rules(table: RuleTable, seed: Option<u64>) -> Arc<SharedRules> {
    Arc::new(match seed {
        Some(seed) => SharedRules::with_seed(table, seed),
        None => SharedRules::new(table),
    })
}

fn check_workers(file: &ChainFile<'_>, errors: &mut Vec<SourceError>) -> usize {
    let workers = &file.run.workers;
    if !workers.get_ref().is_possible() {
        let (message, expected) = ("bad number of workers", Workers::EXPECTED);
        errors.push(file.run.source.error(workers.span(), message, expected));
    }
    file.run.number_of_workers()
}

fn check_poll(file: &ChainFile<'_>, errors: &mut Vec<SourceError>) -> Duration {
    const MOST_US: u32 = 1_000_000;
    let poll = &file.run.poll_us;
    if *poll.get_ref() > MOST_US {
        let (message, expected) = ("polls last too long", "at most 1000000 microseconds");
        errors.push(file.run.source.error(poll.span(), message, expected));
    }
    Duration::from_micros((*poll.get_ref()).into())
}

/// Sorts mistakes by file, the chain file first, and by position: a line would have to be counted.
fn sort(errors: &mut [SourceError], chain: &Source) {
    errors.sort_by(|a, b| {
        let [a, b] = [a, b].map(|e| {
            let file = e.source_file().path();
            (file != chain.path(), file, e.span().start)
        });
        a.cmp(&b)
    });
}

/// The system's interface of each output; empty for one without.
fn interfaces(outputs: &[OutputPlan]) -> Vec<String> {
    outputs.iter().map(|output| output.blueprint.interface().unwrap_or("").to_owned()).collect()
}

fn classifier_config(file: &ChainFile<'_>, errors: &mut Vec<SourceError>) -> Config {
    let c = &file.classify;
    if *c.emc_entries.get_ref() > 1 << 20 {
        let message = "exact-match cache too large";
        errors.push(c.source.error(c.emc_entries.span(), message, "0 to 1048576 entries"));
    }
    Config {
        emc_entries: *c.emc_entries.get_ref(),
        emc_insert_inverse_probability: c.emc_insert_inverse_probability,
        emc_adaptive: c.emc_adaptive,
        megaflow_limit: c.megaflow_limit,
        megaflow_adaptive: c.megaflow_adaptive,
        idle_timeout: Nanoseconds::from_millis(c.idle_timeout_ms),
        ..Config::default()
    }
}
