//! Compiles rule files into the engine that inspects packets.

use std::collections::BTreeMap;

use thalweg_source::{Source, SourceError, counted};
use toml::Spanned;

use super::engine::Engine;
use super::rule::{Findings, Loaded, Variables, examine, load, summed};
use thalweg_nf::{BuildError, Section};

/// The settings for reading the rules.
pub(super) struct Setup {
    pub(super) variables: Variables,
    /// Whether rules that need an unsupported feature are errors.
    pub(super) refuse: bool,
}

pub(super) struct Compiled {
    pub(super) engine: Engine,
    /// The number of rules that were skipped.
    pub(super) unsupported: usize,
    pub(super) warnings: Vec<SourceError>,
}

impl Setup {
    /// Compiles the rules of `sources`.
    ///
    /// # Errors
    /// The invalid rules, and a set of which no rule is left.
    pub(super) fn compile(&self, sources: &[Source]) -> Result<Compiled, BuildError> {
        let mut files: Vec<_> =
            sources.iter().map(|s| (s, load(s, &self.variables, self.refuse))).collect();
        let of_file = |(_, l): &mut (_, Loaded)| std::mem::take(&mut l.errors).into_vec();
        let mut errors: Vec<_> = files.iter_mut().flat_map(of_file).collect();
        let Findings { errors: more, warnings: of_the_set } = examine(&mut files);
        errors.extend(more.into_vec());
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        let (mut rules, mut skipped, mut oddities) = (Vec::new(), Vec::new(), Vec::new());
        for (_, loaded) in files {
            rules.extend(loaded.rules);
            skipped.extend(loaded.unsupported);
            oddities.extend(loaded.oddities);
        }
        let unsupported = skipped.len();
        let mut warnings = summed(skipped, "rule is skipped", "rules are skipped");
        if rules.is_empty() {
            let skipped = match unsupported {
                0 => String::new(),
                n => format!("; {} skipped", counted(n as u64, "rule")),
            };
            let message = format!("no rules left{skipped}");
            let none = |s: &Source| s.error(0..0, message.as_str(), "at least one supported rule");
            warnings.splice(0..0, sources.first().map(none));
            return Err(BuildError(warnings));
        }
        warnings.extend(summed(oddities, "rule", "rules"));
        warnings.extend(of_the_set);
        Ok(Compiled { engine: Engine::new(rules), unsupported, warnings })
    }
}

/// The default variables, overridden by `own`. Each error in them is added to `errors` once, and
/// not once per rule in `sources`.
pub(super) fn variables(
    section: &Section<'_>,
    own: &BTreeMap<Spanned<String>, Spanned<String>>,
    sources: &[Source],
    errors: &mut Vec<SourceError>,
) -> Variables {
    let plain = own.iter().map(|(name, value)| (name.get_ref().clone(), value.get_ref().clone()));
    let variables = Variables::new(plain);
    let before = errors.len();
    for (name, value) in own {
        if !is_name(name.get_ref()) {
            let expected = "letters, digits and _, without $";
            errors.push(section.error(name.span(), "bad variable name", expected));
        } else if let Some(expected) = variables.mistake(name.get_ref()) {
            errors.push(section.error(value.span(), "bad variable", expected));
        }
    }
    // By default, it is the complement of HOME_NET, which may be empty.
    let external = "EXTERNAL_NET";
    let home = own.iter().find(|(name, _)| name.get_ref() == "HOME_NET");
    if let Some((_, home)) = home
        && errors.len() == before
        && !own.keys().any(|name| name.get_ref() == external)
        && is_used(external, sources)
        && variables.mistake(external).is_some()
    {
        let message = format!("no address is left for {external}, which is !$HOME_NET");
        let expected = format!("fewer addresses, or a definition of {external}");
        errors.push(section.error(home.span(), message, expected));
    }
    variables
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_used(name: &str, sources: &[Source]) -> bool {
    let name = format!("${name}");
    let mut lines = sources.iter().flat_map(Source::lines);
    lines.any(|(_, line)| !line.trim_start().starts_with('#') && line.contains(&name))
}
