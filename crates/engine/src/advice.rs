//! Warnings about packets that were lost for lack of a setting, at the end of a run.

use thalweg_io::Shortfall;
use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, DropCounts, DropReason, HEADROOM, MAX_FRAME_SIZE, MAX_PACKET_LEN};
use thalweg_source::counted;

use crate::counters::{Counters, NfCounters, PortCounters};
use thalweg_chain::{NfPlan, Plan};

/// Of how many packets one may be lost to a lack of speed or room before it is worth a warning.
const TRACE: u64 = 1000;

/// Returns a warning for each port, NF and reason by which the run lost packets that other settings
/// would have kept, and for devices that failed. `failed`: the run failed, which explains what its outputs lost.
pub(crate) fn advice(
    plan: &Plan,
    inputs: &[PortCounters],
    outputs: &[PortCounters],
    counters: &Counters,
    failed: bool,
) -> Vec<String> {
    let mut all = Vec::new();
    for (input, counts) in plan.inputs.iter().zip(inputs) {
        let place = format!("input '{}'", input.name);
        let live = input.blueprint.is_live();
        all.extend(of_input(
            plan.pool.frames(),
            live,
            &Losses::of_port(place, counts, counts.packets),
        ));
    }
    for (output, counts) in plan.outputs.iter().zip(outputs) {
        let place = format!("output '{}'", output.name);
        let tried = counts.packets + counts.drops.total();
        if let Some(interface) = output.blueprint.interface() {
            all.extend(of_output(interface, failed, &Losses::of_port(place, counts, tried)));
        }
    }
    for (nf, counts) in plan.nfs.iter().zip(&counters.nfs) {
        all.extend(of_nf(&nf.name, nf.kind.name, plan.pool.frame_size(), counts));
        all.extend(of_device(nf, counts));
    }
    let kept = counters.kept_frames();
    if kept > 0 {
        let frames = counted(kept, "frame");
        all.push(format!("{frames} lost to devices that failed, which may still write to them"));
    }
    all.extend(of_chain(counters));
    all
}

/// A warning if the device of an NF has failed and the processor does its work.
fn of_device(nf: &NfPlan, counts: &NfCounters) -> Option<String> {
    let fault = counts.device.as_ref()?.failed.as_ref()?;
    let device = nf.device.as_ref().filter(|device| device.falls_back)?;
    let (name, at) = (&nf.name, &device.place.at);
    Some(format!("NF '{name}': on the processor, as '{at}' has failed: {fault}"))
}

/// The losses of a port or an NF.
struct Losses<'a> {
    place: String,
    drops: &'a DropCounts,
    shortfall: Shortfall,
    /// The packets that it received or had to send.
    all: u64,
}

impl<'a> Losses<'a> {
    fn of_port(place: String, counts: &'a PortCounters, all: u64) -> Self {
        Self { place, drops: &counts.drops, shortfall: counts.shortfall, all }
    }

    /// A warning if packets were lost for `reason`, more than `1 / trace` of all.
    fn by(&self, reason: DropReason, trace: u64, what: &str, remedy: &str) -> Option<String> {
        self.lost(self.drops.get(reason), trace, &format!("{what} ({reason})"), remedy)
    }

    fn lost(&self, lost: u64, trace: u64, what: &str, remedy: &str) -> Option<String> {
        (lost.saturating_mul(trace) > self.all).then(|| {
            let share = share(lost, self.all);
            let all = counted(self.all, "packet");
            format!("{}: {lost} of {all} ({share}) {what}; {remedy}", self.place)
        })
    }
}

/// The share of `lost` in `all` in percent.
fn share(lost: u64, all: u64) -> String {
    let percent = 100.0 * lost as f64 / all.max(1) as f64;
    match percent {
        small if small < 0.1 => "less than 0.1 %".into(),
        small if small < 10.0 => format!("{small:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

fn of_input(frames: usize, live: bool, losses: &Losses<'_>) -> Vec<String> {
    use DropReason::{FrameTooSmall, PoolExhausted, ReceiveRingFull, UnsupportedLinkType};
    let snap = "were captured only in part, so that NFs see their beginning alone";
    let all = [
        losses.by(FrameTooSmall, u64::MAX, "did not fit in a frame", &larger_frames(losses, live)),
        losses.by(
            PoolExhausted,
            TRACE,
            "found no free frame",
            &format!("set frames in [memory] to more than {frames}"),
        ),
        losses.by(
            ReceiveRingFull,
            TRACE,
            "found the receive ring full",
            "set workers in [run] to more, or run fewer NFs for this traffic",
        ),
        losses.by(
            UnsupportedLinkType,
            u64::MAX,
            "have a link type that cannot become Ethernet",
            "convert the capture first, or capture on an Ethernet interface",
        ),
        losses.lost(losses.shortfall.truncated, TRACE, snap, "capture whole packets: tcpdump -s 0"),
    ];
    all.into_iter().flatten().collect()
}

/// The frame size that would have kept the packets that were too long for a frame.
fn larger_frames(losses: &Losses<'_>, live: bool) -> String {
    let longest = losses.shortfall.longest;
    let size = (longest + HEADROOM).next_multiple_of(64);
    if longest == 0 {
        return "turn off the offloads that merge them: ethtool -K INTERFACE gro off".into();
    }
    let long = format!("the longest has {longest} bytes");
    if longest <= MAX_PACKET_LEN && size <= MAX_FRAME_SIZE {
        return format!("{long}: set frame_size in [memory] to {size} or more");
    }
    let most = (MAX_PACKET_LEN + HEADROOM).next_multiple_of(64);
    let merged = if live { ", or turn off the offloads that merge packets" } else { "" };
    format!(
        "{long}, but no frame holds more than {MAX_PACKET_LEN}: frame_size = {most} in [memory] \
         keeps those that are not longer{merged}"
    )
}

fn of_output(interface: &str, failed: bool, losses: &Losses<'_>) -> Vec<String> {
    use DropReason::{OutputFailed, TooBig, TransmitQueueFull};
    let mtu = losses.shortfall.longest.saturating_sub(header_len::ETHERNET);
    let all = [
        losses.by(
            TransmitQueueFull,
            TRACE,
            "found the interface's queue full for a second",
            &format!("lengthen it: ip link set {interface} txqueuelen {}", 1024 * BATCH),
        ),
        losses.by(
            TooBig,
            u64::MAX,
            "are longer than the interface's MTU",
            &format!(
                "raise it: ip link set {interface} mtu {mtu}; or let a router fragment them, whose \
                 port has the interface's mtu"
            ),
        ),
        (!failed)
            .then(|| {
                let remedy = format!("bring it up: ip link set {interface} up");
                losses.by(OutputFailed, u64::MAX, "were refused by the interface", &remedy)
            })
            .flatten(),
    ];
    all.into_iter().flatten().collect()
}

fn of_nf(name: &str, kind: &str, frame_size: usize, counts: &NfCounters) -> Vec<String> {
    let losses = Losses {
        place: format!("NF '{name}'"),
        drops: &counts.drops,
        shortfall: Shortfall::default(),
        all: counts.packets,
    };
    let limits = format!("raise its limits: thalweg nf show {kind}");
    let frames = format!("set frame_size in [memory] to more than {frame_size}");
    let all = [
        losses.by(DropReason::StateFull, TRACE, "found its tables full", &limits),
        losses.by(
            DropReason::NoPort,
            TRACE,
            "found no free external port",
            &format!("give it more addresses or ports: thalweg nf show {kind}"),
        ),
        losses.by(
            DropReason::NoRoom,
            u64::MAX,
            "had no room for more headers in their frame",
            &frames,
        ),
    ];
    all.into_iter().flatten().collect()
}

fn of_chain(counters: &Counters) -> Vec<String> {
    let by = |reason: DropReason, remedy: &str| {
        let lost = counters.chain_drops.get(reason);
        (lost > 0).then(|| {
            format!("{} dropped between NFs ({reason}); {remedy}", counted(lost, "packet"))
        })
    };
    let all = [
        by(DropReason::NoRoute, "add a route for their packet type to the routes file"),
        by(DropReason::ChainLoop, "the routes lead packets that NFs generate in a circle"),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(counts: &PortCounters, all: u64) -> Losses<'_> {
        Losses::of_port("port 'p'".into(), counts, all)
    }

    fn counts(reason: DropReason, lost: u64, longest: usize) -> PortCounters {
        let shortfall = Shortfall { longest, ..Shortfall::default() };
        let mut counts = PortCounters { shortfall, ..PortCounters::default() };
        counts.drops.add(reason, lost);
        counts
    }

    #[test]
    fn each_loss_at_an_input_names_its_setting() {
        for (reason, setting) in [
            (DropReason::PoolExhausted, "set frames in [memory] to more than 512"),
            (DropReason::ReceiveRingFull, "set workers in [run]"),
            // Packets that could not be segmented.
            (DropReason::FrameTooSmall, "ethtool -K INTERFACE gro off"),
        ] {
            let told = of_input(512, true, &losses(&counts(reason, 10, 0), 1000));
            assert_eq!(told.len(), 1, "{told:?}");
            let start = "port 'p': 10 of 1000 packets (1.0 %) ";
            assert!(told[0].starts_with(start) && told[0].contains(setting), "{told:?}");
            let of_trace = of_input(512, true, &losses(&counts(reason, 1, 0), 1000));
            assert_eq!(of_trace.is_empty(), reason != DropReason::FrameTooSmall, "{of_trace:?}");
        }
        let jumbo = of_input(512, true, &losses(&counts(DropReason::FrameTooSmall, 1, 20_000), 9));
        assert!(jumbo[0].ends_with("or turn off the offloads that merge packets"), "{jumbo:?}");
    }

    #[test]
    fn each_loss_at_an_output_names_its_setting() {
        for (reason, setting) in [
            (DropReason::TransmitQueueFull, "ip link set eth1 txqueuelen 32768"),
            (DropReason::TooBig, "ip link set eth1 mtu 9000"),
            (DropReason::OutputFailed, "ip link set eth1 up"),
        ] {
            let counts = counts(reason, 10, 9014);
            let told = of_output("eth1", false, &losses(&counts, 1000));
            assert!(told.len() == 1 && told[0].contains(setting), "{told:?}");
            let failed = of_output("eth1", true, &losses(&counts, 1000));
            assert_eq!(failed.is_empty(), reason == DropReason::OutputFailed, "{failed:?}");
        }
    }

    #[test]
    fn losses_in_nfs_and_between_them_name_their_settings() {
        let mut counters = Counters::new(1, 1, &crate::counters::Former::default());
        let nf = &mut counters.nfs[0];
        nf.packets = 1000;
        assert_eq!(of_nf("n", "nat", 2048, nf), [""; 0]);
        for (reason, setting) in [
            (DropReason::StateFull, "raise its limits: thalweg nf show nat"),
            (DropReason::NoPort, "more addresses or ports"),
            (DropReason::NoRoom, "frame_size in [memory] to more than 2048"),
        ] {
            nf.drops = thalweg_packet::DropCounts::default();
            nf.drops.add(reason, 500);
            nf.drops.add(DropReason::Malformed, 500);
            let told = of_nf("n", "nat", 2048, nf);
            assert!(told.len() == 1 && told[0].contains(setting), "{told:?}");
            assert!(told[0].starts_with("NF 'n': 500 of 1000 packets (50 %)"), "{told:?}");
        }
        counters.chain_drops.add(DropReason::ChainLoop, 1);
        counters.chain_drops.add(DropReason::NoRoute, 2);
        counters.chain_drops.add(DropReason::Policy, 3);
        let told = of_chain(&counters);
        assert!(told[0].starts_with("2 packets dropped between NFs (no-route)"), "{told:?}");
        assert!(told[1].starts_with("1 packet dropped between NFs (chain-loop)"), "{told:?}");
        assert_eq!(told.len(), 2);
    }
}
