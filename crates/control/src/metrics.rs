//! The report as metrics for Prometheus.

use indexmap::IndexMap;
use thalweg_api::Counted;
use thalweg_api::metrics::{Family, Kind, Label, Metrics};
use thalweg_engine::{DeviceReport, LatencyReport, NfReport, PortReport, Report, WorkerReport};

use crate::subject::Subject;

/// The most packet types with metrics of their own: each is a time series. The rest is summed.
const MAX_TYPES: usize = 256;
/// The type of that rest, which no packet type can be called: it has a blank.
const OTHER_TYPES: &str = "(other types)";

/// What of the report and of the API has a metric.
pub(crate) fn metrics(subject: &Subject, report: &Report, api: &Counted) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.extend(of_run(subject, report));
    metrics.extend(of_workers(&report.by_worker));
    metrics.push(of_modes(&report.inputs, &report.outputs));
    metrics.extend(of_links(&report.inputs, &report.outputs));
    metrics.extend(of_inputs(&report.inputs));
    metrics.extend(of_outputs(&report.outputs));
    metrics.extend(of_nfs(&report.nfs));
    metrics.extend(of_types(report));
    metrics.extend(of_classification(report));
    metrics.extend(of_api(api));
    metrics
}

fn counter(name: &'static str, help: &str) -> Family {
    Family::new(Kind::Counter, name, help)
}

fn gauge(name: &'static str, help: &str) -> Family {
    Family::new(Kind::Gauge, name, help)
}

/// Adds a sample for each entry of `counts`, with the entry's name as the label `label`.
fn by(
    family: Family,
    labels: &[Label<'_>],
    label: &'static str,
    counts: &IndexMap<impl AsRef<str>, u64>,
) -> Family {
    counts.iter().fold(family, |family, (name, count)| {
        family.sample(&[labels, &[(label, name.as_ref())]].concat(), *count as f64)
    })
}

/// Quantiles of a latency, in seconds.
fn latency(family: Family, labels: &[Label<'_>], latency: &LatencyReport, count: u64) -> Family {
    let LatencyReport { p50, p90, p99, p999, max } = *latency;
    let quantiles = [(0.5, p50), (0.9, p90), (0.99, p99), (0.999, p999), (1.0, max)];
    family.quantiles(labels, &quantiles.map(|(q, ns)| (q, ns as f64 / 1e9)), count)
}

fn of_run(subject: &Subject, report: &Report) -> Vec<Family> {
    let facts = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("name", &*subject.name),
        ("chain", &*subject.chain),
        ("isa", report.isa),
    ];
    let started = subject.began.1.unix_timestamp_nanos() as f64 / 1e9;
    let time = Family::new(
        Kind::Summary,
        "thalweg_latency_seconds",
        "Time of packets from receive to transmit.",
    );
    let dropped = counter("thalweg_dropped_packets", "Packets dropped or lost, by reason.");
    let in_chain =
        counter("thalweg_chain_dropped_packets", "Packets dropped between NFs, by reason.");
    vec![
        Family::new(Kind::Info, "thalweg_run", "The program, the run and its chain file.")
            .sample(&facts, 1.0),
        gauge("thalweg_start_time_seconds", "Start of the run, since 1970.").sample(&[], started),
        counter("thalweg_reloads", "Reloads that changed something.")
            .sample(&[], report.reloads as f64),
        gauge("thalweg_workers", "Worker threads.").sample(&[], report.workers as f64),
        counter("thalweg_received_packets", "Packets received at all inputs.")
            .sample(&[], report.packets_in as f64),
        counter("thalweg_received_bytes", "Their bytes.").sample(&[], report.bytes_in as f64),
        counter("thalweg_generated_packets", "Packets that NFs generated.")
            .sample(&[], report.generated as f64),
        counter("thalweg_transmitted_packets", "Packets transmitted at all outputs.")
            .sample(&[], report.packets_out as f64),
        counter("thalweg_transmitted_bytes", "Their bytes.").sample(&[], report.bytes_out as f64),
        by(dropped, &[], "reason", &report.drops),
        by(in_chain, &[], "reason", &report.chain_drops),
        latency(time, &[], &report.latency_ns, report.packets_out),
    ]
}

fn of_workers(workers: &[WorkerReport]) -> [Family; 6] {
    let mut families = [
        gauge("thalweg_worker_core", "The core that a worker was on, as of its last looks."),
        counter("thalweg_worker_busy_seconds", "Time in which a worker had something to do."),
        counter("thalweg_worker_bursts", "Bursts of packets that a worker received."),
        counter("thalweg_worker_packets", "The packets in them."),
        counter(
            "thalweg_worker_bursts_taken_over",
            "Times that a worker took a burst further that another one had received.",
        ),
        counter(
            "thalweg_worker_waits",
            "Times that a burst which a worker took through the chain had to wait for its turn.",
        ),
    ];
    for worker in workers {
        let number = worker.worker.to_string();
        let labels = [("worker", &*number)];
        let [core, busy, bursts, packets, taken_over, waits] = families;
        families = [
            match worker.core {
                Some(number) => core.sample(&labels, number.into()),
                None => core,
            },
            busy.sample(&labels, worker.busy_s),
            bursts.sample(&labels, worker.bursts as f64),
            packets.sample(&labels, worker.packets as f64),
            taken_over.sample(&labels, worker.taken_over as f64),
            waits.sample(&labels, worker.waits as f64),
        ];
    }
    families
}

/// All ports, with what they are.
fn ports<'a>(
    inputs: &'a [PortReport],
    outputs: &'a [PortReport],
) -> impl Iterator<Item = (&'static str, &'a PortReport)> {
    let inputs = inputs.iter().map(|port| ("input", port));
    inputs.chain(outputs.iter().map(|port| ("output", port)))
}

/// How packets pass at each port, as it was really obtained.
fn of_modes(inputs: &[PortReport], outputs: &[PortReport]) -> Family {
    let family = Family::new(Kind::Info, "thalweg_port", "How packets pass at a port.");
    ports(inputs, outputs).fold(family, |family, (direction, port)| match &port.mode {
        Some(mode) => {
            let labels = [("direction", direction), ("port", &*port.name), ("mode", &**mode)];
            family.sample(&labels, 1.0)
        }
        None => family,
    })
}

/// What has happened to the interface of each port, and the counters of its device.
fn of_links(inputs: &[PortReport], outputs: &[PortReport]) -> [Family; 2] {
    let mut families = [
        counter(
            "thalweg_port_link_events",
            "Events of the network interface or device of a port, such as that it went down.",
        ),
        // Drivers count what they like: some of these may shrink.
        gauge(
            "thalweg_port_device_counter",
            "Counters of the DPDK device of a port, as its driver names them.",
        ),
    ];
    for (direction, port) in ports(inputs, outputs) {
        let labels = [("direction", direction), ("port", &*port.name)];
        let [events, counters] = families;
        families = [
            by(events, &labels, "event", &port.link_events),
            by(counters, &labels, "counter", &port.device_counters),
        ];
    }
    families
}

fn of_inputs(inputs: &[PortReport]) -> [Family; 7] {
    let mut families = [
        counter("thalweg_input_packets", "Packets that arrived at an input."),
        counter("thalweg_input_bytes", "Their bytes."),
        counter("thalweg_input_dropped_packets", "Packets dropped or lost at an input, by reason."),
        counter(
            "thalweg_input_outside_packets",
            "Packets not received, since they were captured outside of the requested time.",
        ),
        counter(
            "thalweg_input_filtered_packets",
            "Packets of captures not received, since they do not match the filter.",
        ),
        counter(
            "thalweg_input_queue_packets",
            "Packets that arrived at a queue of an input that has several.",
        ),
        counter(
            "thalweg_input_device_dropped_packets",
            "Packets that the interface of an input has dropped before the input had them.",
        ),
    ];
    for port in inputs {
        let labels = [("port", &*port.name)];
        let [packets, bytes, drops, outside, filtered, queues, device] = families;
        families = [
            packets.sample(&labels, port.packets as f64),
            bytes.sample(&labels, port.bytes as f64),
            by(drops, &labels, "reason", &port.drops),
            outside.sample(&labels, port.outside as f64),
            filtered.sample(&labels, port.filtered as f64),
            by_queue(queues, port),
            device.sample(&labels, port.device_drops as f64),
        ];
    }
    families
}

/// The packets of each queue of a port; a run has at most as many as workers.
fn by_queue(family: Family, port: &PortReport) -> Family {
    port.queues.iter().enumerate().fold(family, |family, (number, queue)| {
        let number = number.to_string();
        family.sample(&[("port", &*port.name), ("queue", &*number)], queue.packets as f64)
    })
}

fn of_outputs(outputs: &[PortReport]) -> [Family; 4] {
    let mut families = [
        counter("thalweg_output_packets", "Packets that an output sent."),
        counter("thalweg_output_bytes", "Their bytes."),
        counter(
            "thalweg_output_dropped_packets",
            "Packets dropped or lost at an output, by reason.",
        ),
        counter(
            "thalweg_output_queue_packets",
            "Packets that a queue of an output that has several sent.",
        ),
    ];
    for port in outputs {
        let labels = [("port", &*port.name)];
        let [packets, bytes, drops, queues] = families;
        families = [
            packets.sample(&labels, port.packets as f64),
            bytes.sample(&labels, port.bytes as f64),
            by(drops, &labels, "reason", &port.drops),
            by_queue(queues, port),
        ];
    }
    families
}

fn of_nfs(nfs: &[NfReport]) -> [Family; 15] {
    let time = "Time that packets spent in an NF: that of their batch.";
    let mut families = [
        counter("thalweg_nf_packets", "Packets that an NF received."),
        counter("thalweg_nf_bytes", "Their bytes."),
        counter("thalweg_nf_generated_packets", "Packets that an NF generated."),
        counter("thalweg_nf_dropped_packets", "Packets that an NF dropped, by reason."),
        counter("thalweg_nf_bypassed_packets", "Late packets that bypassed an NF."),
        gauge("thalweg_nf_cycles_per_packet", "Cycles per packet in an NF, since the start."),
        Family::new(Kind::Summary, "thalweg_nf_latency_seconds", time),
        gauge("thalweg_nf_figure", "Figures specific to the kind of an NF."),
        counter("thalweg_nf_device_packets", "Packets that an NF left to its device."),
        counter("thalweg_nf_device_slots", "Slots that the device was given, in rows."),
        counter("thalweg_nf_device_dummies", "Slots that were empty."),
        counter("thalweg_nf_device_launches", "Launches that had packets of an NF."),
        counter(
            "thalweg_nf_device_copied_bytes",
            "Bytes of packets copied to the device and back.",
        ),
        gauge("thalweg_nf_device_failed", "1 if the device of an NF has failed, else 0."),
        gauge("thalweg_nf_device_kept_frames", "Frames that failed devices of an NF keep."),
    ];
    for nf in nfs {
        let labels = [("nf", &*nf.name), ("kind", &*nf.kind)];
        let [
            packets,
            bytes,
            generated,
            drops,
            bypassed,
            cycles,
            time,
            figures,
            given,
            slots,
            dummies,
            launches,
            copied,
            failed,
            kept,
        ] = families;
        families = [
            packets.sample(&labels, nf.packets as f64),
            bytes.sample(&labels, nf.bytes as f64),
            generated.sample(&labels, nf.generated as f64),
            by(drops, &labels, "reason", &nf.drops),
            bypassed.sample(&labels, nf.bypassed as f64),
            cycles.sample(&labels, nf.cycles_per_packet),
            latency(time, &labels, &nf.latency_ns, nf.packets),
            by(figures, &labels, "figure", &nf.figures),
            of_device(given, &labels, nf, |device| device.packets),
            of_device(slots, &labels, nf, |device| device.slots),
            of_device(dummies, &labels, nf, |device| device.dummies),
            of_device(launches, &labels, nf, |device| device.launches),
            of_device(copied, &labels, nf, |device| device.copied_bytes),
            of_device(failed, &labels, nf, |device| u64::from(device.failed.is_some())),
            of_device(kept, &labels, nf, |device| device.kept_frames),
        ];
    }
    families
}

/// Adds a count of an NF's device, if it has one.
fn of_device(
    family: Family,
    labels: &[Label<'_>],
    nf: &NfReport,
    count: fn(&DeviceReport) -> u64,
) -> Family {
    match &nf.device {
        Some(device) => family.sample(labels, count(device) as f64),
        None => family,
    }
}

fn of_types(report: &Report) -> [Family; 2] {
    let mut packets = counter("thalweg_type_packets", "Packets of a packet type, as classified.");
    let mut bytes = counter("thalweg_type_bytes", "Their bytes.");
    let mut rest = (0, 0);
    for (number, (name, counts)) in report.types.iter().enumerate() {
        if number < MAX_TYPES {
            packets = packets.sample(&[("type", name)], counts.packets as f64);
            bytes = bytes.sample(&[("type", name)], counts.bytes as f64);
        } else {
            rest = (rest.0 + counts.packets, rest.1 + counts.bytes);
        }
    }
    if report.types.len() > MAX_TYPES {
        packets = packets.sample(&[("type", OTHER_TYPES)], rest.0 as f64);
        bytes = bytes.sample(&[("type", OTHER_TYPES)], rest.1 as f64);
    }
    [packets, bytes]
}

fn of_classification(report: &Report) -> [Family; 2] {
    let mut events = counter(
        "thalweg_classification_events",
        "Answers of the layers of classification, and the work for them.",
    );
    let mut entries =
        gauge("thalweg_classification_entries", "Megaflows, and their masks (subtables).");
    for (name, count) in &report.classification {
        // These two shrink.
        if ["megaflows", "subtables"].contains(name) {
            entries = entries.sample(&[("table", name)], *count as f64);
        } else {
            events = events.sample(&[("event", name)], *count as f64);
        }
    }
    [events, entries]
}

fn of_api(api: &Counted) -> Vec<Family> {
    let of = |(name, help, count): (&str, &str, u64)| {
        Family::new(Kind::Counter, format!("thalweg_api_{name}"), help).sample(&[], count as f64)
    };
    api.each().map(of).collect()
}
