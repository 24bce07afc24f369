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
        (good.replacen("sa = 'x'", "sa = 'y'", 1), "there is no such outbound SA"),
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
        (good.replace("sa = 'x'", "sa = 'y'"), "expected an outbound SA: x"),
        (good.replace("'out'", "'in'"), "expected an outbound SA: none is there"),
    ] {
        let told = built(&text).err().unwrap().to_string();
        assert!(told.contains("there is no such outbound SA") && told.contains(expected), "{told}");
    }
}
