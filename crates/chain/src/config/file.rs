//! The shape of `chain.toml`.

use std::ops::Range;

use indexmap::IndexMap;
use serde::Deserialize;
use thalweg_classify::source::{Source, SourceError};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The chain file without its NF sections, whose shape each NF knows itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainFile {
    #[serde(default)]
    pub(super) run: Run,
    #[serde(default)]
    pub(super) memory: Memory,
    #[serde(default)]
    pub(super) classify: Classify,
    #[serde(default)]
    pub(super) input: IndexMap<Spanned<String>, Spanned<Input>>,
    #[serde(default)]
    pub(super) output: IndexMap<Spanned<String>, Spanned<Output>>,
    #[serde(default)]
    pub(super) default_type: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) class: Vec<Spanned<Class>>,
    pub(super) routes: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Run {
    pub(super) workers: Spanned<usize>,
}

impl Default for Run {
    fn default() -> Self {
        Self { workers: Spanned::new(0..0, 1) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Memory {
    pub(super) frame_size: Spanned<usize>,
    pub(super) frames: Spanned<usize>,
    pub(super) huge_pages: bool,
}

impl Default for Memory {
    fn default() -> Self {
        let size = thalweg_packet::DEFAULT_FRAME_SIZE;
        Self {
            frame_size: Spanned::new(0..0, size),
            frames: Spanned::new(0..0, 8192),
            huge_pages: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Classify {
    pub(super) emc_entries: Spanned<usize>,
    pub(super) emc_insert_inverse_probability: u32,
    pub(super) megaflow_limit: usize,
    pub(super) idle_timeout_ms: u64,
    pub(super) decapsulate: bool,
}

impl Default for Classify {
    fn default() -> Self {
        let config = thalweg_classify::Config::default();
        Self {
            emc_entries: Spanned::new(0..0, config.emc_entries),
            emc_insert_inverse_probability: config.emc_insert_inverse_probability,
            megaflow_limit: config.megaflow_limit,
            idle_timeout_ms: config.idle_timeout.0 / 1_000_000,
            decapsulate: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub(super) capture: Option<Spanned<String>>,
    pub(super) generate: Option<Spanned<thalweg_io::generate::Spec>>,
    #[serde(default = "one")]
    pub(super) r#loop: u64,
    #[serde(default)]
    pub(super) memory: bool,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    pub(super) capture: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) discard: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) r#type: Spanned<String>,
    #[serde(default)]
    pub(super) rules: Vec<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) classbench: Option<Spanned<String>>,
}

/// An NF section: what every NF has, and the rest for its kind.
#[derive(Debug)]
pub(super) struct NfSection<'a> {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) kind_span: Range<usize>,
    pub(super) pinned: bool,
    pub(super) options: Spanned<DeValue<'a>>,
    pub(super) span: Range<usize>,
}

/// Reads the chain file: its fixed part, and its NF sections in order.
pub(super) fn read(source: &Source) -> Result<(ChainFile, Vec<NfSection<'_>>), Vec<SourceError>> {
    let one = |e: &toml::de::Error| {
        let span = e.span().unwrap_or(0..0);
        vec![source.error(span, e.message(), "a chain file as docs/chain-file.md describes it")]
    };
    let document = DeTable::parse(source.text()).map_err(|e| one(&e))?;
    let span = document.span();
    let mut table = document.into_inner();
    let at = table.keys().find(|k| k.get_ref() == "nf").cloned();
    let nfs = match at.and_then(|key| table.remove(&key)) {
        Some(value) => sections(source, value)?,
        None => Vec::new(),
    };
    let rest = Spanned::new(span, DeValue::Table(table));
    let file = ChainFile::deserialize(ValueDeserializer::from(rest)).map_err(|e| one(&e))?;
    Ok((file, nfs))
}

fn sections<'a>(
    source: &Source,
    value: Spanned<DeValue<'a>>,
) -> Result<Vec<NfSection<'a>>, Vec<SourceError>> {
    let expected = "a section [nf.NAME] for each network function";
    let span = value.span();
    let DeValue::Table(table) = value.into_inner() else {
        return Err(vec![source.error(span, "'nf' is no table", expected)]);
    };
    let (mut nfs, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in table {
        match section(source, &name, value) {
            Ok(nf) => nfs.push(nf),
            Err(e) => errors.push(e),
        }
    }
    // The parser sorts keys; a reader expects the order of the file.
    nfs.sort_by_key(|nf| nf.span.start);
    if errors.is_empty() { Ok(nfs) } else { Err(errors) }
}

fn section<'a>(
    source: &Source,
    name: &Spanned<toml::de::DeString<'a>>,
    value: Spanned<DeValue<'a>>,
) -> Result<NfSection<'a>, SourceError> {
    let span = name.span();
    let value_span = value.span();
    let DeValue::Table(mut table) = value.into_inner() else {
        return Err(source.error(span, "this is no section", "a section [nf.NAME]"));
    };
    let mut take = |key: &str| {
        let at = table.keys().find(|k| k.get_ref() == key).cloned()?;
        table.remove(&at)
    };
    let (kind, kind_span) = match take("kind").map(|v| (v.span(), v.into_inner())) {
        Some((at, DeValue::String(kind))) => (kind.into_owned(), at),
        Some((at, _)) => return Err(source.error(at, "'kind' is no text", "kind = \"router\"")),
        None => {
            let kinds: Vec<_> = thalweg_nf::KINDS.iter().map(|(k, _)| *k).collect();
            let expected = format!("kind = \"...\": one of {}", kinds.join(", "));
            return Err(source.error(
                span,
                format!("NF '{}' has no kind", name.get_ref()),
                expected,
            ));
        }
    };
    let pinned = match take("pinned").map(|v| (v.span(), v.into_inner())) {
        Some((_, DeValue::Boolean(pinned))) => pinned,
        Some((at, _)) => {
            return Err(source.error(at, "'pinned' is no truth value", "true or false"));
        }
        None => false,
    };
    Ok(NfSection {
        name: name.get_ref().to_string(),
        kind,
        kind_span,
        pinned,
        options: Spanned::new(value_span, DeValue::Table(table)),
        span,
    })
}
