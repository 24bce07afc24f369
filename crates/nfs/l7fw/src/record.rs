//! Decided flows as they move to another instance.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::application::{Action, Seen};
use super::flows::{Flow, FlowId, MOST_HOSTS};
use super::host::MOST_BYTES;
use super::rules::Policy;

/// A flow whose application is known. Names instead of numbers, because the numbers differ between
/// versions of the library.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    vlan: u16,
    ends: (IpAddr, IpAddr, u8, u16, u16),
    first: Nanoseconds,
    last: Nanoseconds,
    packets: u64,
    dropped: u64,
    master: String,
    application: String,
    category: String,
    guessed: bool,
    hosts: Vec<String>,
    /// The acknowledgment and sequence numbers of the SYN that opened its TCP connection.
    opened: Option<(u32, u32)>,
}

impl Policy {
    pub(super) fn record(&self, (vlan, _): &FlowId, flow: &Flow) -> Record {
        let name =
            |id: u16| self.names.applications.get(usize::from(id)).cloned().unwrap_or_default();
        let t = &flow.tuple;
        Record {
            vlan: *vlan,
            ends: (t.src, t.dst, t.protocol, t.src_port, t.dst_port),
            first: flow.first,
            last: flow.last,
            packets: flow.packets,
            dropped: flow.dropped,
            master: name(flow.seen.master),
            application: name(flow.seen.application),
            category: self.names.category(flow.seen).to_owned(),
            guessed: flow.seen.guessed,
            hosts: flow.hosts.iter().map(ToString::to_string).collect(),
            opened: flow.opened,
        }
    }

    /// The flow in a record, which may hold anything; judged by the rules here.
    pub(super) fn flow(&self, record: Record) -> Result<(FlowId, Flow), String> {
        let application = |name: &str| {
            self.names.find_application(name).ok_or_else(|| format!("unknown application '{name}'"))
        };
        let category = self.names.find_category(&record.category);
        let category = category.ok_or_else(|| format!("unknown category '{}'", record.category))?;
        let is_host = |host: &String| {
            !host.is_empty()
                && host.len() <= MOST_BYTES
                && !host.bytes().any(|byte| byte.is_ascii_uppercase())
        };
        if record.hosts.len() > MOST_HOSTS || !record.hosts.iter().all(is_host) {
            return Err("not hosts of a flow".into());
        }
        if record.dropped > record.packets {
            return Err("not a possible flow".into());
        }
        let (src, dst, protocol, src_port, dst_port) = record.ends;
        let tuple = FiveTuple { src, dst, protocol, src_port, dst_port };
        let seen = Seen {
            master: application(&record.master)?,
            application: application(&record.application)?,
            category,
            guessed: record.guessed,
            ..Seen::default()
        };
        let mut flow = Flow {
            packets: record.packets,
            dropped: record.dropped,
            last: record.last,
            seen,
            hosts: record.hosts.into_iter().map(Into::into).collect(),
            opened: record.opened,
            action: Action::Allow,
            ..Flow::new(tuple, record.first)
        };
        self.judge(&mut flow);
        Ok(((record.vlan, Conversation::of(&tuple).0), flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::{Names, Undecided};

    fn record() -> Record {
        Record {
            vlan: 5,
            ends: ([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 6, 40_000, 80),
            first: Nanoseconds(1),
            last: Nanoseconds(2),
            packets: 9,
            dropped: 3,
            master: "HTTP".into(),
            application: "Google".into(),
            category: "Web".into(),
            guessed: false,
            hosts: vec!["a.example".into(), "b.example".into()],
            opened: Some((1, 2)),
        }
    }

    #[test]
    fn only_possible_flows_are_imported() {
        let policy = Policy {
            rules: Vec::new(),
            default: Action::Block,
            undecided: Undecided::Allow,
            hold_exceeded: Action::Allow,
            checksums: true,
            names: Names {
                applications: ["Unknown", "HTTP", "Google"].map(Into::into).into(),
                categories: vec!["Web".into()],
            },
        };
        let (id, flow) = policy.flow(record()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((flow.seen.master, flow.seen.application), (1, 2));
        assert_eq!((flow.action, flow.opened, flow.hosts.len()), (Action::Block, Some((1, 2)), 2));
        assert_eq!(
            serde_json::to_value(policy.record(&id, &flow)).unwrap(),
            serde_json::to_value(record()).unwrap()
        );
        let changes: [fn(&mut Record); 8] = [
            |r| r.master = "Gopher".into(),
            |r| r.application = "Gopher".into(),
            |r| r.category = "Fun".into(),
            |r| r.hosts = vec![String::new()],
            |r| r.hosts = vec!["A.example".into()],
            |r| r.hosts = vec!["a".repeat(256)],
            |r| r.hosts = vec!["a".into(); MOST_HOSTS + 1],
            |r| r.dropped = 10,
        ];
        for change in changes {
            let mut record = record();
            change(&mut record);
            assert!(policy.flow(record).is_err());
        }
    }
}
