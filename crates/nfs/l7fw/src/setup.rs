//! From the options of a section to firewalls.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_packet::Nanoseconds;
use thalweg_source::SourceError;

use super::application::{Names, Undecided, Wanted};
use super::config::{Options, RuleOptions};
use super::firewall::Firewall;
use super::flows::{Flows, Limits};
use super::hold::{self, Hold};
use super::host::HostPattern;
use super::inspect::{Inspector, MOST_MEMORY};
use super::ndpi::Library;
use super::rules::{Policy, Rule};
use thalweg_nf::toolkit::output::LineFile;
use thalweg_nf::{Blueprint, BuildError, Environment, NetworkFunction, Section};

pub(super) fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let library = Library::new().ok_or_else(|| {
        section.error(section.span(), "cannot initialise nDPI", "enough memory for its tables")
    })?;
    let names = Names { applications: library.applications(), categories: library.categories() };
    let mut reader = Reader { section, names: &names, errors: Vec::new() };
    let rules = options.rule.iter().map(|rule| reader.rule(rule.get_ref())).collect();
    let limits = reader.limits(&options);
    let hold = reader.hold(&options);
    let flows = options.flows.as_ref();
    let rotation = section.rotation(options.rotate.as_ref(), &[flows], &mut reader.errors);
    if !reader.errors.is_empty() {
        return Err(BuildError(reader.errors));
    }
    let flows = section.output(flows, environment)?;
    let policy = Policy {
        rules,
        default: options.default,
        undecided: options.undecided,
        hold_exceeded: options.hold_exceeded,
        checksums: options.checksums,
        names,
    };
    Ok(Box::new(FirewallBlueprint {
        policy: Arc::new(policy),
        limits,
        hold,
        tells: flows.is_some(),
        file: LineFile::new(flows, rotation),
        library: Mutex::new(Some(library)),
    }))
}

struct Reader<'a> {
    section: &'a Section<'a>,
    names: &'a Names,
    errors: Vec<SourceError>,
}

impl Reader<'_> {
    fn rule(&mut self, options: &RuleOptions) -> Rule {
        let mut rule = Rule {
            action: options.action,
            applications: Vec::new(),
            categories: Vec::new(),
            hosts: Vec::new(),
        };
        for text in &options.application {
            match self.wanted(text.get_ref()) {
                Some(wanted) => rule.applications.push(wanted),
                None => self.unknown(text, "application", &self.names.applications),
            }
        }
        for text in &options.category {
            match self.names.find_category(text.get_ref()) {
                Some(id) => rule.categories.push(id),
                None => self.unknown(text, "category", &self.names.categories),
            }
        }
        for text in &options.host {
            let pattern = HostPattern::new(text.get_ref());
            if pattern.is_none() {
                let expected = "a host such as www.example.com or *.example.com";
                self.errors.push(self.section.error(text.span(), "not a host name", expected));
            }
            rule.hosts.extend(pattern);
        }
        rule
    }

    /// An application, or one over another. Some names contain a dot themselves.
    fn wanted(&self, text: &str) -> Option<Wanted> {
        if let Some(id) = self.names.find_application(text) {
            return Some(Wanted::Any(id));
        }
        text.match_indices('.').find_map(|(at, _)| {
            let master = self.names.find_application(&text[..at])?;
            Some(Wanted::Over(master, self.names.find_application(&text[at + 1..])?))
        })
    }

    fn unknown(&mut self, text: &toml::Spanned<String>, what: &str, names: &[String]) {
        let wanted = text.get_ref().to_ascii_lowercase();
        let near: Vec<_> = names
            .iter()
            .filter(|name| name.to_ascii_lowercase().contains(wanted.get(..3).unwrap_or(&wanted)))
            .take(8)
            .map(String::as_str)
            .collect();
        let expected = if near.is_empty() {
            format!("one of nDPI's {} names, as ndpiReader lists them", names.len())
        } else {
            format!("one of nDPI's names, such as {}", near.join(", "))
        };
        let message = format!("unknown {what}");
        self.errors.push(self.section.error(text.span(), message, expected));
    }

    fn limits(&mut self, options: &Options) -> Limits {
        let (section, errors) = (self.section, &mut self.errors);
        Limits {
            packets: [&options.tcp_packets, &options.other_packets]
                .map(|n| section.in_range(n, 1..=65_535, errors).into()),
            flows: section.in_range(&options.max_flows, 2..=1 << 26, errors),
            idle: Nanoseconds::from_secs(section.in_range(
                &options.idle_timeout_s,
                1..=1 << 32,
                errors,
            )),
        }
    }

    fn hold(&mut self, options: &Options) -> hold::Limits {
        let (section, errors) = (self.section, &mut self.errors);
        hold::Limits {
            packets: section.in_range(&options.hold_packets, 1..=1024, errors) as usize,
            bytes: section.in_range(&options.hold_bytes, 65_536..=1 << 32, errors),
            time: Nanoseconds::from_millis(section.in_range(&options.hold_ms, 1..=60_000, errors)),
        }
    }
}

struct FirewallBlueprint {
    policy: Arc<Policy>,
    limits: Limits,
    hold: hold::Limits,
    /// Whether flows are reported.
    tells: bool,
    file: LineFile,
    /// Created for the names of applications, and used by the instance: creating another takes
    /// milliseconds.
    library: Mutex<Option<Library>>,
}

impl Blueprint for FirewallBlueprint {
    /// # Panics
    /// Without memory for the library's tables.
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(self.firewall())
    }

    fn memory(&self) -> u64 {
        let holds = self.policy.undecided == Undecided::Hold;
        let held = if holds { self.hold.bytes } else { 0 };
        (Flows::bytes(self.limits.flows) + held + MOST_MEMORY) as u64
    }

    fn describe(&self) -> String {
        let applications = self.policy.names.applications.len();
        let rules = thalweg_source::counted(self.policy.rules.len(), "rule");
        format!("{rules}, {applications} known applications")
    }
}

impl FirewallBlueprint {
    fn firewall(&self) -> Firewall {
        let ready = self.library.lock().unwrap_or_else(PoisonError::into_inner).take();
        let library = ready.or_else(Library::new);
        let library = library.expect("there is memory for the library's tables");
        let inspector =
            Inspector::new(self.policy.clone(), library, self.limits.packets, self.tells);
        let hold = Hold::new(self.hold, self.limits.flows);
        Firewall::new(inspector, Flows::new(self.limits), hold, self.file.clone())
    }
}
