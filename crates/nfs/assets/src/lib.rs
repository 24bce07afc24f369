//! NF `assets`: an inventory of hosts, their systems and services, inferred from the
//! traffic that passes, in the manner of PRADS and p0f.
//!
//! Packets pass unchanged.

mod attributes;
mod config;
mod dhcp;
mod dns;
mod fingerprint;
mod handshake;
mod host;
mod inventory;
mod networks;
mod table;
mod text;
mod watch;

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::{Batch, Lanes};
use thalweg_source::SourceError;

use config::{Config, Loaded, Options};
use fingerprint::Fingerprints;
use host::{Host, HostId};
use networks::Networks;
use table::{Limits, Watched};
use thalweg_nf::NfError;
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::output::OutputFile;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};
use watch::Watcher;

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "assets",
    summary: "inventory of hosts, services and operating systems, inferred from traffic",
    state: Some("hosts with their attributes; watched conversations"),
    grain: Grain::Whole,
    limits: &[
        "a service is recognised in the first 1024 bytes of a packet; 8 payloads of each side of a \
         conversation are inspected",
        "texts that span several packets, and texts in TLS and HTTP/2, are not read",
        "max_hosts hosts and memory_mib: when full, one of eight hosts is evicted for each new one: \
         first one of which only the address is known, the longest unseen first",
        "max_conversations conversations: when full, the least recently used of eight is evicted for \
         each new one",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build,
};

/// The JSON Schema of a line of `inventory`: a host.
pub fn line_schema() -> schemars::Schema {
    thalweg_nf::toolkit::output::schema_of::<inventory::Line<'_>>()
}

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let Config { inventory, limits, networks, files } = config::read(section, environment)?;
    let Loaded { fingerprints, warnings } = files.load()?;
    Ok(Box::new(AssetsBlueprint {
        counts: fingerprints.counts(),
        fingerprints: Arc::new(ArcSwap::from_pointee(fingerprints)),
        warnings,
        limits,
        networks,
        inventory,
    }))
}

struct AssetsBlueprint {
    /// The numbers of its fingerprints.
    counts: [usize; 3],
    fingerprints: Arc<ArcSwap<Fingerprints>>,
    warnings: Vec<SourceError>,
    limits: Limits,
    networks: Networks,
    inventory: Option<OutputFile>,
}

impl Blueprint for AssetsBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Assets {
            fingerprints: self.fingerprints.clone(),
            watcher: Watcher::new(self.limits, self.networks.clone()),
            inventory: self.inventory.clone(),
        })
    }

    fn describe(&self) -> String {
        let [handshakes, texts, dhcp] = self.counts;
        format!("fingerprints: {handshakes} TCP, {texts} text, {dhcp} DHCP")
    }

    fn memory(&self) -> u64 {
        table::bytes(&self.limits) as u64
    }

    fn warnings(&self) -> &[SourceError] {
        &self.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let same = |old: &&Self| {
            (old.limits, &old.networks, &old.inventory)
                == (self.limits, &self.networks, &self.inventory)
        };
        let old = old.downcast().filter(same)?;
        let new = std::mem::replace(&mut self.fingerprints, old.fingerprints.clone()).load_full();
        let running = old.fingerprints.clone();
        Some(Box::new(move |_| Some(Box::new(running.swap(new)))))
    }
}

/// Asset detection.
struct Assets {
    fingerprints: Arc<ArcSwap<Fingerprints>>,
    watcher: Watcher,
    /// The file that lists the hosts.
    inventory: Option<OutputFile>,
}

/// One record of the state.
#[derive(Serialize, Deserialize)]
enum Record {
    Host(HostId, Host),
    Conversation(Conversation, Watched),
}

/// A borrowed [`Record`], to write it without a copy.
#[derive(Serialize)]
enum RecordRef<'a> {
    Host(&'a HostId, &'a Host),
    Conversation(&'a Conversation, &'a Watched),
}

impl NetworkFunction for Assets {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, _context: &mut Context<'_>) {
        let known = self.fingerprints.load();
        self.watcher.batch(&known, batch, lanes);
    }

    /// Those of UDP are several datagrams, each a message of its own.
    fn takes_whole(&self, batch: &Batch, lane: usize) -> bool {
        batch.meta.inner_len[lane] == 0 && batch.headers(lane).has_transport(TCP)
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        writer.expect(self.watcher.hosts.len() + self.watcher.conversations.len());
        for (id, host) in self.watcher.hosts.iter() {
            writer.record([id.flow()], &RecordRef::Host(id, host))?;
        }
        for (id, watched) in self.watcher.conversations.iter() {
            writer.record([id.tuple()], &RecordRef::Conversation(id, watched))?;
        }
        Ok(())
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let (mut hosts, mut conversations) = (Vec::new(), Vec::new());
        let most = self.watcher.most_services();
        let mut imported = 0;
        while let Some(record) = reader.record()? {
            let is_sound = match record {
                Record::Host(id, host) => {
                    let is_sound = host.is_sound(most);
                    hosts.push(Some((id, host)));
                    is_sound
                }
                Record::Conversation(id, watched) => {
                    let is_sound = watched.is_sound();
                    conversations.push(Some((id, watched)));
                    is_sound
                }
            };
            if !is_sound {
                let what = "invalid host or conversation".into();
                return Err(StateError::Record { index: imported, what });
            }
            imported += 1;
        }
        self.watcher.hosts.import(hosts);
        self.watcher.conversations.import(conversations);
        Ok(imported)
    }

    fn forget_unit(&mut self, unit: u16) {
        if unit == 0 {
            // The inventory of the instance that took them over lists them.
            self.watcher.hosts.forget();
            self.watcher.conversations.forget();
        }
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let (watcher, figures) = (&self.watcher, &self.watcher.figures);
        vec![
            ("hosts", watcher.hosts.len() as u64),
            ("hosts_evicted", watcher.hosts.evicted),
            ("services_evicted", watcher.hosts.services_evicted),
            ("host_memory", watcher.hosts.memory as u64),
            ("conversations", watcher.conversations.len() as u64),
            ("conversations_evicted", watcher.conversations.evicted),
            ("handshakes", figures.handshakes),
            ("handshakes_unknown", figures.handshakes_unknown),
            ("texts", figures.texts),
            ("texts_unknown", figures.texts_unknown),
            ("hardware_changes", figures.hardware_changes),
        ]
    }

    fn flush(&mut self) -> Result<(), NfError> {
        let Some(file) = &self.inventory else { return Ok(()) };
        inventory::write(file, &self.watcher.hosts.sorted(), &self.fingerprints.load())
    }
}

#[cfg(test)]
mod tests;
