//! Packets that have waited for too long at a live interface, since the run did not get to them.

#[path = "support/laboratory.rs"]
mod laboratory;
mod support;

use laboratory::{folder, is_balanced, laboratory, read};
use serde_json::{Value, json};

const TO_WIRE: &str = "routes = 'to.csv'\n[input.i]\ncapture = 'in.pcapng'\n\
    [output.o]\ninterface = 'near'\n";
/// Of three NFs, the second waits for longer than the test lasts.
const FROM_WIRE: &str = "routes = 'from.csv'\n[input.i]\ninterface = 'far'\n\
    [output.o]\ndiscard = true\n\
    [nf.ids]\nkind = 'nids'\nrules = ['all.rules']\non_overload = 'bypass'\nPINNED\n\
    [nf.patient]\nkind = 'monitor'\non_overload = 'bypass'\noverload_after_ms = 60000\n\
    [nf.guard]\nkind = 'acl'\nrules = ['permit ip']\ndefault = 'permit'\n\
    on_overload = 'drop'\noverload_after_ms = 20\n";
const ROUTES: &str = "*,ingress,ids\n*,ids,patient\n*,patient,guard\n*,guard,egress\n";

/// The packets that arrived while a run was stopped, which continued later, and its NFs. One with several
/// queues lets no packet in until all are open, so it is stopped only when it has answered.
fn after_a_stop(workers: usize, pinned: &str) -> Option<(Value, [Value; 3])> {
    let folder = folder(&[
        ("to.toml", TO_WIRE),
        ("to.csv", "*,ingress,egress\n"),
        ("from.toml", &FROM_WIRE.replace("PINNED", pinned)),
        ("from.csv", ROUTES),
        ("all.rules", "alert ip any any -> any any (msg:\"any\"; sid:1;)\n"),
    ]);
    support::succeeds(folder.path(), &["gen", "in.pcapng", "--packets", "300"]);
    let script = format!(
        "ip link add near type veth peer name far\nip link set near up\nip link set far up\n\
         until ip link show near | grep -q 'state UP'; do sleep 0.1; done\n\
         $THALWEG run from.toml --workers {workers} --json > from.json & run=$!\n\
         until $THALWEG ctl report > early.json; do sleep 0.1; done 2> /dev/null\n\
         halt $run\n$THALWEG run to.toml --json > to.json\nsleep 0.2\n\
         kill -CONT $run\n\
         for _ in $(seq 300); do\n\
             packets=$($THALWEG ctl report | sed -n 's/.*\"packets_in\": *\\([0-9]*\\).*/\\1/p')\n\
             [ ${{packets:-0}} -gt 200 ] && break\n\
             sleep 0.1\n\
         done\n\
         sleep 0.2\nkill -INT $run\nwait $run\n"
    );
    laboratory(folder.path(), &script)?;
    let report = read(folder.path(), "from.json");
    is_balanced(&report);
    assert!(report["packets_in"].as_u64() > Some(200), "{report}");
    let nf = |name: &str| {
        let nfs = report["nfs"].as_array().unwrap();
        nfs.iter().find(|nf| nf["name"] == name).cloned().expect("the chain has it")
    };
    Some((report["packets_in"].clone(), ["ids", "patient", "guard"].map(nf)))
}

#[test]
fn late_packets_bypass_an_nf_or_are_dropped_by_it_wherever_it_is_served() {
    // In one thread, in two with the first NF divided, and with that on its own.
    for (workers, pinned) in [(1, ""), (2, ""), (1, "pinned = true"), (2, "pinned = true")] {
        let Some((all, [ids, patient, guard])) = after_a_stop(workers, pinned) else { return };
        assert_eq!((&ids["bypassed"], &ids["packets"]), (&all, &json!(0)), "{ids}");
        assert_eq!(ids["figures"]["alerts"], 0, "{ids}");
        assert_eq!((&patient["bypassed"], &patient["packets"]), (&Value::Null, &all));
        assert_eq!(guard["drops"], json!({ "overload": all }), "{guard}");
    }
}
