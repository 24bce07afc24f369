//! DHCP messages (RFC 2131, RFC 2132), as far as they describe the client.

use std::net::Ipv4Addr;

use arrayvec::ArrayVec;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The fixed part of a message, with the cookie.
const FIXED: usize = 240;

/// A client's message, or the reply to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// Whether the server sent it.
    pub(super) is_reply: bool,
    /// DHCP message type: 1 discover, 3 request, 5 acknowledgement, ...
    pub(super) message: u8,
    pub(super) hardware: [u8; 6],
    /// The address that the client uses or is assigned.
    pub(super) address: Option<Ipv4Addr>,
    /// The options in their order.
    pub(super) order: ArrayVec<u8, 64>,
    pub(super) parameters: &'a [u8],
    pub(super) host_name: Option<&'a [u8]>,
    pub(super) vendor_class: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Parses a message over Ethernet; `None` for anything else.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        let fixed = message.first_chunk::<FIXED>()?;
        let (operation, hardware_type, length) = (fixed[0], fixed[1], fixed[2]);
        if !matches!(operation, 1 | 2) || (hardware_type, length) != (1, 6) {
            return None;
        }
        if fixed[236..] != COOKIE {
            return None;
        }
        let address =
            |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        let (used, given) = (address(12), address(16));
        let hardware = [fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33]];
        let own = if given.is_unspecified() { used } else { given };
        let mut request = Self {
            is_reply: operation == 2,
            message: 0,
            hardware,
            address: (!own.is_unspecified()).then_some(own),
            order: ArrayVec::new(),
            parameters: &[],
            host_name: None,
            vendor_class: None,
        };
        request.options(&message[FIXED..]);
        (request.message != 0).then_some(request)
    }

    fn options(&mut self, mut rest: &'a [u8]) {
        loop {
            match *rest {
                [0, ref after @ ..] => rest = after,
                [255, ..] | [] | [_] => return,
                [kind, length, ref after @ ..] => {
                    let Some((value, behind)) = after.split_at_checked(usize::from(length)) else {
                        return;
                    };
                    // Beyond the first 64 options the order identifies nothing.
                    let _ = self.order.try_push(kind);
                    self.option(kind, value);
                    rest = behind;
                }
            }
        }
    }

    fn option(&mut self, kind: u8, value: &'a [u8]) {
        match (kind, value) {
            (53, [message]) => self.message = *message,
            (55, parameters) => self.parameters = parameters,
            (12, name) => self.host_name = Some(name),
            (60, class) => self.vendor_class = Some(class),
            (50, [a, b, c, d]) if self.message == 3 && self.address.is_none() => {
                self.address = Some(Ipv4Addr::new(*a, *b, *c, *d));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(operation: u8, given: [u8; 4], options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..3].copy_from_slice(&[operation, 1, 6]);
        bytes[16..20].copy_from_slice(&given);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend(options);
        bytes
    }

    #[test]
    fn a_request_tells_what_the_client_asks_for() {
        let options = [53, 1, 3, 0, 50, 4, 10, 0, 0, 7, 12, 2, b'p', b'c', 55, 3, 1, 28, 2, 255, 9];
        let bytes = message(1, [0; 4], &options);
        let request = Request::read(&bytes).unwrap();
        assert_eq!((request.message, request.is_reply), (3, false));
        assert_eq!(request.address, Some(Ipv4Addr::new(10, 0, 0, 7)));
        assert_eq!(request.parameters, [1, 28, 2]);
        assert_eq!(request.order[..], [53, 50, 12, 55]);
        assert_eq!(request.host_name, Some(&b"pc"[..]));
        assert_eq!(request.hardware, [2, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn no_cut_and_no_length_makes_it_panic() {
        let bytes = message(2, [10, 0, 0, 1], &[53, 1, 5, 60, 3, b'a', b'b', b'c', 55, 200, 1]);
        assert_eq!(Request::read(&bytes).unwrap().vendor_class, Some(&b"abc"[..]));
        for cut in 0..bytes.len() {
            let _ = Request::read(&bytes[..cut]);
        }
    }
}
