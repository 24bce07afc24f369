//! Live ports on systems other than Linux, which have none.

use std::convert::Infallible;
use std::io;

use thalweg_packet::{Batch, DropCounts, Lanes};

use crate::filter::Filter;
#[path = "interface/kind.rs"]
mod kind;

pub use kind::KIND;

use crate::port::{Input, IoError, Output, OutputFailure, Received};

/// A network interface as an input; only on Linux.
pub struct InterfaceInput(Infallible);

/// A network interface as an output; only on Linux.
pub struct InterfaceOutput(Infallible);

fn unsupported(name: &str) -> IoError {
    let what = "live interfaces need Linux".into();
    IoError::Interface { name: name.to_owned(), what }
}

impl InterfaceInput {
    /// Returns an error, since interfaces need Linux.
    ///
    /// # Errors
    /// Always.
    pub fn open(name: &str, _promiscuous: bool, _filter: Option<&Filter>) -> Result<Self, IoError> {
        Err(unsupported(name))
    }

    /// The same.
    ///
    /// # Errors
    /// Always.
    pub fn open_queues(
        name: &str,
        _promiscuous: bool,
        _filter: Option<&Filter>,
        _queues: usize,
    ) -> Result<Vec<Self>, IoError> {
        Err(unsupported(name))
    }

    pub(crate) fn mode(&self) -> String {
        match self.0 {}
    }
}

impl InterfaceOutput {
    /// Returns an error, since interfaces need Linux.
    ///
    /// # Errors
    /// Always.
    pub fn open(name: &str) -> Result<Self, IoError> {
        Err(unsupported(name))
    }

    /// The same.
    ///
    /// # Errors
    /// Always.
    pub fn open_queues(name: &str, _queues: usize) -> Result<Vec<Self>, IoError> {
        Err(unsupported(name))
    }

    pub(crate) fn mode(_queues: &[Self]) -> String {
        "none".into()
    }
}

impl Input for InterfaceInput {
    fn receive(
        &mut self,
        _batch: &mut Batch,
        _most: usize,
        _drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        match self.0 {}
    }
}

impl Output for InterfaceOutput {
    fn send(
        &mut self,
        _batch: &Batch,
        _lanes: Lanes,
        _drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        match self.0 {}
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        match self.0 {}
    }
}

/// The state of the link of an interface: unknown.
fn link_of(_name: &str) -> Option<crate::kind::Link> {
    None
}

/// The names of interfaces that can be used: none.
pub fn interfaces() -> Vec<String> {
    Vec::new()
}

/// Returns an error, since interfaces need Linux.
///
/// # Errors
/// Always.
pub fn check_interface(name: &str) -> Result<(), IoError> {
    Err(unsupported(name))
}

/// Whether interfaces can be used.
///
/// # Errors
/// Always.
pub fn may_use_interfaces() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "live interfaces need Linux"))
}
