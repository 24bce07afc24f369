//! The NFs of a plan, and what each was made of.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use thalweg_nf::{Blueprint, Environment, Kind, ReadFile, Section};
use thalweg_source::{Passage, SourceError};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::device::{DevicePlaces, OnDevice};
use super::file::NfSection;
use super::files::Files;
use super::parts;
use super::served::{self, Served};
use crate::overload::Overload;

/// An NF of a plan.
pub struct NfPlan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Whether it runs on a thread of its own.
    pub pinned: bool,
    /// The core of that thread; `None` for any.
    pub core: Option<u32>,
    /// What it does with late packets; `None`: they wait.
    pub overload: Option<Overload>,
    /// The device that does a part of its work.
    pub device: Option<OnDevice>,
    /// Its configuration, from which its instances are made.
    pub blueprint: Arc<dyn Blueprint>,
    /// The place of its name.
    pub(super) place: Passage,
    /// The places of what its section has on its device, if it is on one.
    pub(super) device_places: Option<DevicePlaces>,
    pub(super) origin: Origin,
}

impl NfPlan {
    /// Whether it is served as `other` is.
    pub(super) fn is_served_as(&self, other: &Self) -> bool {
        let served = |nf: &Self| (nf.pinned, nf.core, nf.overload, nf.device.clone());
        served(self) == served(other)
    }
}

/// What an NF was made of: two of one kind and of equal origins are the same.
#[derive(Debug, PartialEq)]
pub(super) struct Origin {
    /// Its options; `None` if they have no form to compare.
    options: Option<toml::Value>,
    /// The names of inputs, outputs, their interfaces and types, if it keeps them.
    names: [Vec<String>; 4],
    /// The files that it read, and a hash of the content of each.
    files: Vec<(PathBuf, Hash)>,
}

/// The hash of a content; `None`, which equals nothing, if the content may have changed since it
/// was read.
#[derive(Debug)]
struct Hash(Option<u64>);

impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() && self.0 == other.0
    }
}

/// How late the times of a file system may be.
const LATE: Duration = Duration::from_millis(20);

pub(super) fn build_nfs(
    sections: Vec<NfSection<'_>>,
    environment: &Environment<'_>,
    files: &mut Files,
    errors: &mut Vec<SourceError>,
) -> Vec<NfPlan> {
    let started = SystemTime::now() - LATE;
    let mut nfs = Vec::new();
    for nf in sections {
        let Some(kind) = nf.kind else { continue };
        let mut environment = *environment;
        if !kind.keeps_names {
            (environment.inputs, environment.outputs) = (&[], &[]);
            (environment.interfaces, environment.types) = (&[], &[]);
        }
        let options = comparable(&nf.options);
        let keys = parts::keys(&nf.options);
        let section = Section::new(&nf.name, nf.options, &nf.source);
        let built = (kind.build)(&section, &environment);
        let named = section.into_files();
        for ReadFile { path, .. } in &named.read {
            files.read(path, format!("the file that NF '{}' reads", nf.name));
        }
        for (file, span) in named.written {
            files.written_by_nf(file, Passage::new(&nf.source, span), &nf.name);
        }
        for (paths, span) in named.renamed {
            files.renamed(paths, Passage::new(&nf.source, span));
        }
        match built {
            Ok(blueprint) => {
                let Served { pinned, core, overload, device } = nf.served;
                let device_places = device.as_ref().map(|keys| keys.places(&nf.source));
                let device = device.map(|keys| keys.device);
                let core = core.map(Spanned::into_inner);
                let blueprint = Arc::from(blueprint);
                let hashed = |ReadFile { path, hash }: ReadFile| {
                    let hash = hash.or_else(|| self::hash(&path, started).ok().flatten());
                    (path, Hash(hash))
                };
                let Environment { inputs, outputs, interfaces, types, .. } = environment;
                let names = [inputs, outputs, interfaces, types];
                let origin = Origin {
                    options,
                    names: names.map(<[String]>::to_vec),
                    files: named.read.into_iter().map(hashed).collect(),
                };
                let (place, name) = (Passage::new(&nf.source, nf.span), nf.name);
                nfs.push(NfPlan {
                    name,
                    kind,
                    pinned,
                    core,
                    overload,
                    device,
                    blueprint,
                    place,
                    device_places,
                    origin,
                });
            }
            Err(e) => errors.extend(e.0.into_iter().map(|e| served::extended(e, &keys, &kind))),
        }
    }
    nfs
}

/// The options without their places.
fn comparable(options: &Spanned<DeValue<'_>>) -> Option<toml::Value> {
    toml::Value::deserialize(ValueDeserializer::from(options.clone())).ok()
}

/// A hash of the content of a file, or of the files in a folder; `None` if it has changed since
/// `started`.
fn hash(path: &Path, started: SystemTime) -> io::Result<Option<u64>> {
    let mut hasher = DefaultHasher::new();
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = path.read_dir()?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        files.sort();
    }
    for file in files.into_iter().filter(|file| file.is_file()) {
        hasher.write(file.as_os_str().as_encoded_bytes());
        let mut content = File::open(&file)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = content.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hasher.write(&buffer[..count]);
        }
        if content.metadata()?.modified()? >= started {
            return Ok(None);
        }
    }
    Ok(Some(hasher.finish()))
}
