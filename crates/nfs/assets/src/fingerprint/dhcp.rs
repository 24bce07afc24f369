//! Signatures of DHCP clients: the parameters they request, in their order.

use hashbrown::HashMap;

use super::super::attributes::Attributes;
use super::super::dhcp::Request;

/// The conditions on a client's message besides the requested parameters.
#[derive(Clone, Debug)]
pub(super) struct DhcpSignature {
    pub(super) message: Option<u8>,
    /// The options in their order, without the end option.
    pub(super) options: Option<Vec<u8>>,
    pub(super) vendor_class: Option<String>,
    pub(super) says: Attributes,
}

/// All signatures, by the requested parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct DhcpSignatures {
    by_parameters: HashMap<Vec<u8>, Vec<DhcpSignature>>,
    count: usize,
}

impl DhcpSignatures {
    pub(super) fn push(&mut self, parameters: Vec<u8>, signature: DhcpSignature) {
        self.by_parameters.entry(parameters).or_default().push(signature);
        self.count += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Attributes> {
        self.by_parameters.values_mut().flatten().map(|s| &mut s.says)
    }

    /// The attributes of the first signature that matches a client's message.
    pub(super) fn find(&self, request: &Request<'_>) -> Option<&Attributes> {
        let candidates = self.by_parameters.get(request.parameters)?;
        let fits = |signature: &&DhcpSignature| {
            let class = signature.vendor_class.as_ref().map(String::as_bytes);
            signature.message.is_none_or(|m| m == request.message)
                && signature.options.as_ref().is_none_or(|o| o[..] == request.order[..])
                && class.is_none_or(|c| request.vendor_class == Some(c))
        };
        candidates.iter().find(fits).map(|signature| &signature.says)
    }
}
