//! The options of an asset detection.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_source::{Source, SourceError};
use toml::Spanned;

use super::fingerprint::{Fingerprints, Loader};
use super::networks::Networks;
use super::table::Limits;
use thalweg_nf::toolkit::output::OutputFile;
use thalweg_nf::{BuildError, Environment, Section};

/// The options of an asset detection.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// A file for the inventory, one host per line of JSON (schema thalweg.assets/1).
    #[schemars(with = "Option<String>")]
    inventory: Option<Spanned<String>>,
    /// Prefixes of the networks whose hosts are recorded; without any, all hosts are.
    #[schemars(with = "Vec<String>")]
    networks: Vec<Spanned<String>>,
    /// Fingerprint files in the project's own format; they take precedence over all others.
    #[schemars(with = "Vec<String>")]
    fingerprints: Vec<Spanned<String>>,
    /// The fingerprint file of p0f 3 (p0f.fp).
    #[schemars(with = "Option<String>")]
    p0f: Option<Spanned<String>>,
    /// The folder with PRADS's files (/etc/prads).
    #[schemars(with = "Option<String>")]
    prads: Option<Spanned<String>>,
    /// Files of Rapid7's recog, or folders of them.
    #[schemars(with = "Vec<String>")]
    recog: Vec<Spanned<String>>,
    /// Whether the built-in fingerprints are used, after all others.
    built_in: bool,
    /// The most hosts.
    #[schemars(with = "usize", range(min = 2, max = 16_777_216))]
    max_hosts: Spanned<usize>,
    /// The most MiB for all hosts.
    #[schemars(with = "usize", range(min = 1, max = 1_048_576))]
    memory_mib: Spanned<usize>,
    /// The most services per host.
    #[schemars(with = "usize", range(min = 1, max = 65_536))]
    max_services: Spanned<usize>,
    /// The most conversations that are watched.
    #[schemars(with = "usize", range(min = 2, max = 67_108_864))]
    max_conversations: Spanned<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inventory: None,
            networks: Vec::new(),
            fingerprints: Vec::new(),
            p0f: None,
            prads: None,
            recog: Vec::new(),
            built_in: true,
            max_hosts: Spanned::new(0..0, 65_536),
            memory_mib: Spanned::new(0..0, 64),
            max_services: Spanned::new(0..0, 128),
            max_conversations: Spanned::new(0..0, 262_144),
        }
    }
}

/// The checked options.
pub(super) struct Config {
    pub(super) inventory: Option<OutputFile>,
    pub(super) limits: Limits,
    pub(super) networks: Networks,
    pub(super) files: Files,
}

/// The sources of fingerprints.
pub(super) struct Files {
    own: Vec<PathBuf>,
    p0f: Option<PathBuf>,
    prads: Option<PathBuf>,
    recog: Vec<PathBuf>,
    built_in: bool,
}

/// The fingerprints, and warnings about lines of other projects' files that were not understood.
pub(super) struct Loaded {
    pub(super) fingerprints: Fingerprints,
    pub(super) warnings: Vec<SourceError>,
}

impl Files {
    /// Reads all files.
    ///
    /// # Errors
    /// Files that cannot be read, and mistakes in those of the project's own format.
    pub(super) fn load(&self) -> Result<Loaded, BuildError> {
        let mut loader = Loader::default();
        let mut errors = Vec::new();
        let mut each = |paths: &[PathBuf], read: fn(&mut Loader, &Source)| {
            for path in paths {
                match Source::read(path) {
                    Ok(source) => read(&mut loader, &source),
                    Err(e) => errors.push(e),
                }
            }
        };
        each(&self.own, Loader::own);
        each(self.p0f.as_slice(), Loader::p0f);
        each(&self.recog, Loader::recog);
        if let Some(folder) = &self.prads
            && !loader.prads(folder)
        {
            let source = Source::new(folder, "");
            let expected = "tcp-syn.fp, tcp-service.sig, ...";
            errors.push(source.error(0..0, "none of PRADS's files are in this folder", expected));
        }
        if self.built_in {
            loader.built_in();
        }
        errors.append(&mut loader.errors);
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        let warnings = std::mem::take(&mut loader.warnings);
        Ok(Loaded { fingerprints: loader.finish(), warnings })
    }
}

/// Checks the options of `section`.
///
/// # Errors
/// All mistakes in them.
pub(super) fn read(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Config, BuildError> {
    let options: Options = section.parse()?;
    let mut errors = Vec::new();
    let mut within = |value, range| section.in_range(value, range, &mut errors);
    let limits = Limits {
        hosts: within(&options.max_hosts, 2..=1 << 24),
        memory: within(&options.memory_mib, 1..=1 << 20) << 20,
        services: within(&options.max_services, 1..=1 << 16),
        conversations: within(&options.max_conversations, 2..=1 << 26),
    };
    let mut networks = Networks::default();
    for prefix in &options.networks {
        if let Err(e) = networks.add(prefix.get_ref()) {
            errors.push(section.error(prefix.span(), e, "a prefix such as 10.0.0.0/8"));
        }
    }
    let mut recog = Vec::new();
    for path in &options.recog {
        match xml_files(&section.resolve(path.get_ref())) {
            Ok(files) => recog.extend(files),
            Err(e) => {
                errors.push(section.error(path.span(), e, "an XML file or a folder of XML files"));
            }
        }
    }
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let resolve = |path: &Spanned<String>| section.resolve(path.get_ref());
    Ok(Config {
        inventory: section.replaced_output(options.inventory.as_ref(), environment)?,
        limits,
        networks,
        files: Files {
            own: options.fingerprints.iter().map(resolve).collect(),
            p0f: options.p0f.as_ref().map(resolve),
            prads: options.prads.as_ref().map(resolve),
            recog,
            built_in: options.built_in,
        },
    })
}

/// The file, or the XML files of the folder, ordered by name.
fn xml_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|e| format!("cannot read the folder: {e}"))?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    let is_xml = |path: &Path| path.extension().is_some_and(|e| e == "xml");
    let is_gz = |path: &Path| path.extension().is_some_and(|e| e == "gz");
    files.retain(|file| is_xml(file) || is_gz(file) && is_xml(&file.with_extension("")));
    files.sort();
    if files.is_empty() {
        return Err("the folder holds no XML file".into());
    }
    Ok(files)
}
