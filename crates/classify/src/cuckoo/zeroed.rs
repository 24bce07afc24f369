//! The memory of the table: mapped, or what the model checker needs.
//!
//! `unsafe` here: the promise that zero bytes make a line.
#![allow(unsafe_code)]

#[cfg(not(loom))]
pub(super) use thalweg_cpu::memory::Zeroed;

// SAFETY: an array of integers in cells, aligned to 64 bytes.
#[cfg(not(loom))]
unsafe impl thalweg_cpu::memory::Zero for super::line::Line {}

#[cfg(loom)]
pub(super) use modelled::Zeroed;

#[cfg(loom)]
mod modelled {
    use std::ops::Deref;

    /// A slice of elements that the model checker knows.
    #[derive(Debug)]
    pub(crate) struct Zeroed<T>(Box<[T]>);

    impl<T: Default> Zeroed<T> {
        pub(crate) fn new(len: usize) -> std::io::Result<Self> {
            Ok(Self((0..len).map(|_| T::default()).collect()))
        }
    }

    impl<T> Deref for Zeroed<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }
}
