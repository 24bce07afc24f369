//! Mistakes in the configuration.

use super::*;

#[test]
fn mistakes_are_named_and_keys_are_not() {
    let good = options(CBC, false, false, true);
    let wrong = [
        (
            good.replace("202122232425262728292a2b2c2d2e2f30313233", "1011"),
            "authentication_key has 2 bytes",
        ),
        (
            good.replace("000102030405060708090a0b0c0d0e0f", "zz"),
            "encryption_key is not hexadecimal",
        ),
        (good.replace("aes128-cbc", "aes999-cbc"), "unknown suite"),
        (good.replace("spi = 4660", "spi = 5"), "SPIs below 256 are reserved"),
        (good.replacen("sa = 'x'", "sa = 'y'", 1), "unknown outbound SA"),
        (good.replace("'192.0.2.2'", "'2001:db8::2'"), "the end points differ in IP version"),
        (good.replace("match = 'ip'\n", "match = 'ipx'\n"), "unknown protocol 'ipx'"),
        (good.clone() + "[[sa]]\n", "missing field"),
        (good.replace("esn =", "udp_ports = [1, 2, 3]\nesn ="), "not two ports"),
        (good.replace("esn =", "udp_ports = [1]\nesn ="), "not two ports"),
        (good.replace("esn =", "udp_ports = [1, 0]\nesn ="), "port 0"),
    ];
    for (text, message) in wrong {
        let errors = built(&text).err().unwrap_or_else(|| panic!("{message}: accepted")).0;
        let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(all.len() == 1 && all[0].contains(message), "{message}: {all:?}");
        assert!(
            !all.iter().any(|e| e.contains("0405060708") || e.contains("2425262728")),
            "{all:?}"
        );
    }
}

#[test]
fn a_policy_without_its_association_is_told_what_there_is() {
    let good = options(CBC, false, false, true);
    for (text, expected) in [
        (good.replace("sa = 'x'", "sa = 'y'"), "expected the name of an outbound SA: x"),
        (
            good.replace("'out'", "'in'"),
            "expected an SA with direction = \"out\"; none is configured",
        ),
    ] {
        let told = built(&text).err().unwrap().to_string();
        assert!(told.contains("unknown outbound SA") && told.contains(expected), "{told}");
    }
}

#[test]
fn end_points_are_those_of_a_tunnel() {
    let told = |text: &str| built(text).err().map(|e| e.to_string()).unwrap_or_default();
    for outbound in [false, true] {
        let good = options(CBC, false, false, outbound);
        let ends = |source: &str, destination: &str| {
            let text = good.replace("192.0.2.2", "END").replace("192.0.2.1", source);
            told(&text.replace("END", destination))
        };
        assert_eq!(ends("192.0.2.1", "192.0.2.2"), "");
        for (source, destination) in [
            ("224.0.0.1", "192.0.2.2"),
            ("ff02::1", "2001:db8::2"),
            ("255.255.255.255", "192.0.2.2"),
            ("192.0.2.1", "0.0.0.0"),
            ("2001:db8::1", "::"),
            ("192.0.2.1", "239.1.1.1"),
        ] {
            let told = ends(source, destination);
            assert!(told.contains("not the address of a host"), "{source} {destination}: {told}");
        }
        assert!(
            ends("2001:db8::1", "2001:db8::1")
                .contains("source and destination of the tunnel are the same")
        );
        // Only an inbound SA may leave its source unspecified.
        for (source, destination) in [("0.0.0.0", "192.0.2.2"), ("::", "2001:db8::2")] {
            assert_eq!(ends(source, destination).contains("not the address of a host"), outbound);
        }
        assert!(
            told(&good.replace("name = 'x'", "name = ''")).contains("an SA with an empty name")
        );
    }
    for own in ["icmp_source = '127.0.0.1'", "icmp_source = '0.0.0.0'", "icmp6_source = 'ff02::1'"]
    {
        let told = told(&format!("{own}\n{}", options(CBC, false, false, true)));
        assert!(told.contains("not the address of a host"), "{own}: {told}");
    }
}

#[test]
fn a_receiver_tells_associations_apart_by_their_spi() {
    let one = options(CBC, false, false, true).split("[[policy]]").next().unwrap().to_owned();
    let two = |[from, to]: [&str; 2]| {
        let other = one.replace("'x'", "'y'").replace(from, to);
        built(&(one.clone() + &other)).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let twice = "a second outbound SA with SPI 4660 to 192.0.2.2";
    assert!(two(["", ""]).contains(twice));
    assert!(two(["192.0.2.1", "192.0.2.7"]).contains(twice));
    assert_eq!(two(["4660", "4661"]), "");
    assert_eq!(two(["192.0.2.2", "192.0.2.3"]), "");
    // Two behind one NAT.
    assert_eq!(two(["esn =", "udp_ports = [4500, 4501]\nesn ="]), "");
}
