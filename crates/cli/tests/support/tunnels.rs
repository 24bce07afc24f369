//! Chains with an NF of kind `ipsec`, which a device can serve in part.
#![allow(dead_code)] // each test file uses a part

/// An association in each direction for each of three ways: what devices do, the same with extended
/// sequence numbers, and a suite that they do not do.
pub fn associations(direction: &str) -> String {
    let association = |name: &str, spi: u32, more: &str| {
        format!(
            "[[nf.vpn.sa]]\nname = '{name}'\ndirection = '{direction}'\nspi = {spi}\n\
             source = '192.0.2.1'\ndestination = '192.0.2.10'\n{more}\n"
        )
    };
    let cbc = "suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '7e1a90b3c4d5f60718293a4b5c6d7e8f'\n\
               authentication_key = '00112233445566778899aabbccddeeff01234567'";
    let other = "suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '000102030405060708090a0b0c0d0e0f'\n\
                 authentication_key = 'ff112233445566778899aabbccddeeff01234567'\nesn = true";
    let gcm = "suite = 'aes128-gcm16'\nencryption_key = '1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11'";
    [association("a", 4097, cbc), association("b", 4098, other), association("c", 4099, gcm)]
        .concat()
}

/// The chain that seals packets of a capture.
pub fn sealing(at: &str) -> String {
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = 'clear.pcap'\n[output.out]\ncapture = 'sealed.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{at}{}\
         [[nf.vpn.policy]]\nmatch = 'tcp'\naction = 'protect'\nsa = 'a'\n\
         [[nf.vpn.policy]]\nmatch = 'udp,tp_dst=0x0/0x1'\naction = 'protect'\nsa = 'b'\n\
         [[nf.vpn.policy]]\nmatch = 'udp'\naction = 'protect'\nsa = 'c'\n\
         [[route]]\npath = ['ingress', 'vpn', 'out']\n",
        associations("out")
    )
}

/// The chain that opens them: twice, so that replayed packets are among them.
pub fn opening(at: &str) -> String {
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = 'damaged.pcap'\nloop = 2\n\
         [output.out]\ncapture = 'opened.pcap'\n\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{at}{}\
         [[route]]\npath = ['ingress', 'vpn', 'out']\n",
        associations("in")
    )
}

/// The keys of an NF at this place; a device that shares its cores with other tests may take its time.
pub fn key(at: &str) -> String {
    let patience = if at == "cpu" { "" } else { "failed_after_ms = 30000\n" };
    format!("at = '{at}'\n{patience}")
}

/// The chain that seals packets, opens them again, and passes all others by: its NFs share a device.
pub fn back_and_forth(at: &str, more: &str) -> String {
    let nf = |name: &str, direction: &str, policies: &str, groups: &str| {
        let associations = associations(direction).replace("nf.vpn", &format!("nf.{name}"));
        format!(
            "[nf.{name}]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{}{groups}{associations}{policies}",
            key(at)
        )
    };
    let policy = "[[nf.seal.policy]]\nmatch = 'tcp'\naction = 'protect'\nsa = 'a'\n\
                  [[nf.seal.policy]]\nmatch = 'udp'\naction = 'protect'\nsa = 'b'\n";
    format!(
        "[run]\nseed = 5\n[input.in]\ncapture = 'clear.pcap'\n[output.out]\ncapture = 'back.pcap'\n\
         {}{}[[route]]\npath = ['ingress', 'seal', 'open', 'out']\n",
        nf("seal", "out", policy, ""),
        nf("open", "in", "", more)
    )
}
