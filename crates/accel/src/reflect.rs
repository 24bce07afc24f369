//! The least that an NF can do: for tests, and to measure what the way to a device costs.

use thalweg_nf::device::DeviceFunction;

/// Swaps the two Ethernet addresses of a packet, and returns its argument's first word and its length.
pub const REFLECT: DeviceFunction = DeviceFunction {
    name: "reflect",
    source: include_str!("reflect.cl"),
    near: 0,
    split: None,
    changes: true,
    scalar: |bytes, argument, _| {
        if let Some(addresses) = bytes.first_chunk_mut::<12>() {
            let (destination, source) = addresses.split_at_mut(6);
            destination.swap_with_slice(source);
        }
        [argument[0], bytes.len() as u32]
    },
};
