//! What cannot be: one clear error each, and nothing is left of it.

use super::*;

/// The error of opening a device.
fn error(settings: &DpdkSettings, pool: &Arc<Pool>) -> String {
    let error = DpdkInput::open(settings, pool, 1).map(drop).unwrap_err().to_string();
    assert_eq!(pool.in_use(), 0, "{error}");
    error
}

/// The keys at which that error is shown.
fn keys(settings: &DpdkSettings, pool: &Arc<Pool>) -> &'static [&'static str] {
    DpdkInput::open(settings, pool, 1).map(drop).unwrap_err().refusal().keys
}

#[test]
fn devices_that_are_not_there_are_named_with_what_was_expected() {
    with_dpdk(|| {
        let pool = pool();
        for (device, expected) in [
            (
                "net_nosuch0",
                "DPDK net_nosuch0: DPDK has no driver of this name; expected a virtual device, such \
                 as net_af_packet0, net_ring0 or net_pcap0",
            ),
            (
                "0000:ff:1f.7",
                "DPDK 0000:ff:1f.7: there is no such PCI device; lspci -D lists those that there are",
            ),
            ("net_af_packet0,iface=nosuch", "interface nosuch: there is no such interface"),
            ("net_pcap0,rx_pcap=/nosuch.pcap", "/nosuch.pcap: No such file or directory"),
            ("net_null0,nosuch=1", "DPDK net_null0: its driver refuses it: "),
        ] {
            let error = error(&settings(device), &pool);
            assert!(error.contains(expected), "{error}");
        }
        // What was refused can be opened once it is right.
        drop(input(&settings("net_null0"), &pool));
    });
}

#[test]
fn a_pci_device_of_the_kernel_is_not_taken() {
    with_dpdk(|| {
        let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten();
        let names = devices.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let Some(name) = names.min() else { return };
        let error = error(&settings(&name), &pool());
        assert!(error.contains("no driver of DPDK takes it"), "{error}");
        assert!(error.contains(&format!("dpdk-devbind.py -b vfio-pci {name}")), "{error}");
    });
}

#[test]
fn queues_that_a_device_cannot_have_are_refused() {
    with_dpdk(|| {
        let pool = pool();
        let wanted = DpdkSettings { queues: 200, descriptors: 32, ..settings("net_ring0") };
        let pool_of_many = Arc::new(Pool::anonymous(65_536, 2048).unwrap());
        let told = DpdkInput::open(&wanted, &pool_of_many, 1).map(drop).unwrap_err().to_string();
        assert!(told.contains("and 'queues' is 200; expected at most "), "{told}");
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("out.pcap");
        let device = format!("net_pcap0,tx_pcap={}", to.display());
        let two = DpdkSettings { queues: 2, ..settings(&device) };
        let told = error(&two, &pool);
        assert!(told.contains("and 'queues' is 2; expected at most "), "{told}");
        assert_eq!(keys(&two, &pool), ["queues"]);
    });
}

#[test]
fn memory_that_is_too_small_is_named_with_what_is_needed() {
    with_dpdk(|| {
        let small = Arc::new(Pool::anonymous(512, 2048).unwrap());
        let told = error(&settings("net_ring0"), &small);
        assert!(told.ends_with("or frames = 1024 or more in [memory]"), "{told}");
        let at = keys(&settings("net_ring0"), &small);
        assert_eq!(at, ["descriptors", "queues", "memory.frames"]);
        let jumbo = DpdkSettings { mtu: Some(9000), ..settings("net_null0") };
        let told = error(&jumbo, &pool());
        assert!(told.contains("frame_size = 9152 or more in [memory]"), "{told}");
        assert_eq!(keys(&jumbo, &pool()), ["mtu", "memory.frame_size"]);
        // All frames are in use.
        let pool = pool();
        let mut taken = Vec::new();
        pool.take_many(usize::MAX, |frame| taken.push(frame));
        let failure = DpdkInput::open(&settings("net_null0"), &pool, 1).map(drop).unwrap_err();
        assert!(failure.to_string().contains("fewer than 384 free frames"), "{failure}");
        pool.give_back(taken);
    });
}

#[test]
fn an_mtu_that_a_device_cannot_have_and_checks_that_it_does_not_make_are_refused() {
    with_dpdk(|| {
        let pool = pool();
        let checked = DpdkSettings { drop_bad_checksums: true, ..settings("net_ring0") };
        let told = error(&checked, &pool);
        assert!(told.contains("it does not check checksums"), "{told}");
        assert_eq!(keys(&checked, &pool), ["drop_bad_checksums"]);
    });
}

#[test]
fn a_device_has_one_input_and_one_output_with_the_same_options() {
    with_dpdk(|| {
        let (pool, first) = (pool(), settings("net_ring0"));
        let input = input(&first, &pool);
        let told = |wanted: &DpdkSettings, pool: &Arc<Pool>| {
            DpdkInput::open(wanted, pool, 1).map(drop).unwrap_err().to_string()
        };
        assert!(
            told(&first, &pool).contains("another input has it; expected one input and one output")
        );
        let other = DpdkSettings { descriptors: 512, ..first.clone() };
        let told_output = |wanted: &DpdkSettings, pool: &Arc<Pool>| {
            DpdkOutput::open(wanted, pool, 1).map(drop).unwrap_err().to_string()
        };
        let refused = told_output(&other, &pool);
        assert!(refused.contains("'descriptors' is not that of another input"), "{refused}");
        let others = Arc::new(Pool::anonymous(4096, 2048).unwrap());
        assert!(told_output(&first, &others).contains("different packet memory"));
        drop(input);
        assert!(DpdkInput::open(&other, &others, 1).is_ok());
    });
}
