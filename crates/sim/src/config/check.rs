//! Reads configurations and checks whether they can be simulated.

use std::fmt::Display;

use crate::machine::{LEAST_SETS, LINE};
use crate::own::KEY;

use super::{Beside, Config, Function, Method, Pick, Table};

/// Why a configuration cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a configuration: a wrong key, a wrong type. The message names line and key.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// A setting in addition to the file does not have the form of one.
    #[error("invalid setting '{setting}'; expected {expected}")]
    Setting {
        /// The setting as given.
        setting: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A setting in addition to the file names a wrong key or value.
    #[error("setting '{setting}': {message}")]
    Refused {
        /// The setting as given.
        setting: String,
        /// What is wrong with it.
        message: String,
    },
    /// A value is out of range.
    #[error("{key} is {value}; expected {allowed}")]
    Range {
        /// The key with its table.
        key: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
}

/// The most lookups whose cycles the counters hold.
const MOST_LOOKUPS: u64 = 1 << 24;
/// The most memory that a simulated table may take: 16 GiB.
const MEMORY: u64 = 16 << 30;

impl Config {
    /// Reads a configuration and checks it.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// As [`from_toml`](Self::from_toml), with `settings` in the form `table.key=value`
    /// on top, later ones winning.
    pub fn with_settings<S: AsRef<str>>(text: &str, settings: &[S]) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        let config =
            settings.iter().try_fold(config, |config, setting| config.set(setting.as_ref()))?;
        config.check()?;
        Ok(config)
    }

    /// The part of the configuration that tables and warm caches depend on; the rest is set to
    /// the defaults.
    #[must_use]
    pub fn prepared(&self) -> Self {
        let default = Self::default();
        let workload = super::WorkloadConfig {
            method: default.workload.method,
            stream: default.workload.stream,
            ..self.workload
        };
        let core = super::CoreConfig { ghz: self.core.ghz, mshr: self.core.mshr, ..default.core };
        Self { workload, core, halo: default.halo, tcam: default.tcam, ..self.clone() }
    }

    /// The configuration with one more setting, unchecked.
    fn set(self, setting: &str) -> Result<Self, ConfigError> {
        let form = || ConfigError::Setting {
            setting: setting.to_owned(),
            expected: "table.key=value, such as workload.entries=1024",
        };
        let (path, value) = setting.split_once('=').ok_or_else(form)?;
        let (table, key) = path.trim().split_once('.').ok_or_else(form)?;
        let value = value.trim();
        // A word needs no quotation marks.
        let word = value.starts_with(|c: char| c.is_ascii_alphabetic());
        let quoted = word && value != "true" && value != "false";
        let value = if quoted { format!("\"{value}\"") } else { value.to_owned() };
        let refused = |e: toml::de::Error| ConfigError::Refused {
            setting: setting.to_owned(),
            message: e.message().to_owned(),
        };
        let line: toml::Table =
            toml::from_str(&format!("[{table}]\n{key} = {value}")).map_err(refused)?;
        let mut all: toml::Table =
            toml::from_str(&self.to_toml()).expect("what was written can be read");
        for (table, settings) in line {
            let known = all.entry(table).or_insert_with(|| toml::Table::new().into());
            if let (Some(known), Some(settings)) = (known.as_table_mut(), settings.as_table()) {
                known.extend(settings.clone());
            }
        }
        all.try_into().map_err(refused)
    }

    /// The whole configuration as TOML.
    ///
    /// # Panics
    /// Never: all of it has a form in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a configuration has only tables and plain values")
    }

    /// The settings that are not the defaults, in the form `table.key=value`.
    ///
    /// # Panics
    /// Never: all of it has a form in TOML.
    pub fn differences(&self) -> Vec<String> {
        let tables = |config: &Self| toml::Table::try_from(config).expect("tables of plain values");
        let (ours, defaults) = (tables(self), tables(&Self::default()));
        let values = ours.iter().filter_map(|(table, values)| Some((table, values.as_table()?)));
        let all = values.flat_map(|(table, values)| values.iter().map(move |pair| (table, pair)));
        let differs = all.filter(|(table, (key, value))| defaults[*table].get(key) != Some(*value));
        let setting = |(table, (key, value)): (&String, (&String, &toml::Value))| match value {
            toml::Value::String(word) => format!("{table}.{key}={word}"),
            value => format!("{table}.{key}={value}"),
        };
        differs.map(setting).collect()
    }

    /// The machine in a line: its main sizes, and the settings that are not the defaults.
    pub fn summary(&self) -> String {
        let (core, dram) = (&self.core, &self.dram);
        let caches = (self.l1d.kib, self.l2.kib, self.llc.mib, self.llc.slices);
        let differences =
            self.differences().into_iter().filter(|one| !one.starts_with("sim.seed="));
        let differences: Vec<String> = differences.collect();
        let settings = match differences.as_slice() {
            [] => "all settings at their defaults".to_owned(),
            _ => format!("not at their defaults: {}", differences.join(", ")),
        };
        format!(
            "{} GHz, {} operations a cycle, reorder buffer {}; caches {} KiB, {} KiB, {} MiB in {} \
             slices; memory channels {}; {settings}",
            core.ghz, core.width, core.rob, caches.0, caches.1, caches.2, caches.3, dram.channels
        )
    }

    /// Checks every value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_machine()?;
        self.check_workload()
    }

    fn check_machine(&self) -> Result<(), ConfigError> {
        let (core, llc, mesh, dram) = (&self.core, &self.llc, &self.mesh, &self.dram);
        range("core.ghz", core.ghz, 0.1, 10.0)?;
        range("core.width", core.width, 1, 16)?;
        for (key, value) in [
            ("core.rob", core.rob),
            ("core.lq", core.lq),
            ("core.sq", core.sq),
            ("core.iq", core.iq),
        ] {
            range(key, value as u64, 8, 1024)?;
        }
        for (key, value) in [
            ("core.alu_ports", core.alu_ports),
            ("core.load_ports", core.load_ports),
            ("core.store_ports", core.store_ports),
        ] {
            range(key, value, 1, 16)?;
        }
        range("core.frontend_depth", core.frontend_depth, 1, 100)?;
        range("core.redirect", core.redirect, 0, 100)?;
        range("core.operations_each", core.operations_each, 1.0, 4.0)?;
        range("core.block_cycles", core.block_cycles, 0, 100)?;
        range("core.block_operations", core.block_operations, 0, 1024)?;
        range("core.fence_cycles", core.fence_cycles, 0, 1000)?;
        range("core.mshr", core.mshr as u64, 1, 256)?;
        power_of_two("llc.slices", llc.slices as u64, 64)?;
        // A size past 64 bits is refused like any other that is too large.
        let bytes = |units: u64, each: u64| units.saturating_mul(each);
        cache("l1d.kib", bytes(self.l1d.kib, 1 << 10), "l1d.ways", self.l1d.ways)?;
        cache("l2.kib", bytes(self.l2.kib, 1 << 10), "l2.ways", self.l2.ways)?;
        let slice = bytes(llc.mib, 1 << 20) / llc.slices.max(1) as u64;
        cache("llc.mib", slice, "llc.ways", llc.ways)?;
        range("l1d.load_to_use", self.l1d.load_to_use, 1, 100)?;
        range("l2.load_to_use", self.l2.load_to_use, self.l1d.load_to_use, 200)?;
        range("llc.ports_per_slice", llc.ports_per_slice, 1, 16)?;
        let tiles = mesh.cols.saturating_mul(mesh.rows) as u64;
        if tiles != llc.slices as u64 {
            return Err(ConfigError::Range {
                key: "mesh.cols x mesh.rows",
                value: tiles.to_string(),
                allowed: format!("{} (llc.slices)", llc.slices),
            });
        }
        range("mesh.hop", mesh.hop, 0, 100)?;
        range("mesh.link_bytes", mesh.link_bytes, 1, 64)?;
        power_of_two("dram.channels", dram.channels as u64, 16)?;
        power_of_two("dram.ranks", dram.ranks as u64, 8)?;
        power_of_two("dram.bank_groups", dram.bank_groups as u64, 8)?;
        power_of_two("dram.banks", dram.banks as u64, 8)?;
        range("dram.mhz", dram.mhz, 100.0, 10_000.0)?;
        range("dram.controller_ns", dram.controller_ns, 0.0, 1000.0)?;
        for (key, value) in [
            ("dram.t_cl", dram.t_cl),
            ("dram.t_rcd", dram.t_rcd),
            ("dram.t_rp", dram.t_rp),
            ("dram.t_ras", dram.t_ras),
            ("dram.t_ccd_l", dram.t_ccd_l),
            ("dram.burst", dram.burst),
            ("dram.t_faw", dram.t_faw),
        ] {
            range(key, value, 1, 1000)?;
        }
        range("dram.t_refi", dram.t_refi, 2, 1_000_000)?;
        range("dram.t_rfc", dram.t_rfc, 0, dram.t_refi - 1)?;
        let halo = &self.halo;
        range("halo.scoreboard", halo.scoreboard as u64, 1, 1024)?;
        range("halo.in_flight_per_table", halo.in_flight_per_table as u64, 1, 1024)?;
        range("halo.metadata_entries", halo.metadata_entries as u64, 1, 1024)?;
        range("halo.hash_ii", halo.hash_ii, 1, 1000)?;
        range("halo.nb_batch", halo.nb_batch, 1, 8)?;
        range("halo.snoop_miss_retry", halo.snoop_miss_retry, 1, 10_000)?;
        range("race.readers", self.race.readers as u64, 1, 64)?;
        range("race.changing", self.race.changing, 0.001, 0.9)
    }

    fn check_workload(&self) -> Result<(), ConfigError> {
        let (sim, work) = (&self.sim, &self.workload);
        range("sim.batches", sim.batches, 2, 1000)?;
        range("sim.measured_lookups", sim.measured_lookups, sim.batches, MOST_LOOKUPS)?;
        range("sim.warmup_lookups", sim.warmup_lookups, 0, MOST_LOOKUPS)?;
        power_of_two("workload.entries", work.entries, 1 << 26)?;
        range("workload.entries", work.entries, 8, 1 << 26)?;
        range("workload.occupancy", work.occupancy, 0.01, 0.95)?;
        range("workload.hit_rate", work.hit_rate, 0.0, 1.0)?;
        range("workload.zipf", work.zipf, 0.1, 2.0)?;
        range("workload.key_bytes", work.key_bytes, 4, 256)?;
        range("workload.tuples", work.tuples, 1, 64)?;
        let together = matches!(work.method, Method::Bulk | Method::HaloNonBlocking);
        range("workload.flows", work.flows, 0, if together { 0 } else { 1 << 40 })?;
        power_of_two("emc.entries", self.emc.entries, 1 << 20)?;
        let inverse = self.emc.insert_inverse_probability;
        range("emc.insert_inverse_probability", inverse, 1, 1 << 32)?;
        let bytes = work.tuples * work.entries * (8 + (work.key_bytes + 8).next_multiple_of(16));
        if bytes > MEMORY {
            return Err(ConfigError::Range {
                key: "workload.entries x workload.tuples",
                value: format!("{} ({bytes} bytes)", work.entries * work.tuples),
                allowed: format!("tables of at most {MEMORY} bytes in all"),
            });
        }
        if work.table == Table::Thalweg { self.check_own() } else { Ok(()) }
    }

    /// Checks the restrictions of our own table.
    fn check_own(&self) -> Result<(), ConfigError> {
        let work = &self.workload;
        range("workload.key_bytes for table thalweg", work.key_bytes, KEY, KEY)?;
        range("workload.tuples for table thalweg", work.tuples, 1, 1)?;
        range("workload.flows for table thalweg", work.flows, 0, 0)?;
        let method = work.table.methods().contains(&work.method);
        let lacks = [
            ("workload.method for table thalweg", method, "lock-free or bulk"),
            ("workload.pick for table thalweg", work.pick == Pick::Uniform, "uniform"),
            ("workload.function for table thalweg", work.function == Function::None, "none"),
            ("workload.beside for table thalweg", work.beside == Beside::None, "none"),
        ];
        match lacks.into_iter().find(|(_, has, _)| !has) {
            Some((key, _, allowed)) => Err(ConfigError::Range {
                key,
                value: "not supported".into(),
                allowed: allowed.into(),
            }),
            None => Ok(()),
        }
    }
}

fn range<T: PartialOrd + Display>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    let allowed = if least == most { least.to_string() } else { format!("{least} to {most}") };
    Err(ConfigError::Range { key, value: value.to_string(), allowed })
}

fn power_of_two(key: &'static str, value: u64, most: u64) -> Result<(), ConfigError> {
    if value.is_power_of_two() && value <= most {
        return Ok(());
    }
    let allowed = format!("a power of two up to {most}");
    Err(ConfigError::Range { key, value: value.to_string(), allowed })
}

/// Checks that a cache consists of whole sets.
fn cache(
    key: &'static str,
    bytes: u64,
    ways_key: &'static str,
    ways: usize,
) -> Result<(), ConfigError> {
    range(ways_key, ways as u64, 1, 64)?;
    let set = LINE * ways as u64;
    if (set * LEAST_SETS..=1 << 32).contains(&bytes) && bytes.is_multiple_of(set) {
        return Ok(());
    }
    let allowed = format!("whole sets of {ways} lines of {LINE} bytes, at least {LEAST_SETS} sets");
    Err(ConfigError::Range { key, value: format!("{bytes} bytes"), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Config::from_toml(text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn the_defaults_can_be_simulated_and_written_and_read() {
        let config = Config::default();
        config.check().unwrap();
        assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
        assert_eq!(Config::from_toml("").unwrap(), config);
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key_and_what_it_may_be() {
        let cases = [
            (
                "[mesh]\ncols = 4294967296\nrows = 4294967296",
                "mesh.cols x mesh.rows is 18446744073709551615",
            ),
            ("[l1d]\nkib = 18014398509482016", "l1d.kib is 18446744073709551615 bytes"),
            ("[llc]\nslices = 12", "llc.slices is 12; expected a power of two up to 64"),
            ("[mesh]\ncols = 5", "mesh.cols x mesh.rows is 20; expected 16 (llc.slices)"),
            ("[workload]\nflows = 9\nmethod = \"bulk\"", "workload.flows is 9; expected 0"),
            ("[core]\nmshr = 0", "core.mshr is 0; expected 1 to 256"),
            ("[workload]\noccupancy = 1.5", "workload.occupancy is 1.5; expected 0.01 to 0.95"),
            (
                "[l1d]\nways = 7",
                "l1d.kib is 32768 bytes; expected whole sets of 7 lines of 64 bytes",
            ),
            (
                "[workload]\ntable = \"thalweg\"\ntuples = 2",
                "workload.tuples for table thalweg is 2",
            ),
            (
                "[workload]\ntable = \"thalweg\"\nmethod = \"tcam\"",
                "workload.method for table thalweg is not supported; expected lock-free or bulk",
            ),
            ("[workload]\nentries = 67108864\ntuples = 60", "at most 17179869184 bytes"),
        ];
        for (text, expected) in cases {
            assert!(refusal(text).contains(expected), "{text}: {}", refusal(text));
        }
    }

    #[test]
    fn settings_lie_on_top_of_the_file() {
        let text = "[workload]\nentries = 64\ntuples = 3";
        let settings =
            ["workload.entries=128", "workload.method=tcam", "core.ghz=3.5", "workload.alone=true"];
        let config = Config::with_settings(text, &settings).unwrap();
        let work = config.workload;
        assert_eq!((work.entries, work.tuples, work.method), (128, 3, super::super::Method::Tcam));
        assert!((config.core.ghz - 3.5).abs() < 1e-9 && work.alone);
        for (wrong, told) in [
            ("entries", "expected table.key=value"),
            ("entries=5", "expected table.key=value"),
            ("workload.entry=5", "unknown field `entry`"),
            ("work.entries=5", "unknown field `work`"),
            ("workload.entries=many", "setting 'workload.entries=many': invalid type"),
            ("workload.entries=]", "setting 'workload.entries=]'"),
            ("workload.entries=9", "workload.entries is 9; expected a power of two"),
        ] {
            let error = Config::with_settings("", &[wrong]).expect_err(wrong).to_string();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }

    #[test]
    fn methods_have_the_names_that_configurations_have() {
        for method in super::super::Method::ALL {
            let setting = format!("workload.method={}", method.name());
            let config = Config::with_settings("", &[setting]).unwrap();
            assert_eq!(config.workload.method, method);
        }
    }

    #[test]
    fn a_wrong_key_is_told_with_its_line() {
        let told = refusal("[core]\nwidth = 4\nrobb = 3");
        assert!(told.contains("line 3") && told.contains("robb"), "{told}");
        assert!(refusal("[cores]\n").contains("cores"));
        assert!(refusal("[workload]\nmethod = \"magic\"").contains("halo-blocking"));
    }
}
