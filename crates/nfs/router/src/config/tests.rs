//! Options, and the mistakes in them.

use super::*;

fn read(text: &str) -> Result<Config, Vec<String>> {
    let outputs = ["lan".to_owned(), "out".to_owned()];
    let environment = Environment { outputs: &outputs, ..Environment::default() };
    Section::parse_text(text, |section| Config::read(section, &environment))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn a_mac_address_is_six_pairs_and_nothing_else() {
    assert_eq!(parse_mac("02:0a:ff:00:00:01"), Some([2, 10, 255, 0, 0, 1]));
    assert_eq!(parse_mac("02-0A-FF-00-00-01"), Some([2, 10, 255, 0, 0, 1]));
    for bad in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "0g:00:00:00:00:01"] {
        assert_eq!(parse_mac(bad), None, "{bad}");
    }
}

#[test]
fn a_port_takes_its_name_as_output_and_ethernets_mtu() {
    let config = read(
        r#"routes = "r"
        [ports.lan]
        mac = "02:00:00:00:00:01"
        ip = "192.0.2.1"
        [ports.wan]
        mac = "02:00:00:00:00:02"
        output = "out"
        mtu = 9000
        default_mac = "02:00:00:00:00:ff"
        neighbors = { "203.0.113.1" = "02:00:00:00:00:0a", "fe80::1" = "02:00:00:00:00:0b" }"#,
    )
    .unwrap();
    let [lan, wan] = &config.ports.0[..] else { panic!("two ports") };
    assert_eq!(
        (lan.output, lan.mtu, lan.neighbor(IpAddr::from([1; 4]))),
        (PortIndex(0), 1500, None)
    );
    assert_eq!((wan.output, wan.mtu), (PortIndex(1), 9000));
    assert_eq!(wan.neighbor("fe80::1".parse().unwrap()), Some([2, 0, 0, 0, 0, 0xb]));
    assert_eq!(wan.neighbor("fe80::2".parse().unwrap()), Some([2, 0, 0, 0, 0, 0xff]));
    assert_eq!(config.icmp_rate, 1000);
    let source = config.ports.error_source(RouterPort(1), IpAddr::from([1; 4]));
    assert_eq!(source, Some(IpAddr::from([192, 0, 2, 1])));
    assert_eq!(config.ports.error_source(RouterPort(1), IpAddr::from([1; 16])), None);
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let errors = read(
        r#"routes = "r"
[ports.lan]
mac = "03:00:00:00:00:01"
ip = "224.0.0.1"
ipv6 = "2001:db8::1"
mtu = 1000
[ports.wan]
mac = "02:00:00:00:00:02"
ip = "10.0.0.1/8"
neighbors = { "x" = "y" }
"#,
    )
    .unwrap_err();
    let places: Vec<_> = errors.iter().map(|e| e.split(' ').next().unwrap()).collect();
    let lines = ["4:6", "3:7", "6:7", "7:8", "9:6", "10:21", "10:15"];
    let expected: Vec<_> = lines.iter().map(|at| format!("chain.toml:{at}:")).collect();
    assert_eq!(places, expected, "{errors:#?}");
    assert!(errors[3].contains("one of lan, out"), "{}", errors[3]);
}

#[test]
fn two_ports_cannot_have_one_address() {
    let errors = read(
        "routes = 'r'\nports.lan = { mac = '02:00:00:00:00:01', ip = '10.0.0.1' }\n\
         ports.out = { mac = '02:00:00:00:00:02', ip = '10.0.0.1' }",
    )
    .unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("ports 'lan' and 'out' have the same address 10.0.0.1"));
}

#[test]
fn the_interface_of_a_port_is_its_own_or_that_of_its_output() {
    let outputs = ["lan".to_owned(), "out".to_owned()];
    let interfaces = [String::new(), "eth1".to_owned()];
    let environment =
        Environment { outputs: &outputs, interfaces: &interfaces, ..Environment::default() };
    let read = |text: &str| {
        Section::parse_text(text, |section| Config::read(section, &environment))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let ports = "ports.a = { mac = '02:00:00:00:00:01', output = 'lan' }\n\
                 ports.b = { mac = '02:00:00:00:00:02', output = 'out' }\n\
                 ports.c = { mac = '02:00:00:00:00:03', output = 'out', interface = 'eth2' }";
    let config = read(&format!("kernel_table = 7\n{ports}")).unwrap();
    let names: Vec<_> = config.ports.0.iter().map(|port| port.interface.as_deref()).collect();
    assert_eq!(names, [Some("lan"), Some("eth1"), Some("eth2")]);
    for (text, mistake) in [
        (ports.replace(", interface = 'eth2'", ""), "a router without routes"),
        (format!("routes = 'r'\n{ports}"), "`interface` has no effect without `kernel_table`"),
        (format!("kernel_table = 0\n{ports}"), "not the number of a table: '0'"),
        (
            format!("kernel_table = 7\n{ports}").replace("eth2", "eth1"),
            "ports 'b' and 'c' have the same interface 'eth1'",
        ),
    ] {
        let errors = read(&text).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(mistake), "{}", errors[0]);
    }
}
