//! The energy that the machine uses, where it can be read: counters of processors and memory (RAPL,
//! by `/sys/class/powercap`), and counters or meters of GPUs (hwmon, and NVML for NVIDIA's).

mod nvidia;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use nvml_wrapper::error::NvmlError;

use self::nvidia::Nvidia;

/// What a sensor gives.
#[derive(Clone, Copy)]
enum Reading {
    /// Microjoules so far, up to a number after which it begins again at 0.
    Counter { most: u64 },
    /// Microwatts now.
    Power,
}

/// Where a sensor is read.
enum Place {
    File(PathBuf),
    /// A GPU of NVIDIA, by its number.
    Gpu(Rc<Nvidia>, u32),
}

/// A sensor.
struct Sensor {
    place: Place,
    reading: Reading,
}

/// The sensors of a machine.
pub(super) struct Sensors {
    all: Vec<Sensor>,
    /// Their names.
    pub(super) names: Vec<String>,
}

/// The energy used since it was started.
pub(super) struct Meter<'a> {
    sensors: &'a Sensors,
    /// By sensor: the last reading, and when it was made.
    last: Vec<(u64, Instant)>,
    microjoules: f64,
}

fn text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> io::Result<u64> {
    text(path)?.parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// The entries of a folder, in the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    all.sort_by_key(fs::DirEntry::file_name);
    all.into_iter().map(|entry| entry.path()).collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

impl Sensors {
    /// The sensors of this machine.
    ///
    /// # Errors
    /// Why there are none, in words.
    pub(super) fn find() -> Result<Self, String> {
        Self::find_in(Path::new("/sys"), nvidia::LIBRARY)
    }

    /// The sensors below `root`, which is `/sys`, and by a library, which is NVML.
    fn find_in(root: &Path, library: &str) -> Result<Self, String> {
        let mut found = Self { all: Vec::new(), names: Vec::new() };
        let zones = entries(&root.join("class/powercap"));
        let is_zone = |path: &&PathBuf| name_of(path).starts_with("intel-rapl:");
        for zone in zones.iter().filter(is_zone) {
            found.add_zone(zone)?;
        }
        let cards = entries(&root.join("class/drm"));
        let is_card = |path: &&PathBuf| {
            let number = name_of(path).strip_prefix("card");
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for card in cards.iter().filter(is_card) {
            found.add_card(card)?;
        }
        if let Some(nvidia) = Nvidia::load(library) {
            found.add_nvidia(&Rc::new(nvidia)).map_err(|e| format!("{library}: {e}"))?;
        }
        if found.all.is_empty() {
            let folder = root.join("class/powercap/intel-rapl:*");
            let folder = folder.display();
            return Err(format!("no sensors: no {folder}, no hwmon of a GPU, none by {library}"));
        }
        Ok(found)
    }

    /// Adds the sensors of NVIDIA's GPUs.
    fn add_nvidia(&mut self, nvidia: &Rc<Nvidia>) -> Result<(), NvmlError> {
        for (gpu, name, reading) in nvidia.sensors()? {
            self.names.push(name);
            self.all.push(Sensor { place: Place::Gpu(Rc::clone(nvidia), gpu), reading });
        }
        Ok(())
    }

    /// Adds a zone of RAPL: a processor, or memory, which no other zone includes.
    fn add_zone(&mut self, zone: &Path) -> Result<(), String> {
        let name = text(&zone.join("name")).unwrap_or_default();
        if name.starts_with("package") || name == "dram" {
            let most = number(&zone.join("max_energy_range_uj")).unwrap_or(u64::MAX);
            self.add(zone.join("energy_uj"), name, Reading::Counter { most })?;
        }
        Ok(())
    }

    /// Adds a sensor of a GPU: a counter, or else a meter.
    fn add_card(&mut self, card: &Path) -> Result<(), String> {
        for hwmon in entries(&card.join("device/hwmon")) {
            for (file, reading) in [
                ("energy1_input", Reading::Counter { most: u64::MAX }),
                ("power1_average", Reading::Power),
                ("power1_input", Reading::Power),
            ] {
                if hwmon.join(file).exists() {
                    self.add(hwmon.join(file), name_of(card).to_owned(), reading)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds a sensor if it can be read: with one missing, sums of several places would not compare.
    fn add(&mut self, path: PathBuf, name: String, reading: Reading) -> Result<(), String> {
        number(&path).map_err(|e| {
            let remedy = match e.kind() {
                io::ErrorKind::PermissionDenied => " (root can read it)",
                _ => "",
            };
            format!("{}: {e}{remedy}", path.display())
        })?;
        self.names.push(name);
        self.all.push(Sensor { place: Place::File(path), reading });
        Ok(())
    }
}

impl Sensor {
    /// What it gives, and when.
    fn read(&self) -> io::Result<(u64, Instant)> {
        let value = match &self.place {
            Place::File(path) => number(path)?,
            Place::Gpu(nvidia, gpu) => nvidia.read(*gpu, self.reading)?,
        };
        Ok((value, Instant::now()))
    }
}

impl<'a> Meter<'a> {
    /// Starts to measure.
    ///
    /// # Errors
    /// When a sensor cannot be read.
    pub(super) fn start(sensors: &'a Sensors) -> io::Result<Self> {
        let last = sensors.all.iter().map(Sensor::read).collect::<io::Result<_>>()?;
        Ok(Self { sensors, last, microjoules: 0.0 })
    }

    /// Reads all sensors; several times a second, so that meters and counters that begin again are
    /// added up.
    ///
    /// # Errors
    /// When a sensor cannot be read.
    pub(super) fn read(&mut self) -> io::Result<()> {
        for (sensor, (last, at)) in self.sensors.all.iter().zip(&mut self.last) {
            let (value, now) = sensor.read()?;
            self.microjoules += match sensor.reading {
                Reading::Counter { .. } if value >= *last => (value - *last) as f64,
                Reading::Counter { most } => (value + most.saturating_sub(*last)) as f64,
                Reading::Power => (value as f64).midpoint(*last as f64) * (now - *at).as_secs_f64(),
            };
            (*last, *at) = (value, now);
        }
        Ok(())
    }

    /// Joules until the last reading.
    pub(super) fn joules(&self) -> f64 {
        self.microjoules / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a root in place of `/sys`.
    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// The sensors below a root, without NVML.
    fn files(root: &Path) -> Result<Sensors, String> {
        Sensors::find_in(root, "/nonexistent/libnvidia-ml.so.1")
    }

    const PACKAGE: &str = "class/powercap/intel-rapl:0";

    #[test]
    fn counters_of_processors_and_memory_add_up_and_begin_again() {
        let root = tempfile::tempdir().unwrap();
        let (r, energy) = (root.path(), format!("{PACKAGE}/energy_uj"));
        write(
            r,
            &[
                (&format!("{PACKAGE}/name"), "package-0\n"),
                (&energy, "900\n"),
                (&format!("{PACKAGE}/max_energy_range_uj"), "1000\n"),
                // A part of the package.
                ("class/powercap/intel-rapl:0:0/name", "core\n"),
                ("class/powercap/intel-rapl:0:0/energy_uj", "7\n"),
                ("class/powercap/intel-rapl:0:1/name", "dram\n"),
                ("class/powercap/intel-rapl:0:1/energy_uj", "0\n"),
                // The whole machine, the package included.
                ("class/powercap/intel-rapl:1/name", "psys\n"),
                ("class/powercap/intel-rapl:1/energy_uj", "50\n"),
            ],
        );
        let sensors = files(r).unwrap();
        assert_eq!(sensors.names, ["package-0", "dram"]);
        let mut meter = Meter::start(&sensors).unwrap();
        write(r, &[(&energy, "990"), ("class/powercap/intel-rapl:0:1/energy_uj", "5000000")]);
        meter.read().unwrap();
        write(r, &[(&energy, "30")]);
        meter.read().unwrap();
        let joules = meter.joules();
        assert!((joules - (5.0 + 130e-6)).abs() < 1e-9, "{joules}");
    }

    #[test]
    fn power_of_gpus_is_summed_over_time() {
        let root = tempfile::tempdir().unwrap();
        let r = root.path();
        write(
            r,
            &[
                ("class/drm/card0/device/hwmon/hwmon3/power1_average", "50000000\n"),
                // With a counter, its power is not read.
                ("class/drm/card1/device/hwmon/hwmon4/energy1_input", "10\n"),
                ("class/drm/card1/device/hwmon/hwmon4/power1_input", "1\n"),
                ("class/drm/card1-HDMI-A-1/device/hwmon/hwmon4/energy1_input", "10\n"),
            ],
        );
        let sensors = files(r).unwrap();
        assert_eq!(sensors.names, ["card0", "card1"]);
        let began = Instant::now();
        let mut meter = Meter::start(&sensors).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        meter.read().unwrap();
        let most = 50.0 * began.elapsed().as_secs_f64();
        let joules = meter.joules();
        assert!((1.5..=most).contains(&joules), "{joules} of {most}");
    }

    /// Compiles a library in place of NVML: `GPUS` with what their sensors give, each time 1,000 more.
    fn library(folder: &Path, gpus: &str) -> String {
        let (source, library) = (folder.join("nvml.c"), folder.join("libnvidia-ml.so.1"));
        fs::write(&source, include_str!("nvml.c")).unwrap();
        let made = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", &format!("-DGPUS={gpus}"), "-o"])
            .args([&library, &source])
            .output()
            .expect("cc, which links Rust programs too");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        library.to_str().unwrap().to_owned()
    }

    #[test]
    fn gpus_of_nvidia_have_a_counter_or_else_a_meter() {
        let root = tempfile::tempdir().unwrap();
        // A GPU with a counter, one with a meter alone (50 W), one with neither.
        let library = library(root.path(), "{1,50000},{0,50000},{0,0}");
        let sensors = Sensors::find_in(root.path(), &library).unwrap();
        assert_eq!(sensors.names, ["GPU 0", "GPU 1"]);
        let began = Instant::now();
        let mut meter = Meter::start(&sensors).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        meter.read().unwrap();
        // The counter has one joule more at each reading.
        let (least, most) = (1.0 + 1.5, 1.0 + 50.0 * began.elapsed().as_secs_f64());
        let joules = meter.joules();
        assert!((least..=most).contains(&joules), "{joules} of {most}");
    }

    #[test]
    fn a_gpu_that_cannot_be_read_is_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let library = library(root.path(), "{-1,0}");
        let why = Sensors::find_in(root.path(), &library).map(|_| ()).unwrap_err();
        assert!(why.contains("libnvidia-ml.so.1: ") && why.contains("fell off the bus"), "{why}");
    }

    #[test]
    fn without_sensors_the_reason_is_named() {
        let root = tempfile::tempdir().unwrap();
        let why = files(root.path()).map(|_| ()).unwrap_err();
        assert!(why.contains("class/powercap/intel-rapl:*, no hwmon of a GPU, none by"), "{why}");
        write(root.path(), &[(&format!("{PACKAGE}/name"), "package-0")]);
        let why = files(root.path()).map(|_| ()).unwrap_err();
        assert!(why.contains("intel-rapl:0/energy_uj: No such file"), "{why}");
    }
}
