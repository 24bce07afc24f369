//! The route file: `PREFIX NEXT-HOP DEV`, one route per line.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use thalweg_source::{Mistakes, Source, SourceError};

use super::config::Ports;
use super::prefix::{Address, IpPrefix, Prefix};
use super::table::{NextHop, RouteList, RouterPort, Ways};

/// The line number of routes that are not from the file: the router's own addresses.
const NO_LINE: u32 = u32::MAX;

const FORM: &str = "'PREFIX NEXT-HOP DEV' or 'PREFIX direct DEV', optionally with further \
                    'NEXT-HOP DEV' pairs, 'PREFIX blackhole' or 'PREFIX unreachable'";

/// The content of a route file.
#[derive(Debug)]
pub struct ParsedRoutes {
    /// Its routes, and those to the router's own addresses.
    pub list: RouteList,
    /// Repeated lines.
    pub warnings: Vec<SourceError>,
}

/// Reads the route file `source` of a router with `ports`.
///
/// # Errors
/// Its mistakes, each once: an unknown next hop is one, however many routes name it.
pub fn parse_routes(source: &Source, ports: &Ports) -> Result<ParsedRoutes, Vec<SourceError>> {
    let mut parser = Parser::new(source, ports);
    parser.own_addresses();
    for (number, (span, line)) in (0..).zip(source.lines()) {
        if let Err(mistake) = parser.line(number, line) {
            let at = span.start + mistake.at(line);
            parser.errors.push_with(|| mistake.in_file(source, at));
        }
    }
    parser.finish()
}

/// The routes of a router without a route file: those to its own addresses.
pub(super) fn own_routes(ports: &Ports) -> ParsedRoutes {
    let mut list = RouteList::default();
    for (address, port) in ports.own_addresses() {
        list.push(IpPrefix::of_host(address), NextHop::Local { port });
    }
    ParsedRoutes { list, warnings: Vec::new() }
}

/// A route with the number of its next hop and of its line.
type Line<A> = (Prefix<A>, u32, u32);

struct Parser<'a> {
    source: &'a Source,
    ports: &'a Ports,
    list: RouteList,
    /// Next hops by the two words that name them; `None` for those already
    /// reported as mistakes.
    hops: HashMap<(&'a str, &'a str), Option<u32>>,
    v4: Vec<Line<u32>>,
    v6: Vec<Line<u128>>,
    errors: Mistakes,
    warnings: Mistakes,
}

/// A mistake in a line: the wrong part, the reason, and what was expected.
struct Mistake<'a> {
    text: &'a str,
    message: String,
    expected: String,
}

impl<'a> Mistake<'a> {
    fn new(text: &'a str, message: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { text, message: message.into(), expected: expected.into() }
    }

    /// The offset of the wrong text in `line`, which holds it.
    fn at(&self, line: &str) -> usize {
        self.text.as_ptr() as usize - line.as_ptr() as usize
    }

    /// The mistake, whose text is at the byte `at` of the file.
    fn in_file(&self, source: &Source, at: usize) -> SourceError {
        source.error(at..at + self.text.len(), self.message.as_str(), self.expected.as_str())
    }
}

impl<'a> Parser<'a> {
    fn new(source: &'a Source, ports: &'a Ports) -> Self {
        Self {
            source,
            ports,
            list: RouteList::default(),
            hops: HashMap::new(),
            v4: Vec::new(),
            v6: Vec::new(),
            errors: Mistakes::default(),
            warnings: Mistakes::default(),
        }
    }

    fn own_addresses(&mut self) {
        for (address, port) in self.ports.own_addresses() {
            let hop = self.list.intern(NextHop::Local { port });
            match address {
                IpAddr::V4(a) => self.v4.push((Prefix::holding(a.into(), 32), hop, NO_LINE)),
                IpAddr::V6(a) => self.v6.push((Prefix::holding(a.into(), 128), hop, NO_LINE)),
            }
        }
    }

    fn line(&mut self, number: u32, line: &'a str) -> Result<(), Mistake<'a>> {
        let text = line.split_once('#').map_or(line, |(text, _)| text);
        let mut words = text.split_ascii_whitespace();
        let Some(prefix) = words.next() else { return Ok(()) };
        let route = parse_prefix(prefix)?;
        let Some(target) = words.next() else {
            return Err(Mistake::new(prefix, "a route without a next hop", FORM));
        };
        if matches!(target, "blackhole" | "unreachable") {
            if let Some(word) = words.next() {
                return Err(Mistake::new(word, "unexpected word", FORM));
            }
            let hop = self.hop(target, "", route)?;
            self.push(route, hop, number);
            return Ok(());
        }
        let (mut next, mut hops) = (Some(target), Vec::new());
        while let Some(target) = next {
            let Some(dev) = words.next() else {
                return Err(Mistake::new(target, "a next hop without a port", FORM));
            };
            if matches!(target, "blackhole" | "unreachable") {
                return Err(Mistake::new(target, "not allowed among several next hops", FORM));
            }
            hops.push(self.hop(target, dev, route)?);
            next = words.next();
        }
        let hop = match hops[..] {
            [hop] => hop,
            _ => self.multipath(target, &hops)?,
        };
        self.push(route, hop, number);
        Ok(())
    }

    /// The number of a next hop; `None` for one already reported as a mistake.
    fn hop(
        &mut self,
        target: &'a str,
        dev: &'a str,
        route: IpPrefix,
    ) -> Result<Option<u32>, Mistake<'a>> {
        let hop = match self.hops.get(&(target, dev)) {
            Some(known) => *known,
            None => self.new_hop(target, dev)?,
        };
        if let Some(hop) = hop
            && let NextHop::Gateway { address, .. } = self.list.hop(hop)
            && address.is_ipv4() != matches!(route, IpPrefix::V4(_))
        {
            let message = "the next hop's IP version is not the prefix's";
            return Err(Mistake::new(target, message, version(route)));
        }
        Ok(hop)
    }

    /// The number of an ECMP group of next hops.
    fn multipath(
        &mut self,
        first: &'a str,
        hops: &[Option<u32>],
    ) -> Result<Option<u32>, Mistake<'a>> {
        let known: Option<Vec<u32>> = hops.iter().copied().collect();
        let Some(known) = known else { return Ok(None) };
        let ways = known.into_iter().map(|hop| self.list.hop(hop).clone()).collect();
        let Some(ways) = Ways::new(ways) else {
            let expected = format!("at most {}", Ways::MOST);
            return Err(Mistake::new(first, "too many next hops", expected));
        };
        Ok(Some(self.list.intern(NextHop::Multipath(ways))))
    }

    fn push(&mut self, route: IpPrefix, hop: Option<u32>, number: u32) {
        let Some(hop) = hop else { return };
        match route {
            IpPrefix::V4(prefix) => self.v4.push((prefix, hop, number)),
            IpPrefix::V6(prefix) => self.v6.push((prefix, hop, number)),
        }
    }

    /// Reads a next hop that is not in `hops` yet.
    fn new_hop(&mut self, target: &'a str, dev: &'a str) -> Result<Option<u32>, Mistake<'a>> {
        // A mistake in it is reported here, and not again for other routes.
        self.hops.insert((target, dev), None);
        let hop = match target {
            "blackhole" => NextHop::Blackhole,
            "unreachable" => NextHop::Unreachable,
            "direct" | "-" => NextHop::Direct { port: self.port(dev)? },
            _ => self.gateway(target, dev)?,
        };
        let id = Some(self.list.intern(hop));
        self.hops.insert((target, dev), id);
        Ok(id)
    }

    fn port(&self, dev: &'a str) -> Result<RouterPort, Mistake<'a>> {
        self.ports.find(dev).ok_or_else(|| {
            let expected = format!("one of {}", self.ports.names());
            Mistake::new(dev, "unknown port", expected)
        })
    }

    fn gateway(&self, target: &'a str, dev: &'a str) -> Result<NextHop, Mistake<'a>> {
        let Ok(address) = target.parse::<IpAddr>() else {
            return Err(Mistake::new(target, "not a next hop", FORM));
        };
        let port = self.port(dev)?;
        if address.is_multicast() || address.is_unspecified() || address.is_loopback() {
            return Err(Mistake::new(target, "not a usable next-hop address", "a unicast address"));
        }
        if self.ports.own_addresses().any(|(own, _)| own == address) {
            let message = "the router cannot be its own next hop";
            return Err(Mistake::new(target, message, "another router's address"));
        }
        let on = self.ports.get(port);
        let mac = on.neighbor(address);
        if mac.is_none() && !on.asks_for(address) && on.interface.is_none() {
            let message = format!("the MAC address of this next hop on '{dev}' is unknown");
            let expected = if on.resolve {
                format!("an address of its IP version for port '{dev}', to resolve it from")
            } else {
                format!("an entry in `neighbors` of port '{dev}', its `default_mac`, or `resolve`")
            };
            return Err(Mistake::new(target, message, expected));
        }
        Ok(NextHop::Gateway { address, port, mac })
    }

    fn finish(mut self) -> Result<ParsedRoutes, Vec<SourceError>> {
        let (mut v4, mut v6) = (std::mem::take(&mut self.v4), std::mem::take(&mut self.v6));
        self.find_repeated(&mut v4);
        self.find_repeated(&mut v6);
        let errors = self.errors.into_vec();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut list = self.list;
        for (prefix, hop, _) in v4 {
            list.push_interned(prefix.into(), hop);
        }
        for (prefix, hop, _) in v6 {
            list.push_interned(prefix.into(), hop);
        }
        Ok(ParsedRoutes { list, warnings: self.warnings.into_vec() })
    }

    /// Sorts `routes`; a repeated prefix is a mistake if its next hops differ,
    /// and a warning if they do not.
    fn find_repeated<A: Address>(&mut self, routes: &mut [Line<A>]) {
        routes.sort_by_key(|(prefix, _, _)| *prefix);
        for pair in routes.windows(2) {
            let [(one, one_hop, first), (other, other_hop, again)] = *pair else { continue };
            if one != other {
                continue;
            }
            let (problems, message) = if first == NO_LINE || again == NO_LINE {
                (&mut self.errors, "a route to the router's own address".to_owned())
            } else if one_hop == other_hop {
                (&mut self.warnings, format!("line {} already has this route", first + 1))
            } else {
                let before = first + 1;
                (&mut self.errors, format!("line {before} routes this prefix to another next hop"))
            };
            // Own addresses come before the file's routes, and the sort is stable.
            let source = self.source;
            problems.push_with(|| {
                let (span, line) = source.lines().nth(again as usize).unwrap_or((0..0, ""));
                let word = line.split_ascii_whitespace().next().unwrap_or(line);
                let expected = "one line for each prefix, with all of its next hops";
                let mistake = Mistake::new(word, message, expected);
                mistake.in_file(source, span.start + mistake.at(line))
            });
        }
    }
}

fn version(prefix: IpPrefix) -> &'static str {
    match prefix {
        IpPrefix::V4(_) => "an IPv4 address",
        IpPrefix::V6(_) => "an IPv6 address",
    }
}

fn parse_prefix(text: &str) -> Result<IpPrefix, Mistake<'_>> {
    let Some((address, len)) = text.split_once('/') else {
        return Err(Mistake::new(text, "a prefix without a length", "address/length"));
    };
    let len = parse_decimal(len.as_bytes(), 128).ok_or_else(|| {
        Mistake::new(len, "not a prefix length", "0 to 32 for IPv4, 0 to 128 for IPv6")
    })? as u8;
    if let Some(first) = parse_ipv4(address.as_bytes()) {
        return finish_prefix(text, first, len).map(IpPrefix::V4);
    }
    match address.parse::<Ipv6Addr>() {
        Ok(first) => finish_prefix(text, u128::from(first), len).map(IpPrefix::V6),
        Err(_) => Err(Mistake::new(address, "not an IP address", "an IPv4 or IPv6 address")),
    }
}

fn finish_prefix<A: Address>(text: &str, first: A, len: u8) -> Result<Prefix<A>, Mistake<'_>> {
    Prefix::new(first, len).ok_or_else(|| {
        if len > A::BITS {
            let expected = format!("a length of 0 to {}", A::BITS);
            return Mistake::new(text, "a prefix longer than the address", expected);
        }
        let right = Prefix::holding(first, len);
        Mistake::new(text, "bits are set after the prefix length", format!("{right}"))
    })
}

/// Four decimal numbers joined by dots. Parsed by hand, since a full table has
/// a million of them.
fn parse_ipv4(text: &[u8]) -> Option<u32> {
    let mut parts = text.splitn(4, |byte| *byte == b'.');
    let mut address = 0;
    for _ in 0..4 {
        address = address << 8 | parse_decimal(parts.next()?, 255)?;
    }
    Some(address)
}

/// A decimal number of at most three digits without leading zeros, up to `max`.
fn parse_decimal(text: &[u8], max: u32) -> Option<u32> {
    let plain = matches!(text, [_] | [b'1'..=b'9', _] | [b'1'..=b'9', _, _]);
    let digits = text.iter().all(u8::is_ascii_digit);
    let value = || text.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    (plain && digits).then(value).filter(|value| *value <= max)
}

#[cfg(test)]
mod tests {
    use super::super::config::Port;
    use super::*;
    use thalweg_packet::PortIndex;

    fn ports() -> Ports {
        let port = |name: &str, n: u8| Port {
            name: name.into(),
            mac: [2, 0, 0, 0, 0, n],
            ip: Some([192, 0, 2, n].into()),
            ipv6: None,
            output: PortIndex(n.into()),
            output_name: name.into(),
            interface: None,
            mtu: 1500,
            default_mac: None,
            resolve: false,
            neighbors: vec![(IpAddr::from([10, 0, 0, n]), [2, 0, 0, 0, 1, n])],
        };
        let mut ports = vec![port("lan", 1), port("wan", 2)];
        ports[1].neighbors.push(("fe80::1".parse().unwrap(), [2, 0, 0, 0, 6, 2]));
        Ports::new(ports)
    }

    fn parse(text: &str) -> Result<ParsedRoutes, Vec<String>> {
        parse_routes(&Source::new("r.txt", text), &ports())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_forms_of_a_line_are_read() {
        let parsed = parse(
            "# a comment\n\n0.0.0.0/0 10.0.0.2 wan # default\n 10.0.0.0/24\tdirect lan\r\n\
             10.1.0.0/16 - lan\n10.2.0.0/16 blackhole\n10.3.0.0/16 unreachable\n\
             ::/0 fe80::1 wan\n2001:db8::/32 direct lan",
        )
        .unwrap();
        assert_eq!(parsed.list.len(), (5 + 2, 2));
        assert!(parsed.warnings.is_empty());
    }

    #[test]
    fn every_mistake_names_line_column_text_and_expectation() {
        let mistakes = [
            ("10.0.0.0 10.0.0.1 lan", "1:1: a prefix without a length: '10.0.0.0'"),
            ("10.0.0.0/33 10.0.0.1 lan", "1:1: a prefix longer than the address"),
            ("10.0.0.0/x 10.0.0.1 lan", "1:10: not a prefix length: 'x'"),
            ("10.0.0.0/08 10.0.0.1 lan", "1:10: not a prefix length: '08'"),
            ("10.0.0.1/8 10.0.0.1 lan", "expected 10.0.0.0/8"),
            ("2001:db8::1/32 fe80::1 wan", "expected 2001:db8::/32"),
            ("10.0.0.256/32 10.0.0.1 lan", "1:1: not an IP address: '10.0.0.256'"),
            ("10.0.0.0/8", "1:1: a route without a next hop"),
            ("10.0.0.0/8 10.0.0.1", "1:12: a next hop without a port: '10.0.0.1'"),
            ("10.0.0.0/8 10.0.0.1 lan x", "1:25: a next hop without a port: 'x'"),
            ("10.0.0.0/8 blackhole lan", "1:22: unexpected word: 'lan'"),
            ("10.0.0.0/8 10.0.0.1 dmz", "1:21: unknown port: 'dmz'"),
            ("10.0.0.0/8 10.0.0.9 lan", "1:12: the MAC address of this next hop on 'lan'"),
            ("10.0.0.0/8 gw lan", "1:12: not a next hop: 'gw'"),
            ("10.0.0.0/8 224.0.0.1 lan", "1:12: not a usable next-hop address"),
            ("10.0.0.0/8 192.0.2.2 lan", "1:12: the router cannot be its own next hop"),
            ("10.0.0.0/8 fe80::1 wan", "1:12: the next hop's IP version is not the prefix's"),
            ("::/0 10.0.0.1 lan", "1:6: the next hop's IP version is not the prefix's"),
            ("192.0.2.1/32 direct lan", "1:1: a route to the router's own address"),
        ];
        for (line, expected) in mistakes {
            let errors = parse(line).unwrap_err();
            assert_eq!(errors.len(), 1, "{line}: {errors:?}");
            assert!(errors[0].contains(expected), "{line}: {}", errors[0]);
        }
    }

    #[test]
    fn mistakes_are_reported_up_to_a_hundred_and_counted_in_full() {
        let errors = parse("x\n10.0.0.0/8 10.0.0.1 lan\ny/1 direct lan\n").unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors[1].starts_with("r.txt:3:1: not an IP address: 'y'"), "{}", errors[1]);
        let errors = parse(&"x\n".repeat(250)).unwrap_err();
        assert_eq!(errors.len(), 101);
        assert!(errors[100].contains("; 149 more mistakes"), "{}", errors[100]);
        let errors = parse_routes(&Source::new("r.txt", "x\n".repeat(160_147)), &ports());
        assert_eq!(thalweg_source::count(&errors.unwrap_err()), 160_147);
        // An unknown port is one mistake, however many routes name it.
        let many: Vec<_> = (0..50).map(|i| format!("10.{i}.0.0/16 10.0.0.1 dmz")).collect();
        assert_eq!(parse(&many.join("\n")).unwrap_err().len(), 1);
    }

    #[test]
    fn a_repeated_prefix_is_a_warning_or_with_another_next_hop_a_mistake() {
        let twice = "10.0.0.0/8 direct lan\n11.0.0.0/8 direct lan\n10.0.0.0/8 direct lan\n";
        let parsed = parse(twice).unwrap();
        assert_eq!(parsed.warnings.len(), 1);
        assert_eq!(parsed.warnings[0].line(), 3);
        let errors = parse(&twice.replace("11.0.0.0/8", "10.0.0.0/8").replacen("lan", "wan", 1));
        let errors = errors.unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("r.txt:2:1: line 1 routes this prefix"), "{}", errors[0]);
    }

    #[test]
    fn decimal_numbers_have_one_form() {
        for (text, value) in [("0", Some(0)), ("9", Some(9)), ("255", Some(255)), ("10", Some(10))]
        {
            assert_eq!(parse_decimal(text.as_bytes(), 255), value);
        }
        for text in ["", "00", "01", "256", "1000", "-1", "+1", "1 ", "a"] {
            assert_eq!(parse_decimal(text.as_bytes(), 255), None, "{text}");
        }
    }
}
