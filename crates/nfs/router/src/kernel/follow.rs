//! The state of the kernel as far as a router needs it, and its way into the router's tables.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::KernelNeighbors;
use super::feed::{Dump, End, Feed, dump};
use super::hops::{Choice, Known};
use super::message::{Message, Object, Verb, messages};
use super::rib::{Outcome, Rib, Target};
use super::thread::Progress;
use crate::forward::{Shared, View};
use crate::neighbors::Neighbor;
use crate::prefix::IpPrefix;
use crate::table::{Mac, NextHop, RouteList, RouteTable, RouterPort, TableError};

/// What is known of the kernel.
#[derive(Default)]
struct Mirror {
    /// Interfaces by index: their names, and whether they are up and connected.
    links: HashMap<u32, (String, bool)>,
    /// The router's ports by the index of their interfaces.
    ports: HashMap<u32, RouterPort>,
    /// The kernel's own addresses, with their interfaces.
    addresses: HashMap<IpAddr, HashSet<u32>>,
    /// MAC addresses by interface and address, where they are known and can be used.
    neighbors: HashMap<(u32, IpAddr), Mac>,
    rib: Rib,
}

/// Follows the kernel: takes its messages, and brings them into the tables of a router.
pub(crate) struct Follow {
    /// The number of the followed table.
    table: u32,
    shared: Arc<Shared>,
    /// Routes that win over the kernel's of the same prefix: those of the file, and to the router
    /// itself.
    fixed: HashMap<IpPrefix, NextHop>,
    mirror: Mirror,
    /// Prefixes whose routes may have changed since the last publication.
    changed: HashSet<IpPrefix>,
    /// Whether neighbours have changed since then.
    new_neighbors: bool,
    /// Whether the mirror may differ from the kernel.
    is_doubtful: bool,
    /// Whether changes that were already dumped can no longer arrive.
    is_settled: bool,
    /// Prefixes whose packets would leave where the router has no port.
    no_port: HashSet<IpPrefix>,
    /// Views that the router may still use.
    retired: Vec<Arc<View>>,
    pub(super) progress: Arc<Progress>,
}

impl Follow {
    /// A follower of the table number `table` for a router, whose own and static routes are `fixed`.
    pub(crate) fn new(table: u32, shared: Arc<Shared>, fixed: &RouteList) -> Self {
        Self {
            table,
            shared,
            fixed: fixed.iter().map(|(prefix, hop)| (prefix, hop.clone())).collect(),
            mirror: Mirror::default(),
            changed: HashSet::new(),
            new_neighbors: false,
            is_doubtful: true,
            is_settled: false,
            no_port: HashSet::new(),
            retired: Vec::new(),
            progress: Arc::default(),
        }
    }

    /// Whether the kernel's tables have to be dumped again.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Notes that changes were lost.
    pub(super) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Notes that no change waits any more: later ones are not in the last dump.
    pub(crate) fn settle(&mut self) {
        self.is_settled = true;
        self.sweep();
    }

    /// Dumps the kernel's tables, and makes the router's the same.
    ///
    /// # Errors
    /// If the kernel does not answer. The tables then stay as they were.
    pub(crate) fn synchronize(&mut self, feed: &mut dyn Feed) -> io::Result<()> {
        let mut mirror = Mirror::default();
        let order = [
            Dump::Links,
            Dump::Addresses,
            Dump::Objects,
            Dump::Neighbors,
            Dump::RoutesV4,
            Dump::RoutesV6,
        ];
        let mut is_interrupted = false;
        for kind in order {
            // A family that the kernel does not have is answered by the routes of others.
            let is_wanted = |message: &Message| match (kind, message) {
                (Dump::RoutesV4, Message::Route { route, .. }) => {
                    matches!(route.prefix, IpPrefix::V4(_))
                }
                (Dump::RoutesV6, Message::Route { route, .. }) => {
                    matches!(route.prefix, IpPrefix::V6(_))
                }
                _ => true,
            };
            let end = dump(feed, kind, |message| {
                if is_wanted(&message) {
                    self.learn(&mut mirror, message);
                }
            })?;
            is_interrupted |= end == End::Interrupted;
        }
        self.mirror = mirror;
        self.is_doubtful = is_interrupted;
        self.is_settled = false;
        self.replace_all();
        self.publish_neighbors();
        Ok(())
    }

    /// Learns what a message of a dump holds.
    fn learn(&self, mirror: &mut Mirror, message: Message) {
        match message {
            Message::Route { route, .. } if route.table != self.table => {}
            Message::Route { route, .. } => {
                // Dumped in the order in which the kernel prefers them.
                mirror.rib.change(Verb::Append, route);
            }
            Message::Neighbor { link, address, mac } => {
                mirror.neighbors.extend(mac.map(|mac| ((link, address), mac)));
            }
            Message::Link { link, state: Some(state) } => {
                mirror.ports.extend(self.port_of(&state.0).map(|port| (link, port)));
                mirror.links.insert(link, state);
            }
            Message::Address { link, address, .. } => {
                mirror.addresses.entry(address).or_default().insert(link);
            }
            Message::Object { id, object: Some(object) } => {
                mirror.rib.objects.insert(id, object);
            }
            Message::Malformed => self.progress.count_malformed(),
            _ => {}
        }
    }

    fn port_of(&self, interface: &str) -> Option<RouterPort> {
        let mut ports = self.shared.ports.iter();
        ports.find(|(_, port)| port.interface.as_deref() == Some(interface)).map(|(id, _)| id)
    }

    /// Takes a datagram of changes, to be published later.
    pub(crate) fn take(&mut self, datagram: &[u8]) {
        for (_, message) in messages(datagram) {
            self.take_message(message);
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Route { verb, route } if route.table == self.table => {
                let prefix = route.prefix;
                self.progress.count_change();
                match self.mirror.rib.change(verb, route) {
                    Outcome::Changed => drop(self.changed.insert(prefix)),
                    // Changes from before the last dump arrive again, and are nothing new.
                    Outcome::Missing => self.is_doubtful |= self.is_settled,
                }
            }
            Message::Neighbor { link, address, mac } => {
                let neighbors = &mut self.mirror.neighbors;
                let old = match mac {
                    Some(mac) => neighbors.insert((link, address), mac),
                    None => neighbors.remove(&(link, address)),
                };
                self.new_neighbors |= old != mac && self.mirror.ports.contains_key(&link);
            }
            Message::Link { link, state } => self.take_link(link, state),
            Message::Address { link, address, is_gone } => {
                self.take_address(link, address, is_gone);
            }
            Message::Object { id, object } => self.take_object(id, object),
            Message::Malformed => self.progress.count_malformed(),
            _ => {}
        }
    }

    /// The kernel adds and removes next hops silently when interfaces go up and down.
    fn take_link(&mut self, link: u32, state: Option<(String, bool)>) {
        let port = state.as_ref().and_then(|(name, _)| self.port_of(name));
        let known = self.mirror.links.get(&link);
        let is_other = known != state.as_ref() && (known.is_some() || port.is_some());
        self.is_doubtful |= is_other;
        match state {
            Some(state) => drop(self.mirror.links.insert(link, state)),
            None => drop(self.mirror.links.remove(&link)),
        }
    }

    fn take_address(&mut self, link: u32, address: IpAddr, is_gone: bool) {
        if is_gone {
            if let Some(links) = self.mirror.addresses.get_mut(&address) {
                links.remove(&link);
                if links.is_empty() {
                    self.mirror.addresses.remove(&address);
                }
            }
            // Routes that prefer this source address are gone, too, silently.
            self.is_doubtful = true;
        } else {
            self.mirror.addresses.entry(address).or_default().insert(link);
        }
        self.changed.insert(IpPrefix::of_host(address));
    }

    fn take_object(&mut self, id: u32, object: Option<Object>) {
        let objects = &mut self.mirror.rib.objects;
        let Some(object) = object else {
            objects.remove(&id);
            // So are the routes to it, silently.
            self.is_doubtful = true;
            return;
        };
        if objects.get(&id) == Some(&object) {
            return;
        }
        objects.insert(id, object);
        let names_it = |object: &Object| matches!(object, Object::Group(group) if group.iter().any(|(member, _)| *member == id));
        let groups = objects.iter().filter(|(_, object)| names_it(object)).map(|(id, _)| *id);
        let affected: HashSet<u32> = groups.chain([id]).collect();
        self.changed.extend(self.mirror.rib.prefixes_of(&affected));
    }

    /// Brings the changes so far into the tables.
    pub(crate) fn publish(&mut self) {
        if !self.changed.is_empty() {
            let prefixes = std::mem::take(&mut self.changed);
            let changes: Vec<_> =
                prefixes.into_iter().map(|prefix| (prefix, self.hop_for(prefix))).collect();
            self.change(changes);
        }
        if std::mem::take(&mut self.new_neighbors) {
            self.publish_neighbors();
        }
        self.sweep();
    }

    fn change(&mut self, changes: Vec<(IpPrefix, Option<NextHop>)>) {
        let table = Arc::clone(&self.shared.view.load().table);
        match table.change(changes.iter().cloned()) {
            Ok(_) => {}
            // Next hops that are no longer in use keep their numbers in a table.
            Err(TableError::TooManyHops) => self.renumber(),
            Err(_) => self.change_one_by_one(&table, changes),
        }
    }

    fn change_one_by_one(
        &self,
        table: &RouteTable,
        changes: impl IntoIterator<Item = (IpPrefix, Option<NextHop>)>,
    ) {
        for change in changes {
            let prefix = change.0;
            if let Err(error) = table.change([change]) {
                self.progress.refuse(prefix, error);
            }
        }
    }

    /// Makes the router's routes those of the mirror.
    fn replace_all(&mut self) {
        self.changed.clear();
        let list = self.list();
        let table = Arc::clone(&self.shared.view.load().table);
        match table.replace(list.clone()) {
            Ok(_) => {}
            Err(TableError::TooManyHops) => self.renumber(),
            Err(_) => self.replace_one_by_one(&table, &list),
        }
    }

    /// The routes that fit, of those that do not fit together.
    fn replace_one_by_one(&self, table: &RouteTable, list: &RouteList) {
        let wanted: HashSet<IpPrefix> = list.iter().map(|(prefix, _)| prefix).collect();
        let gone = table.prefixes().into_iter().filter(|prefix| !wanted.contains(prefix));
        self.change_one_by_one(table, gone.map(|prefix| (prefix, None)));
        self.change_one_by_one(table, list.iter().map(|(prefix, hop)| (prefix, Some(hop.clone()))));
    }

    /// Publishes another table with the same routes, which numbers only their next hops.
    fn renumber(&mut self) {
        self.changed.clear();
        let (table, list) = (RouteTable::new(), self.list());
        if table.replace(list.clone()).is_err() {
            self.replace_one_by_one(&table, &list);
        }
        self.show(|view| view.table = Arc::new(table));
    }

    /// All routes: the kernel's, its own addresses, and the fixed ones.
    fn list(&mut self) -> RouteList {
        self.no_port.clear();
        let mut list = RouteList::default();
        let mut numbers: HashMap<*const Target, Option<u32>> = HashMap::new();
        let own = self.mirror.addresses.keys().copied().map(IpPrefix::of_host);
        let apart: HashSet<IpPrefix> = own.chain(self.fixed.keys().copied()).collect();
        let known = self.mirror.known();
        for prefix in self.mirror.rib.prefixes().filter(|prefix| !apart.contains(prefix)) {
            for target in self.mirror.rib.targets(prefix) {
                let number = numbers.entry(Arc::as_ptr(target)).or_insert_with(|| {
                    match known.choose(target) {
                        Choice::Dead => None,
                        Choice::Hop(hop) => Some(list.intern(hop)),
                        Choice::NoPort => Some(u32::MAX),
                    }
                });
                let Some(number) = *number else { continue };
                if number == u32::MAX {
                    self.no_port.insert(prefix);
                    list.push(prefix, NextHop::Unreachable);
                } else {
                    list.push_interned(prefix, number);
                }
                break;
            }
        }
        for prefix in apart {
            if let Some(hop) = self.mirror.fixed_hop(&self.fixed, prefix) {
                list.push(prefix, hop);
            }
        }
        self.progress.set_no_port(self.no_port.len());
        list
    }

    /// The next hop of a prefix; `None` if it has no route.
    fn hop_for(&mut self, prefix: IpPrefix) -> Option<NextHop> {
        self.no_port.remove(&prefix);
        let hop = self.mirror.fixed_hop(&self.fixed, prefix).or_else(|| {
            let known = self.mirror.known();
            self.mirror.rib.targets(prefix).find_map(|target| match known.choose(target) {
                Choice::Dead => None,
                Choice::Hop(hop) => Some(hop),
                Choice::NoPort => {
                    self.no_port.insert(prefix);
                    Some(NextHop::Unreachable)
                }
            })
        });
        self.progress.set_no_port(self.no_port.len());
        hop
    }

    fn publish_neighbors(&mut self) {
        self.new_neighbors = false;
        let of_port = |(&(link, address), &mac): (&(u32, IpAddr), &Mac)| {
            Some((Neighbor(*self.mirror.ports.get(&link)?, address), mac))
        };
        let neighbors: KernelNeighbors = self.mirror.neighbors.iter().filter_map(of_port).collect();
        self.progress.set_neighbors(neighbors.len());
        if neighbors != *self.shared.view.load().neighbors {
            self.show(|view| view.neighbors = Arc::new(neighbors));
        }
    }

    /// Publishes another view. The old one is freed here, when the router no longer uses it.
    fn show(&mut self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.shared.view.load());
        change(&mut view);
        self.retired.push(self.shared.view.swap(Arc::new(view)));
    }

    fn sweep(&mut self) {
        self.retired.retain(|view| Arc::strong_count(view) > 1);
        self.shared.view.load().table.sweep();
    }
}

impl Mirror {
    fn known(&self) -> Known<'_> {
        Known { ports: &self.ports, objects: &self.rib.objects }
    }

    /// The next hop of a prefix that does not come from a route of the kernel.
    fn fixed_hop(&self, fixed: &HashMap<IpPrefix, NextHop>, prefix: IpPrefix) -> Option<NextHop> {
        if prefix.host().is_some_and(|address| self.addresses.contains_key(&address)) {
            return Some(NextHop::Kernel);
        }
        fixed.get(&prefix).cloned()
    }
}
