//! What a full NAT evicts, and what it keeps.

use std::collections::HashSet;

use thalweg_testkit::cases;

use super::*;

pub(super) fn figure(nat: &dyn NetworkFunction, name: &str) -> u64 {
    nat.figures().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// A packet of `kind` from a host inside.
pub(super) fn sent(kind: u8, host: u8, port: u16) -> Vec<u8> {
    packet(kind, ([10, 0, 0, host], port), REMOTE, SYN)
}

/// Sends a packet, and the answer to it; returns the answer.
pub(super) fn talk(nat: &mut dyn NetworkFunction, kind: u8, bytes: &[u8], seconds: u64) -> Vec<u8> {
    let back = answer(kind, &pass(nat, bytes, seconds).unwrap());
    pass(nat, &back, seconds).unwrap();
    back
}

#[test]
fn ports_run_out_by_name_and_the_table_too() {
    let mut few = nat("ports = '2000-2003'\n");
    for port in [6000, 6002] {
        talk(&mut *few, 1, &sent(1, 1, port), 1);
    }
    assert_eq!(pass(&mut *few, &sent(1, 1, 6004), 1), Err(DropReason::NoPort));
    assert!(pass(&mut *few, &sent(1, 1, 6001), 1).is_ok()); // the other parity
    let mut small = nat("max_mappings = 1\n");
    talk(&mut *small, 1, &sent(1, 1, 1), 1);
    assert_eq!(pass(&mut *small, &sent(1, 1, 2), 1), Err(DropReason::StateFull));
}

#[test]
fn sessions_are_bounded_and_ports_come_free_with_the_last_of_a_mapping() {
    let mut nat = nat("max_sessions = 2\nports = '2000-2001'\n");
    let sent = |port, remote| packet(0, ([10, 0, 0, 1], port), ([198, 51, 100, remote], 80), SYN);
    talk(&mut *nat, 0, &sent(2000, 1), 0);
    talk(&mut *nat, 0, &sent(2000, 2), 100);
    assert_eq!(pass(&mut *nat, &sent(2000, 3), 100), Err(DropReason::StateFull));
    assert!(nat.figures().contains(&("sessions", 2)) && nat.figures().contains(&("refused", 1)));
    // The first session ends at 240, the mapping with the second at 340.
    talk(&mut *nat, 0, &sent(2000, 2), 240);
    assert_eq!(pass(&mut *nat, &sent(2002, 1), 241), Err(DropReason::NoPort));
    pass(&mut *nat, &sent(2002, 1), 480).unwrap();
    assert!(nat.figures().contains(&("mappings", 1)) && nat.figures().contains(&("expired", 1)));
}

#[test]
fn a_flood_from_inside_pushes_out_itself_and_nobody_else() {
    for limit in ["max_mappings = 100\n", "max_sessions = 100\n", "ports = '2000-2099'\n"] {
        let mut nat = nat(limit);
        let connected = connect(&mut *nat, ([10, 0, 0, 2], 5000), REMOTE, 1);
        let query = talk(&mut *nat, 1, &sent(1, 2, 5001), 1);
        for n in 0..1000 {
            assert!(pass(&mut *nat, &sent(0, 66, 1000 + n), 2).is_ok(), "{limit}: {n}");
        }
        assert!(pass(&mut *nat, &packet(0, REMOTE, connected, ACK), 3).is_ok(), "{limit}");
        assert!(pass(&mut *nat, &query, 3).is_ok(), "{limit}");
        for n in 0..10 {
            talk(&mut *nat, 0, &sent(0, 3, 7000 + n), 3);
            talk(&mut *nat, 1, &sent(1, 3, 7000 + n), 3);
        }
        let evicted = figure(&*nat, "evicted");
        assert_eq!((figure(&*nat, "sessions_evicted"), figure(&*nat, "refused")), (evicted, 0));
        assert_eq!(figure(&*nat, "created"), figure(&*nat, "mappings") + evicted);
        assert!(evicted >= 900, "{limit}: {evicted}");
    }
}

#[test]
fn the_one_used_longest_ago_gives_way_and_its_port_is_taken() {
    let mut nat = nat("ports = '2000-2007'\n");
    for (seconds, port) in (1..).zip([2000, 2002, 2004, 2006]) {
        pass(&mut *nat, &sent(1, 1, port), seconds).unwrap();
    }
    pass(&mut *nat, &sent(1, 1, 2000), 9).unwrap();
    let out = pass(&mut *nat, &sent(1, 1, 6000), 10).unwrap();
    assert_eq!(source_of(&out).1, 2002);
    assert!(pass(&mut *nat, &answer(1, &out), 10).is_ok());
    // When it sends again, it takes the port of the next one.
    assert_eq!(source_of(&pass(&mut *nat, &sent(1, 1, 2002), 11).unwrap()).1, 2004);
    assert_eq!((figure(&*nat, "evicted"), figure(&*nat, "mappings")), (2, 4));
}

#[test]
fn a_scan_from_one_port_keeps_what_was_answered() {
    let mut nat = nat("max_sessions = 50\n");
    let to =
        |n: u16| packet(0, ([10, 0, 0, 66], 5000), ([198, 51, (n >> 8) as u8, n as u8], 80), SYN);
    let answered = talk(&mut *nat, 0, &to(0), 1);
    for n in 1..1000 {
        pass(&mut *nat, &to(n), 2).unwrap();
    }
    assert!(pass(&mut *nat, &answered, 3).is_ok());
    talk(&mut *nat, 0, &sent(0, 2, 5000), 3);
    assert_eq!((figure(&*nat, "evicted"), figure(&*nat, "mappings")), (0, 2));
    assert!(figure(&*nat, "sessions_evicted") >= 951);
}

/// Ports outside the range of this NAT are in use, but none of its own.
#[test]
fn ports_taken_over_from_a_wider_range_leave_the_own_ones_free() {
    let mut wide = nat("");
    let mut known = Vec::new();
    for port in 5000..5010 {
        known.push(talk(&mut *wide, 1, &sent(1, 1, port), 1));
    }
    let mut narrow = nat("ports = '2000-2009'\n");
    assert_eq!(take_over(&*wide, &mut *narrow, None), 10);
    for port in 6000..6010 {
        talk(&mut *narrow, 1, &sent(1, 1, port), 2);
    }
    assert_eq!(pass(&mut *narrow, &sent(1, 1, 6010), 2), Err(DropReason::NoPort));
    assert!(known.iter().all(|answer| pass(&mut *narrow, answer, 2).is_ok()));
}

/// The ends, whether it is answered, and the seconds since the previous step.
type Step = (u8, u8, u16, u8, bool, u64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn only_what_was_not_answered_gives_way(
        mappings in 1usize..12, sessions in 1usize..12,
        steps in proptest::collection::vec(
            (0u8..4, 0u8..3, 5000u16..5004, 0u8..3, any::<bool>(), 0u64..2), 1..80,
        ),
    ) {
        let steps: Vec<Step> = steps;
        let mut nat = nat(&format!("max_mappings = {mappings}\nmax_sessions = {sessions}\n"));
        let (mut answered, mut answers, mut now) = (HashSet::new(), Vec::new(), 1);
        for (kind, host, port, remote, is_answered, later) in steps {
            now += later.min(30);
            // UDP without checksum is UDP.
            let flow = (if kind == 2 { 1 } else { kind }, host, port, remote);
            let bytes = packet(kind, ([10, 0, 0, host], port), ([198, 51, 100, remote], 80), ACK);
            match pass(&mut *nat, &bytes, now) {
                Ok(out) if is_answered => {
                    let back = answer(kind, &out);
                    prop_assert!(pass(&mut *nat, &back, now).is_ok());
                    if answered.insert(flow) {
                        answers.push(back);
                    }
                }
                Ok(_) => {}
                Err(reason) => {
                    prop_assert_eq!(reason, DropReason::StateFull);
                    prop_assert!(!answered.contains(&flow));
                    let is_full = figure(&*nat, "sessions") == answered.len() as u64;
                    prop_assert!(is_full, "refused though there are some not answered");
                }
            }
            prop_assert!(figure(&*nat, "mappings") <= mappings as u64);
            prop_assert!(figure(&*nat, "sessions") <= sessions as u64);
            for back in &answers {
                prop_assert!(pass(&mut *nat, back, now).is_ok());
            }
        }
    }
}
