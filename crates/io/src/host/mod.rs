//! What the host itself does with an interface: its addresses, its default routes, and the sessions of
//! SSH by which it is administered.

mod links;
mod query;
mod routes;
mod sessions;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use links::Links;
use thalweg_source::outside;

use crate::kind::Refusal;
use crate::port::IoError;

/// What an interface has if a default route leads to it.
const DEFAULT_ROUTE: &str = "the host's default route";
/// What an interface has if a session of SSH passes it.
const SESSION: &str = "a session of SSH to this host";

/// What the kernel keeps packets for at an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Its addresses on the interface, and on those that are made of it.
    pub(crate) addresses: Vec<IpAddr>,
    /// The numbers of the VLANs that are made of it.
    pub(crate) vlans: Vec<u16>,
}

/// What the kernel has at the interface `name`, and at those that are made of it, such as its bridge,
/// bond or VLANs.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn own(name: &str) -> io::Result<Own> {
    let links = Links::read()?;
    let Some(lowest) = links.named(name) else { return Ok(Own::default()) };
    let stack = links.stack(lowest);
    let all = links::addresses()?;
    // The addresses of the interface itself come first.
    let of = |index| all.iter().filter(move |(of, _)| *of == index).map(|(_, address)| *address);
    let addresses = stack.iter().flat_map(|link| of(link.index)).collect();
    Ok(Own { addresses, vlans: links::vlans(&stack) })
}

/// Looks for the sessions of SSH that only privileges can find: before a program gives them up.
pub fn note_sessions() {
    sessions::note();
}

/// Refuses an interface by which the host is reached, unless `force`: a port that takes its packets from
/// the kernel, or sends others by it, could cut the host off.
///
/// # Errors
/// [`IoError::Refused`] with what the host has it for, or why that cannot be found out.
pub(crate) fn check(name: &str, force: bool) -> Result<(), IoError> {
    if force {
        return Ok(());
    }
    let found = match outside::privileged(|| needs(name)) {
        Ok(None) => return Ok(()),
        Ok(Some(use_)) => format!("it has {use_}"),
        Err(error) => format!("cannot find out whether the host is reached by it: {error}"),
    };
    let refusal = Refusal::new(&["force"], found, "force = true to take it nevertheless");
    Err(refusal.of(format!("interface {name}")))
}

/// What the host needs an interface for: itself, or one that is made of it, such as its bridge, bond or
/// VLAN. `None` if nothing shows that it does, or there is none of this name.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn needs(name: &str) -> io::Result<Option<String>> {
    let links = Links::read()?;
    let Some(lowest) = links.named(name) else { return Ok(None) };
    let uses = uses()?;
    let found = links.stack(lowest).into_iter().find_map(|link| {
        let use_ = *uses.get(&link.index)?;
        let is_itself = link.index == lowest.index;
        Some(if is_itself { use_.to_owned() } else { format!("{use_}, by {}", link.name) })
    });
    Ok(found)
}

/// What the host needs interfaces for, by their indices.
fn uses() -> io::Result<HashMap<u32, &'static str>> {
    let own = links::addresses()?;
    let mut uses = HashMap::new();
    for session in sessions::all() {
        let at = own.iter().filter(|(_, address)| *address == session.local);
        let at: Vec<_> = at.map(|(index, _)| *index).collect();
        // It is one of another network namespace if no interface has its address.
        if at.is_empty() {
            continue;
        }
        // Its address may be that of the loopback or a dummy: packets to its peer leave by others.
        let by = routes::towards(session.peer, session.local);
        uses.extend(at.into_iter().chain(by).map(|index| (index, SESSION)));
    }
    uses.extend(routes::of_default_routes()?.into_iter().map(|index| (index, DEFAULT_ROUTE)));
    Ok(uses)
}
