//! `thalweg nat`: translates addresses and ports in a capture.

use std::path::Path;

use clap::ValueEnum;

use super::relay::{AsTheyAre, Show};
use super::text::{Argument, ChainText};
use super::{Records, Shorthand};
use crate::args::{Nat, Traffic};
use crate::errors::Failure;

impl Shorthand for Nat {
    fn name(&self) -> &'static str {
        "nat"
    }

    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn write(&self) -> Option<&Path> {
        Some(&self.write)
    }

    fn records(&self) -> Option<(&'static str, Option<&Path>)> {
        None
    }

    fn nfs(&self) -> &'static [&'static str] {
        &["nat"]
    }

    fn add_nfs(&self, chain: &mut ChainText, _: Records) -> Result<(), Failure> {
        let all = |option: &str, values: &[String]| -> Vec<Argument> {
            values.iter().map(|value| Argument::new(option, value)).collect()
        };
        chain.section("[nf.nat]", "");
        chain.set("kind", "nat", "");
        chain.take_all("inside", &all("--inside", &self.inside));
        chain.take_all("external", &all("--external", &self.external));
        if let Some(ports) = &self.ports {
            chain.take("ports", &Argument::new("--ports", ports));
        }
        let filtering = self.filtering.to_possible_value();
        if let Some(filtering) = filtering {
            chain.set("filtering", filtering.get_name(), "");
        }
        Ok(())
    }

    fn shows_json(&self) -> bool {
        true
    }

    fn show(&self) -> Box<dyn Show> {
        Box::new(AsTheyAre)
    }

    fn reports_json(&self) -> bool {
        self.json
    }
}
