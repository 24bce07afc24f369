//! Address and port lists with variables.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::names::suggested;
use super::text::{Fault, Piece};

/// The maximum nesting depth of lists and variables.
const MAX_DEPTH: usize = 8;

/// The values of the variables by name, without the dollar sign.
#[derive(Clone, Debug)]
pub(in super::super) struct Variables(HashMap<String, String>);

impl Variables {
    /// Suricata's defaults, overridden by `own`.
    pub(in super::super) fn new(own: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut all = Self::defaults();
        all.0.extend(own);
        all
    }

    fn defaults() -> Self {
        let mut all = HashMap::new();
        let home = "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]";
        all.insert("HOME_NET".to_owned(), home.to_owned());
        all.insert("EXTERNAL_NET".to_owned(), "!$HOME_NET".to_owned());
        let servers =
            ["HTTP", "SMTP", "SQL", "DNS", "TELNET", "AIM", "DC", "DNP3", "MODBUS", "ENIP"];
        for server in servers {
            all.insert(format!("{server}_SERVERS"), "$HOME_NET".to_owned());
        }
        for client in [
            "DNP3_CLIENT",
            "MODBUS_CLIENT",
            "ENIP_CLIENT",
            "DNP3_SERVER",
            "MODBUS_SERVER",
            "ENIP_SERVER",
        ] {
            all.insert(client.to_owned(), "$HOME_NET".to_owned());
        }
        let ports = [
            ("HTTP", "80"),
            ("SHELLCODE", "!80"),
            ("ORACLE", "1521"),
            ("SSH", "22"),
            ("DNP3", "20000"),
            ("MODBUS", "502"),
            ("FTP", "21"),
            ("FILE_DATA", "[80,110,143]"),
            ("GENEVE", "6081"),
            ("VXLAN", "4789"),
            ("TEREDO", "3544"),
            ("SIP", "[5060,5061]"),
        ];
        for (name, value) in ports {
            all.insert(format!("{name}_PORTS"), value.to_owned());
        }
        Self(all)
    }

    /// What was expected of the variable `name`, if its value is invalid.
    pub(in super::super) fn mistake(&self, name: &str) -> Option<String> {
        let text = format!("${name}");
        let piece = Piece { text: &text, start: 0 };
        let (addresses, ports) = (addresses(piece, self).err(), ports(piece, self).err());
        let (own, other) =
            if name.ends_with("_PORTS") { (ports, addresses) } else { (addresses, ports) };
        // Suricata's own names determine whether they hold addresses or ports.
        let either = !Self::defaults().0.contains_key(name) && other.is_none();
        own.filter(|_| !either).map(|fault| fault.expected)
    }
}

/// A set of addresses: the included ones (all, if none are given) without the excluded ones.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Addresses {
    include: Vec<Prefix>,
    exclude: Vec<Prefix>,
}

#[derive(Clone, Copy, Debug)]
struct Prefix {
    v4: bool,
    low: u128,
    high: u128,
}

impl Addresses {
    pub(in super::super) fn contains(&self, address: IpAddr) -> bool {
        let (v4, number) = match address {
            IpAddr::V4(a) => (true, u128::from(u32::from(a))),
            IpAddr::V6(a) => (false, u128::from(a)),
        };
        let within = |p: &Prefix| p.v4 == v4 && (p.low..=p.high).contains(&number);
        (self.include.is_empty() || self.include.iter().any(within))
            && !self.exclude.iter().any(within)
    }
}

/// A set of ports, likewise.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Ports {
    include: Vec<(u16, u16)>,
    exclude: Vec<(u16, u16)>,
}

impl Ports {
    pub(in super::super) fn contains(&self, port: u16) -> bool {
        let within = |(low, high): &(u16, u16)| (*low..=*high).contains(&port);
        (self.include.is_empty() || self.include.iter().any(within))
            && !self.exclude.iter().any(within)
    }

    /// Whether the set has at most `most` ports.
    pub(in super::super) fn are_few(&self, most: usize) -> bool {
        let ports = |(low, high): &(u16, u16)| usize::from(high - low) + 1;
        !self.include.is_empty() && self.include.iter().map(ports).sum::<usize>() <= most
    }

    /// Each port of a set that names its ports, some perhaps twice.
    pub(in super::super) fn each(&self) -> impl Iterator<Item = u16> {
        let ports = self.include.iter().flat_map(|(low, high)| *low..=*high);
        ports.filter(|port| self.contains(*port))
    }

    /// The first ports of ranges that lie entirely in the set or entirely outside it.
    pub(in super::super) fn begins(&self) -> impl Iterator<Item = u16> {
        let ranges = self.include.iter().chain(&self.exclude);
        ranges.flat_map(|(low, high)| [Some(*low), high.checked_add(1)]).flatten()
    }
}

pub(super) fn addresses(piece: Piece<'_>, variables: &Variables) -> Result<Addresses, Fault> {
    let (include, exclude) = list(piece, variables, &address)?;
    Ok(Addresses { include, exclude })
}

pub(super) fn ports(piece: Piece<'_>, variables: &Variables) -> Result<Ports, Fault> {
    let (include, exclude) = list(piece, variables, &port)?;
    Ok(Ports { include, exclude })
}

/// A range of addresses or ports.
trait Interval: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The remainders of the range, before and after `hole`.
    fn without(self, hole: Self) -> [Option<Self>; 2];
}

impl Interval for Prefix {
    const ALL: &'static [Self] = &[
        Self { v4: true, low: 0, high: u32::MAX as u128 },
        Self { v4: false, low: 0, high: u128::MAX },
    ];

    fn without(self, hole: Self) -> [Option<Self>; 2] {
        if hole.v4 != self.v4 || hole.high < self.low || hole.low > self.high {
            return [Some(self), None];
        }
        let before = hole.low.checked_sub(1).filter(|high| *high >= self.low);
        let behind = hole.high.checked_add(1).filter(|low| *low <= self.high);
        [before.map(|high| Self { high, ..self }), behind.map(|low| Self { low, ..self })]
    }
}

impl Interval for (u16, u16) {
    const ALL: &'static [Self] = &[(0, u16::MAX)];

    fn without(self, hole: Self) -> [Option<Self>; 2] {
        if hole.1 < self.0 || hole.0 > self.1 {
            return [Some(self), None];
        }
        let before = hole.0.checked_sub(1).filter(|high| *high >= self.0);
        let behind = hole.1.checked_add(1).filter(|low| *low <= self.1);
        [before.map(|high| (self.0, high)), behind.map(|low| (low, self.1))]
    }
}

/// The included values without the excluded ones, as ranges.
fn difference<T: Interval>((include, exclude): &Items<T>) -> Vec<T> {
    let include = if include.is_empty() { T::ALL } else { include };
    exclude.iter().fold(include.to_vec(), |left, hole| {
        left.into_iter().flat_map(|range| range.without(*hole)).flatten().collect()
    })
}

type Items<T> = (Vec<T>, Vec<T>);

/// Reads a list; errors inside a variable are reported at its name.
fn list<T: Interval>(
    piece: Piece<'_>,
    variables: &Variables,
    one: &dyn Fn(&str) -> Result<Option<T>, String>,
) -> Result<Items<T>, Fault> {
    let mut items = (Vec::new(), Vec::new());
    collect(piece.text, variables, one, 0, &mut items)
        .map_err(|expected| piece.fault("bad list", expected))?;
    if !items.1.is_empty() && difference(&items).is_empty() {
        return Err(piece.fault("an empty list", "a list that does not exclude everything"));
    }
    Ok(items)
}

fn collect<T: Interval>(
    text: &str,
    variables: &Variables,
    one: &dyn Fn(&str) -> Result<Option<T>, String>,
    depth: usize,
    items: &mut Items<T>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("lists and variables nested at most {MAX_DEPTH} deep"));
    }
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('!') {
        let mut inner = (Vec::new(), Vec::new());
        collect(rest, variables, one, depth + 1, &mut inner)?;
        if inner.0.is_empty() && inner.1.is_empty() {
            return Err("a list that matches something, unlike '!any'".into());
        }
        items.1.extend(difference(&inner));
        return Ok(());
    }
    if let Some(name) = text.strip_prefix('$') {
        let value = variables.0.get(name);
        let undefined = || {
            let names = variables.0.keys().map(String::as_str);
            let mut names: Vec<&str> = names.collect();
            names.sort_unstable();
            suggested(&format!("a defined variable; '{name}' is not defined"), name, names)
        };
        let value = value.ok_or_else(undefined)?;
        return collect(value, variables, one, depth + 1, items);
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        // One comma may end a list.
        let inner = inner.trim_end().strip_suffix(',').unwrap_or(inner);
        if split(inner).any(|item| item.trim().is_empty()) {
            return Err("an item on both sides of each comma in a list".into());
        }
        return split(inner).try_for_each(|t| collect(t, variables, one, depth + 1, items));
    }
    // "any" includes all, and so does an empty list.
    items.0.extend(one(text)?);
    Ok(())
}

/// The parts separated by commas outside of inner brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn address(text: &str) -> Result<Option<Prefix>, String> {
    if text == "any" {
        return Ok(None);
    }
    let wrong = || format!("an address, a prefix, a range, a list or a variable, not '{text}'");
    let number = |t: &str| -> Result<(bool, u128), String> {
        match t.trim().parse::<IpAddr>().map_err(|_| wrong())? {
            IpAddr::V4(a) => Ok((true, u128::from(u32::from(a)))),
            IpAddr::V6(a) => Ok((false, u128::from(a))),
        }
    };
    if let Some((low, high)) = text.split_once('-') {
        let ((v4, low), (same, high)) = (number(low)?, number(high)?);
        let fine = v4 == same && low <= high;
        return if fine { Ok(Some(Prefix { v4, low, high })) } else { Err(wrong()) };
    }
    let (base, length) = text.split_once('/').map_or((text, None), |(b, l)| (b, Some(l)));
    let (v4, base) = number(base)?;
    let bits: u32 = if v4 { 32 } else { 128 };
    let length = match length {
        Some(mask) if mask.contains('.') => {
            let mask = mask.parse::<Ipv4Addr>().map_err(|_| wrong())?.to_bits();
            if !v4 || mask.leading_ones() != mask.count_ones() {
                return Err("a mask with all ones before all zeros, such as 255.255.0.0".into());
            }
            mask.leading_ones()
        }
        Some(length) => length.parse().ok().filter(|l| *l <= bits).ok_or_else(wrong)?,
        None => bits,
    };
    let host = if bits == length { 0 } else { u128::MAX >> (128 - (bits - length)) };
    Ok(Some(Prefix { v4, low: base & !host, high: base | host }))
}

fn port(text: &str) -> Result<Option<(u16, u16)>, String> {
    if text == "any" {
        return Ok(None);
    }
    let wrong = || format!("a port, a range such as 1024:, a list or a variable, not '{text}'");
    let number = |t: &str, empty: u16| {
        if t.trim().is_empty() { Ok(empty) } else { t.trim().parse().map_err(|_| wrong()) }
    };
    let (low, high) = if let Some((low, high)) = text.split_once(':') {
        (number(low, 0)?, number(high, u16::MAX)?)
    } else {
        let port = text.parse().map_err(|_| wrong())?;
        (port, port)
    };
    if low <= high { Ok(Some((low, high))) } else { Err(wrong()) }
}
